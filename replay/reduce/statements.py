"""Edits of statements: removed, replaced by what they contain, functions put where they are called."""
from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping, Sequence

from .source import Change, Edit, Project, Source, sources

FunctionNode = (ast.FunctionDef, ast.AsyncFunctionDef)


def statements_inside(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements directly inside of a node, those of its handlers and cases included."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        elif not isinstance(child, ast.expr):
            yield from statements_inside(child)


def removals(project: Project, depth: int) -> list[Change]:
    """Every statement at a depth (0: of the module) is removed; what comes last, which others rarely need, first."""
    changes: list[Change] = []
    for source in sources(project):
        level: list[ast.AST] = [source.tree]
        for _ in range(depth):
            level = [inner for node in level for inner in statements_inside(node)]
        found = [inner for node in level for inner in statements_inside(node) if not isinstance(inner, ast.Pass)]
        changes += [(source.remove(statement),) for statement in reversed(found)]
    return changes


def deepest(project: Project) -> int:
    """The number of levels that statements have."""

    def levels(node: ast.AST) -> int:
        return max((1 + levels(inner) for inner in statements_inside(node)), default=0)

    return max(levels(source.tree) for source in sources(project))


def unreached(project: Project, reached: Mapping[str, frozenset[int]]) -> list[Change]:
    """Everything that the run did not reach (`reached`: lines by file) is removed: statements, whole functions."""
    changes: list[Change] = []
    for source in sources(project):
        lines = reached.get(source.file)
        if lines is not None:
            changes += _unreached(source, source.tree, lines)
    return changes


def _unreached(source: Source, node: ast.AST, lines: frozenset[int]) -> Iterator[Change]:
    for statement in statements_inside(node):
        body = getattr(statement, "body", None) if isinstance(statement, FunctionNode) else [statement]
        if not _has(body or [], lines):
            yield (source.remove(statement),)
        else:
            yield from _unreached(source, statement, lines)


def _has(statements: Sequence[ast.stmt], lines: frozenset[int]) -> bool:
    return any(not lines.isdisjoint(range(s.lineno, (s.end_lineno or s.lineno) + 1)) for s in statements)


# ---- replaced by what they contain ----------------------------------------------------------------------------------
def unwrapped(project: Project) -> list[Change]:
    """Compound statements are replaced by their contents: a branch, one turn of a loop, the body of a `with`."""
    return [
        (Edit(source.file, *source.lines_of(node), text),)
        for source in sources(project) for node in source.nodes if isinstance(node, ast.stmt)
        for text in _contents(source, node)
    ]  # fmt: skip


def _contents(source: Source, node: ast.stmt) -> Iterator[str]:
    if isinstance(node, (ast.For, ast.AsyncFor)):
        first = f"{source.segment(node.target)} = next(iter({source.segment(node.iter)}))"
        yield _block(source, node, node.body, first)
        yield _block(source, node, node.body)
    elif isinstance(node, ast.With):
        named = [i for i in node.items if i.optional_vars is not None]
        if named:
            entered = "\n".join(
                f"{source.segment(i.optional_vars)} = ({source.segment(i.context_expr)}).__enter__()"  # type: ignore[arg-type]
                for i in named)
            yield _block(source, node, node.body, entered)
        yield _block(source, node, node.body)
    elif isinstance(node, (ast.If, ast.While, ast.Try)):
        yield _block(source, node, node.body)
        for handler in getattr(node, "handlers", ()):
            yield _block(source, node, handler.body)
        orelse = node.orelse
        if orelse and not (len(orelse) == 1 and isinstance(orelse[0], ast.If)):  # `elif`: as text, not a block
            yield _block(source, node, orelse)
            yield from _without_else(source, node)


def _without_else(source: Source, node: ast.If | ast.While | ast.Try) -> Iterator[str]:
    """The statement without its `else`."""
    if isinstance(node, ast.If):
        start = source.lines_of(node)[0]
        end = source.span(node.body[-1])[1]
        yield source.bytes[start:end].decode() + "\n"


def _block(source: Source, outer: ast.stmt, block: Sequence[ast.stmt], first: str = "") -> str:
    """The text of a block with the indentation of the statement around it; `first` stands above it."""
    text = text_of(source, block)
    return textwrap.indent(f"{first}\n{text}" if first else text, source.indentation(outer))


def text_of(source: Source, block: Sequence[ast.stmt]) -> str:
    """The text of a block, without indentation."""
    start, end = source.lines_of(block[0])[0], source.lines_of(block[-1])[1]
    text = textwrap.dedent(source.bytes[start:end].decode())
    return text if text.endswith("\n") else text + "\n"


# ---- functions where they are called --------------------------------------------------------------------------------
def inlined(project: Project) -> list[Change]:
    """A function that is called by name once is put where it is called: `f(a)`, `x = f(a)`, `return f(a)`."""
    changes: list[Change] = []
    for source in sources(project):
        for function in source.nodes:
            if isinstance(function, ast.FunctionDef) and not function.decorator_list and _is_simple(function):
                calls = list(_calls(source.tree, function.name))
                uses = sum(isinstance(n, ast.Name) and n.id == function.name for n in source.nodes)
                if len(calls) == uses == 1:
                    changes += _inlined(source, function, *calls[0])
    return changes


def _is_simple(function: ast.FunctionDef) -> bool:
    """Whether the function's statements could stand elsewhere: at most one `return`, the last statement."""
    inside = [n for statement in function.body for n in ast.walk(statement)]
    if any(isinstance(n, (ast.Yield, ast.YieldFrom, ast.Nonlocal, ast.Await)) for n in inside):
        return False
    returns = [n for n in inside if isinstance(n, ast.Return)]
    arguments = function.args
    plain = not (arguments.vararg or arguments.kwarg or arguments.posonlyargs)
    return plain and (not returns or returns == [function.body[-1]])


def _calls(tree: ast.Module, name: str) -> Iterator[tuple[ast.stmt, ast.Call]]:
    """Statements whose value is a call of `name`, and the call."""
    for node in ast.walk(tree):
        value = getattr(node, "value", None)
        if isinstance(node, (ast.Expr, ast.Assign, ast.Return)) and isinstance(value, ast.Call):
            if isinstance(value.func, ast.Name) and value.func.id == name:
                yield node, value


def _inlined(source: Source, function: ast.FunctionDef, statement: ast.stmt, call: ast.Call) -> Iterator[Change]:
    bound = _bound(source, function, call)
    if bound is None or any(node is statement for node in ast.walk(function)):
        return
    lines = [f"{name} = {value}" for name, value in bound if name != value]
    body, last = list(function.body), function.body[-1]
    result = None
    if isinstance(last, ast.Return):
        body, result = body[:-1], last.value
    lines += text_of(source, body).splitlines() if body else []
    value = source.segment(result) if result is not None else "None"
    if isinstance(statement, ast.Assign):
        targets = " = ".join(source.segment(target) for target in statement.targets)
        lines.append(f"{targets} = {value}")
    elif isinstance(statement, ast.Return):
        lines.append(f"return {value}")
    elif result is not None:
        lines.append(value)
    text = textwrap.indent("\n".join(lines) + "\n", source.indentation(statement))
    yield (Edit(source.file, *source.lines_of(statement), text), source.remove(function))


def _bound(source: Source, function: ast.FunctionDef, call: ast.Call) -> list[tuple[str, str]] | None:
    """The parameters and what the call gives for them, as text; None if that cannot be told."""
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return None
    parameters = [a.arg for a in function.args.args]
    if len(call.args) > len(parameters):
        return None
    defaults = dict(zip(reversed(parameters), [source.segment(d) for d in reversed(function.args.defaults)]))
    defaults |= {a.arg: source.segment(d) for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults) if d}
    given = dict(zip(parameters, [source.segment(a) for a in call.args]))
    given |= {k.arg: source.segment(k.value) for k in call.keywords if k.arg is not None}
    names = [*parameters, *(a.arg for a in function.args.kwonlyargs)]
    values = defaults | given
    return [(name, values[name]) for name in names] if all(name in values for name in names) else None


