"""Random programs: templates with typed holes, filled in from a seed.

`grammar.py` and `grammar_rare.py` hold the templates, one table for expressions by kind and one for statements; adding
a feature of the language is adding a line there. Every second program also uses those of `grammar_torch.py` and
`grammar_rare_torch.py`, and every eighth of these those of `grammar_models.py`.

A hole is `<KIND>` (an expression of that kind), `<KIND.own>` (a variable that the function may assign), `<KIND.var>`
(any variable), `<KIND.new>` (a new variable, known after the line), `<KIND|name:KIND,...>` (an expression that may use
them too), `<BODY>` (an indented block), `<BODY name:KIND,...>` (a block that knows those names), `<FUNCTION KIND
name:KIND,...>` (the body of a function that returns KIND) and `<GENERATOR name:KIND,...>` (of one that yields tensors).
"""
from __future__ import annotations

import ast
import contextlib
import itertools
import random
import re
import warnings
from dataclasses import dataclass, field

from .grammar import EXPRESSIONS, LEAVES, STATEMENTS, Statement
from .grammar_models import MODEL_EXPRESSIONS, MODEL_STATEMENTS
from .grammar_rare import RARE_EXPRESSIONS, RARE_STATEMENTS
from .grammar_rare_torch import RARE_TORCH_EXPRESSIONS, RARE_TORCH_STATEMENTS
from .grammar_torch import TORCH_EXPRESSIONS, TORCH_LEAVES, TORCH_STATEMENTS
from .prelude import MARK, PRELUDE, make_calls

_HOLE = re.compile(r"<([A-Z]\w*)(?:\.(own|new|var)|\|([^>]*))?>")
_BLOCK = re.compile(r"^(\s*)<(BODY|FUNCTION [A-Z]\w*|GENERATOR)((?: [^>]*)?)>$")


@dataclass
class Scope:
    """Names by kind. `own` may be assigned here; those of `outer` scopes are read (they belong to other functions)."""

    own: dict[str, list[str]] = field(default_factory=dict)
    outer: Scope | None = None
    returns: str = "T"
    in_loop: bool = False
    generator: bool = False

    def names(self, kind: str) -> list[str]:
        """Everything of that kind that can be read."""
        outer = self.outer.names(kind) if self.outer is not None else []
        return outer + self.own.get(kind, [])

    def block(self, in_loop: bool | None = None) -> Scope:
        """A nested block of the same function: what it defines is not known after it."""
        inside = self.in_loop if in_loop is None else in_loop
        own = {kind: list(names) for kind, names in self.own.items()}
        return Scope(own, self.outer, self.returns, inside, self.generator)

    def function(self, returns: str, generator: bool = False) -> Scope:
        """A function inside this one."""
        return Scope({}, self, returns, False, generator)

    def add(self, kind: str, name: str) -> None:
        """A variable of the function; a name has one kind at a time."""
        for names in self.own.values():
            if name in names:
                names.remove(name)
        self.own.setdefault(kind, []).append(name)


def merged(*tables: dict[str, list[str]]) -> dict[str, list[str]]:
    """One table of the templates of several."""
    together: dict[str, list[str]] = {}
    for table in tables:
        for kind, templates in table.items():
            together[kind] = together.get(kind, []) + templates
    return together


