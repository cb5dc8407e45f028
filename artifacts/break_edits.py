"""The change that a graph break asks for, as an edit of the person's lines, where it can be made by rule.

An edit is a proposal: it is made of the text alone, and `ptdebug breaks --try` says whether the break goes with it.
Each rule takes the statement at the break and returns its new lines, or None where it does not apply.
"""
from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .listing import SourceText
from .records import Break

WHILE_COMPILING = "torch.compiler.is_compiling()"


@dataclass(frozen=True)
class Edit:
    """Lines `first` to `last` (from 1) of a file become `lines`; `why` says what it does, and what else it changes."""

    file: str
    first: int
    last: int
    lines: tuple[str, ...]
    why: str

    def applied(self, text: str) -> str:
        """The file's text with the edit."""
        before = text.split("\n")
        return "\n".join([*before[: self.first - 1], *self.lines, *before[self.last:]])

    def diff(self, text: str) -> list[str]:
        """The removed lines and the added ones, as `- ` and `+ `."""
        before = text.split("\n")[self.first - 1: self.last]
        return [line for line in difflib.ndiff(before, list(self.lines)) if line[:2] in ("- ", "+ ")]


@dataclass(frozen=True)
class _Place:
    """A statement at a break, with those after it in its block, and the function around it."""

    found: Break
    statement: ast.stmt
    following: Sequence[ast.stmt]
    function: ast.FunctionDef | ast.AsyncFunctionDef
    lines: Sequence[str]

    @property
    def indent(self) -> str:
        """What stands before the statement."""
        line = self.lines[self.statement.lineno - 1]
        return line[: len(line) - len(line.lstrip())]

    def text(self, node: ast.AST) -> str:
        """The program's text of an expression, on one line."""
        own = ast.get_source_segment("\n".join(self.lines), node)
        return own if own and "\n" not in own else ast.unparse(node)

    def edit(self, lines: Sequence[str], why: str, last: ast.stmt | None = None) -> Edit:
        """The statement (up to the end of `last`) becomes these lines."""
        end = (last or self.statement).end_lineno or self.statement.lineno
        return Edit(self.found.location.file, self.statement.lineno, end, tuple(self.indent + line for line in lines),
                    why)