def unclassed(project: Project) -> list[Change]:
    """A class that has one method, which does not look at its object, is replaced by a function: `C().f` by `f`."""
    changes: list[Change] = []
    for source in sources(project):
        for node in source.nodes:
            if isinstance(node, ast.ClassDef) and len(node.body) == 1 and isinstance(node.body[0], ast.FunctionDef):
                changes += _unclassed(source, node, node.body[0])
    return changes


def _unclassed(source: Source, owner: ast.ClassDef, method: ast.FunctionDef) -> Iterator[Change]:
    parameters = method.args.args
    inside = {n.id for statement in method.body for n in ast.walk(statement) if isinstance(n, ast.Name)}
    if not parameters or parameters[0].arg in inside or method.decorator_list:
        return
    start = source.span(parameters[0])[0]
    following = parameters[1:] + method.args.kwonlyargs
    end = source.span(following[0])[0] if following and not method.args.kwonlyargs else source.span(parameters[0])[1]
    first, last = source.lines_of(method)
    text = (source.bytes[first:start] + source.bytes[end:last]).decode()
    definition = textwrap.indent(textwrap.dedent(text), source.indentation(owner))
    edits = [Edit(source.file, *source.lines_of(owner), definition)]
    forward = method.name in ("forward", "__call__")
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and node.attr == method.name and _makes(node.value, owner.name):
            edits.append(source.replace(node, method.name))
        elif forward and isinstance(node, ast.expr) and _makes(node, owner.name):
            edits.append(source.replace(node, method.name))
    yield tuple(edits)


def _makes(node: ast.expr, name: str) -> bool:
    """Whether an expression constructs an object of that class."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


# ---- modules beside the script --------------------------------------------------------------------------------------
def absorbed(project: Project) -> list[Change]:
    """A module beside the script is put into it: `from helper import f` becomes the text of helper.py."""
    changes: list[Change] = []
    script, *others = list(sources(project))
    for other in others:
        name = other.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        edits: list[Edit] = []
        for node in script.nodes:
            if isinstance(node, ast.ImportFrom) and node.module == name and not node.level:
                aliases = [f"{a.asname} = {a.name}\n" for a in node.names if a.asname and a.name != "*"]
                edits.append(Edit(script.file, *script.lines_of(node), "" if edits else other.text + "".join(aliases)))
        edits += _through_module(script, name, other.text if not edits else "")
        if edits:
            changes.append((*edits, Edit(other.file, 0, len(other.bytes))))
    return changes


def _through_module(script: Source, name: str, text: str) -> Iterator[Edit]:
    """`import helper` and `helper.f`: the names of the module are the script's."""
    aliases = set()
    for node in script.tree.body:
        if isinstance(node, ast.Import) and [a.name for a in node.names] == [name]:
            aliases.add(node.names[0].asname or name)
            yield Edit(script.file, *script.lines_of(node), text)
            text = ""
    for found in script.nodes:
        if isinstance(found, ast.Attribute) and isinstance(found.value, ast.Name) and found.value.id in aliases:
            yield script.replace(found, found.attr)


def without_empty_files(project: Project) -> Project:
    """The project without modules that have become empty."""
    script, *others = project.files
    return Project((script, *((file, text) for file, text in others if text.strip())))