class Maker:
    """Fills templates in. One seed gives one program."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)
        self.counter = 0
        self.budget = 0
        self.leaves = LEAVES | TORCH_LEAVES
        self.expressions = merged(EXPRESSIONS, RARE_EXPRESSIONS)
        self.statements = STATEMENTS + RARE_STATEMENTS
        if self.random.random() < 0.5:
            self.expressions = merged(self.expressions, TORCH_EXPRESSIONS, RARE_TORCH_EXPRESSIONS)
            self.statements = self.statements + TORCH_STATEMENTS + RARE_TORCH_STATEMENTS
            if self.random.random() < 0.125:
                self.expressions = merged(self.expressions, MODEL_EXPRESSIONS)
                self.statements = self.statements + MODEL_STATEMENTS

    def program(self) -> str:
        """The text of a module with `f`, `make_calls()` and the state that `f` may change."""
        self.budget = self.random.randint(4, 16)
        scope = Scope()
        names = {"T": ["x", "y"], "N": ["n", "k"], "B": ["flag"], "S": ["s"], "LT": ["xs"], "LN": ["ns"], "DN": ["dn"],
                 "DT": ["dt"], "O": ["o"], "F": ["v"], "V": ["r"]}  # fmt: skip
        for kind, own in names.items():
            scope.own[kind] = list(own)
        body = self.body(scope, self.random.randint(3, 8)) + self.result(scope)
        lines = ["def f(x, y, n, k, flag, s, xs, ns, dn, dt, o, v, r):", *indented(body)]
        return "\n".join([PRELUDE, MARK, *lines, "", make_calls(self.random)]) + "\n"

    def result(self, scope: Scope) -> list[str]:
        """The last line of `f`: a handful of what there is."""
        kinds = self.random.choices(["T", "N", "LT", "S", "DN", "F", "B", "O", "G", "C"], k=self.random.randint(1, 4))
        names = [self.random.choice(scope.names(kind) or ["x"]) for kind in kinds]
        extra = self.expression(self.random.choice(["T", "T", "LT", "S", "P"]), scope, 2)
        return [f"return {', '.join([*names, extra])}"]

    # ---- statements ------------------------------------------------------------------------------------------------
    def body(self, scope: Scope, count: int, known: str = "") -> list[str]:
        """`count` statements or fewer."""
        for pair in filter(None, known.strip().split(",")):
            name, kind = pair.strip().split(":")
            scope.add(kind, name)
        lines: list[str] = []
        for _ in range(count):
            if self.budget <= 0 and lines:
                break
            self.budget -= 1
            lines += self.statement(scope)
        return lines

    def statement(self, scope: Scope) -> list[str]:
        """One statement, compound ones with their blocks."""
        while True:
            chosen: Statement = self.random.choices(self.statements, [s.weight for s in self.statements])[0]
            if chosen.inside == "loop" and not scope.in_loop:
                continue
            if chosen.inside == "generator" and not scope.generator:
                continue
            if chosen.compound and self.budget <= 0:
                continue
            owned = re.findall(r"<([A-Z]\w*)\.own>", chosen.text)
            if all(scope.own.get(kind) for kind in owned):
                return self.filled(chosen.text, scope)

    def filled(self, text: str, scope: Scope) -> list[str]:
        """A statement's template with its holes filled, line by line."""
        lines: list[str] = []
        fresh: dict[str, str] = {}
        loop = False
        for line in text.split("\n"):
            block = _BLOCK.match(line)
            if block is None:
                if not line.startswith(" "):
                    loop = line.startswith(("for ", "while "))
                made, new = self.line(line, scope, fresh)
                lines.append(made)
                for kind, name in new:
                    scope.add(kind, name)
                continue
            indent, what, known = block.groups()
            for marker, name in fresh.items():
                known = known.replace(marker, name)
            if what == "BODY":
                inner = scope.block(True if loop else None)
                made_lines = self.body(inner, self.random.randint(1, 3), known)
            else:
                generator = what == "GENERATOR"
                inner = scope.function("None" if generator else what.split()[1], generator)
                made_lines = self.body(inner, self.random.randint(1, 3), known)
                if generator:
                    made_lines.append(f"yield {self.expression('T', inner, 2)}")
                else:
                    made_lines.append(f"return {self.expression(inner.returns, inner, 2)}")
            lines += [indent + made_line for made_line in made_lines]
        return lines

    def line(self, text: str, scope: Scope, fresh: dict[str, str]) -> tuple[str, list[tuple[str, str]]]:
        """One line, and the variables that it defines."""
        new: list[tuple[str, str]] = []
        for marker, name in fresh.items():
            text = text.replace(marker, name)

        def fill(match: re.Match[str]) -> str:
            kind, how, extra = match.groups()
            if how == "new":
                name = self.fresh(kind)
                new.append((kind, name))
                fresh.setdefault(f"${kind}", name)
                return name
            if how == "own":
                return self.random.choice(scope.own[kind])
            return self.operand(match, scope, 1 if extra else 2)

        return _HOLE.sub(fill, text), new

    def fresh(self, kind: str) -> str:
        """A variable name, sometimes one that was used before."""
        if self.counter and self.random.random() < 0.15:
            return f"{kind.lower()}{self.random.randint(1, self.counter)}"
        self.counter += 1
        return f"{kind.lower()}{self.counter}"

    # ---- expressions -----------------------------------------------------------------------------------------------
    def expression(self, kind: str, scope: Scope, depth: int) -> str:
        """An expression of a kind; at depth 0 a variable or a constant."""
        names = scope.names(kind)
        if names and self.random.random() < (0.85 if depth <= 0 else 0.3):
            return self.random.choice(names[-6:] if self.random.random() < 0.6 else names)
        if depth <= 0:
            return self.random.choice(self.leaves[kind])
        template = self.random.choice(self.expressions[kind])

        return _HOLE.sub(lambda match: self.operand(match, scope, depth - 1), template)

    def operand(self, match: re.Match[str], scope: Scope, depth: int) -> str:
        """What is put for a hole in an expression, in parentheses where it needs them."""
        kind, how, extra = match.groups()
        if how == "var":
            return self.random.choice(scope.names(kind))
        inner = Scope({}, scope) if extra else scope
        for pair in extra.split(",") if extra else ():
            name, extra_kind = pair.split(":")
            inner.add(extra_kind.strip(), name.strip())
        text = self.expression(kind, inner, depth)
        node = ast.parse(text, mode="eval").body
        number = isinstance(node, ast.Constant) and isinstance(node.value, (int, float))
        attribute = match.string[match.end() : match.end() + 1] == "."
        return text if isinstance(node, _ATOMS) and not (number and attribute) else f"({text})"


_ATOMS = (
    ast.Name, ast.Constant, ast.Call, ast.Attribute, ast.Subscript, ast.List, ast.Dict, ast.Set, ast.ListComp,
    ast.DictComp, ast.SetComp, ast.JoinedStr,
)  # fmt: skip


def indented(lines: list[str]) -> list[str]:
    """One level deeper."""
    return ["    " + line for line in lines]


def program(seed: int) -> str:
    """The program of a seed: the first attempt that Python accepts."""
    for attempt in itertools.count():
        with contextlib.suppress(SyntaxError), warnings.catch_warnings():  # 3.11: quotes in f-strings
            warnings.simplefilter("ignore")
            text = f"# seed {seed}\n" + Maker(f"{seed}.{attempt}").program()
            compile(text.partition(MARK)[2], "<program>", "exec", dont_inherit=True)
            return text
    raise AssertionError("unreachable")