def edit_of(found: Break, source: SourceText) -> Edit | None:
    """The edit for a break, None where no rule makes one."""
    text = source(found.location.file)
    if not text or "import torch" not in text:
        return None
    try:
        place = _place(found, text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    if place is None or not _stands_alone(place):
        return None
    return next((made for rule in RULES if (made := rule(place)) is not None), None)


def _place(found: Break, text: str) -> _Place | None:
    """The innermost statement at the line of a break, inside of a function."""
    best: _Place | None = None
    todo: list[tuple[ast.AST, ast.FunctionDef | ast.AsyncFunctionDef | None]] = [(ast.parse(text), None)]
    while todo:
        node, function = todo.pop()
        inside = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody", "handlers", "cases")):
            for number, child in enumerate(block if isinstance(block, list) else ()):
                end = getattr(child, "end_lineno", None) or 0
                if not getattr(child, "lineno", 1) <= found.location.line <= max(end, 1) and end:
                    continue
                todo.append((child, inside))
                if isinstance(child, ast.stmt) and inside is not None:
                    deeper = best is None or child.lineno >= best.statement.lineno
                    if deeper:
                        best = _Place(found, child, block[number + 1:], inside, text.split("\n"))  # type: ignore[index]
    return best


def _stands_alone(place: _Place) -> bool:
    """Whether the statement has its lines for itself."""
    line = place.lines[place.statement.lineno - 1]
    begins = not line.encode()[: place.statement.col_offset].strip() and not line.lstrip().startswith("elif")
    end = place.lines[(place.statement.end_lineno or place.statement.lineno) - 1].encode()
    rest = end[place.statement.end_col_offset or 0:].strip()
    return begins and (not rest or rest.startswith(b"#"))


# ---- rules -----------------------------------------------------------------------------------------------------------
def _requested(place: _Place) -> Edit | None:
    """torch._dynamo.graph_break() goes."""
    if place.found.code != "graph-break-requested" or not isinstance(place.statement, ast.Expr):
        return None
    return place.edit(["pass"], "the call that requests the break goes")


def _while_compiling(place: _Place) -> Edit | None:
    """What only shows something is left out while the function is compiled."""
    if WHILE_COMPILING not in place.found.hint or not isinstance(place.statement, ast.Expr):
        return None
    start, end = place.statement.lineno, place.statement.end_lineno or place.statement.lineno
    own = [line.removeprefix(place.indent) for line in place.lines[start - 1: end]]
    if len(own) == 1:
        lines = [f"if not {WHILE_COMPILING}: {own[0]}"]
    elif any("\"\"\"" in line or "'''" in line for line in own):
        return None  # indentation is part of a string
    else:
        lines = [f"if not {WHILE_COMPILING}:", *(f"    {line}" for line in own)]
    return place.edit(lines, "left out while compiling: once it is compiled, it is not shown any more")


def _choice(place: _Place) -> Edit | None:
    """A branch on a tensor's value becomes torch.where of both values."""
    statement = place.statement
    if place.found.code != "data-dependent-branch" or not isinstance(statement, ast.If):
        return None
    why = "both values are computed, and one is chosen: they must be tensors (or numbers) of one shape"
    condition = place.text(statement.test)
    match statement.body, statement.orelse, place.following:
        case [ast.Assign(targets=[ast.Name(id=name)], value=a)], [ast.Assign(targets=[ast.Name(id=also)], value=b)], _:
            if name == also:
                return place.edit([f"{name} = torch.where({condition}, {place.text(a)}, {place.text(b)})"], why)
        case [ast.Assign(targets=[ast.Name(id=name)], value=a)], [], _ if _is_bound(place, name):
            return place.edit([f"{name} = torch.where({condition}, {place.text(a)}, {name})"], why)
        case [ast.Return(value=ast.expr() as a)], [ast.Return(value=ast.expr() as b)], _:
            return place.edit([f"return torch.where({condition}, {place.text(a)}, {place.text(b)})"], why)
        case [ast.Return(value=ast.expr() as a)], [], [ast.Return(value=ast.expr() as b) as last, *_]:
            return place.edit([f"return torch.where({condition}, {place.text(a)}, {place.text(b)})"], why, last)
    return None


def _is_bound(place: _Place, name: str) -> bool:
    """Whether the function has given the variable a value before the statement: it is a parameter, or assigned in the
    function's own block."""
    arguments = place.function.args
    parameters = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    earlier = [s for s in place.function.body if (s.end_lineno or 0) < place.statement.lineno]
    assigned = {t.id for s in earlier if isinstance(s, ast.Assign) for t in s.targets if isinstance(t, ast.Name)}
    return name in parameters or name in assigned


def _stays_a_tensor(place: _Place) -> Edit | None:
    """`name = x.item()` becomes `name = x`, and `name = int(x)` becomes `name = x.long()`."""
    statement = place.statement
    if place.found.code != "data-dependent-value" or not isinstance(statement, ast.Assign):
        return None
    why = "it stays a tensor of no dimensions, which works in arithmetic"
    match statement.value:
        case ast.Call(func=ast.Attribute(value=value, attr="item"), args=[], keywords=[]):
            pass
        case ast.Call(func=ast.Name(id="float"), args=[value], keywords=[]):
            pass
        case ast.Call(func=ast.Name(id="int"), args=[value], keywords=[]):
            value = ast.Call(ast.Attribute(value, "long"), [], [])  # a fraction is cut off, as int does
        case _:
            return None
    names = " = ".join(place.text(target) for target in statement.targets)
    return place.edit([f"{names} = {place.text(value)}"], why)


RULES: tuple[Callable[[_Place], Edit | None], ...] = (_requested, _while_compiling, _choice, _stays_a_tensor)
