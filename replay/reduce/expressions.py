"""Edits of expressions: replaced by a part or a constant, arguments and elements dropped, variables substituted."""
from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

from .source import Change, Edit, Project, Source, sources
from .statements import FunctionNode

Function = ast.FunctionDef | ast.AsyncFunctionDef


_HEAD = re.compile(r"(if|elif|while|assert|return)\b\s*|\w+\s*=(?!=)\s*")


def operation(text: str) -> str:
    """What an expression (or the head of a statement) does last: the name of what it calls, or its operator; "" for a
    name, or where that cannot be told."""
    text = _HEAD.sub("", text.strip()).rstrip(":")
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return ""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        node = node.operand
    if isinstance(node, (ast.Call, ast.Attribute)):
        called = node.func if isinstance(node, ast.Call) else node
        return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    kind: ast.AST = node.op if isinstance(node, (ast.BinOp, ast.BoolOp, ast.UnaryOp)) else node
    kind = kind.ops[0] if isinstance(kind, ast.Compare) else kind
    return "" if isinstance(kind, (ast.Name, ast.Constant)) else type(kind).__name__.lower()


# ---- replaced by a part ---------------------------------------------------------------------------------------------
def parts(project: Project) -> list[Change]:
    """An expression is replaced by one of its parts: a call by an argument or its object, `a + b` by `a`, ..."""
    found = [
        (source.span(node), source.replace(node, _enclosed(source, part)))
        for source in sources(project) for node in source.nodes
        if isinstance(node, ast.expr) and not _is_target(node) for part in _parts(node)
    ]  # fmt: skip
    return _largest_first(found)


def constants(project: Project) -> list[Change]:
    """A call, a comparison or an operation is replaced by a constant."""
    found = []
    for source in sources(project):
        for node in source.nodes:
            if isinstance(node, (ast.Compare, ast.BoolOp)) or (
                    isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
                found += [(source.span(node), source.replace(node, text)) for text in ("True", "False")]
            elif isinstance(node, _COMPUTED) and not _is_target(node):
                found += [(source.span(node), source.replace(node, text)) for text in ("1", "None")]
    return _largest_first(found)


_COMPUTED = (ast.Call, ast.BinOp, ast.IfExp, ast.Subscript, ast.Attribute)


def _largest_first(found: Iterable[tuple[tuple[int, int], Edit]]) -> list[Change]:
    return [(edit,) for span, edit in sorted(found, key=lambda pair: pair[0][0] - pair[0][1])]


def _is_target(node: ast.expr) -> bool:
    return not isinstance(getattr(node, "ctx", None), (ast.Load, type(None)))


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Call):
        yield from (a for a in node.args if not isinstance(a, ast.Starred))
        if isinstance(node.func, ast.Attribute):
            yield node.func.value
        yield from (k.value for k in node.keywords)
        if not node.args and not node.keywords:
            yield node.func
    elif isinstance(node, ast.BinOp):
        yield from (node.left, node.right)
    elif isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, ast.Compare):
        yield node.left
    elif isinstance(node, ast.BoolOp):
        yield from node.values
    elif isinstance(node, (ast.UnaryOp, ast.Await)):
        yield node.operand if isinstance(node, ast.UnaryOp) else node.value
    elif isinstance(node, (ast.Subscript, ast.Attribute, ast.NamedExpr)):
        yield node.value
    elif isinstance(node, (ast.List, ast.Tuple, ast.Set)) and len(node.elts) == 1:
        yield node.elts[0]
    elif isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        yield from (generator.iter for generator in node.generators)


_ATOMS = (ast.Name, ast.Constant, ast.Call, ast.Attribute, ast.Subscript, ast.List, ast.Dict, ast.Set)


def _enclosed(source: Source, node: ast.expr) -> str:
    text = source.segment(node)
    return text if isinstance(node, _ATOMS) or text.startswith("(") else f"({text})"


# ---- elements dropped -----------------------------------------------------------------------------------------------
def dropped(project: Project) -> list[Change]:
    """Arguments of calls, elements of displays, names of imports, decorators, bases, annotations are dropped."""
    changes: list[Change] = []
    for source in sources(project):
        for node in source.nodes:
            changes += [(edit,) for edit in _dropped(source, node)]
    return changes


def _dropped(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Call):
        yield from _from_list(source, [*node.args, *node.keywords])
    elif isinstance(node, (ast.List, ast.Set)):
        yield from _from_list(source, node.elts)
    elif isinstance(node, ast.Tuple) and len(node.elts) > 1 and not _is_target(node):
        if len(node.elts) > 2:
            yield from _from_list(source, node.elts)
        else:
            yield from (source.replace(node, source.segment(element)) for element in node.elts)
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values):
            if key is not None:
                yield _until_comma(source, source.span(key)[0], source.span(value)[1])
    elif isinstance(node, ast.ClassDef):
        yield from _from_list(source, [*node.bases, *node.keywords])
    elif isinstance(node, (ast.Import, ast.ImportFrom)) and len(node.names) > 1:
        for alias in node.names:
            yield _until_comma(source, *source.span(alias))  # type: ignore[arg-type]
    if isinstance(node, (*FunctionNode, ast.ClassDef)):
        for decorator in node.decorator_list:
            start, end = source.span(decorator)
            yield Edit(source.file, source.bytes.rfind(b"\n", 0, start) + 1, source.bytes.find(b"\n", end) + 1)
    if isinstance(node, FunctionNode) and node.returns is not None:
        start = source.bytes.rfind(b"->", 0, source.span(node.returns)[0])
        yield Edit(source.file, len(source.bytes[:start].rstrip()), source.span(node.returns)[1])
    if isinstance(node, ast.arg) and node.annotation is not None:
        yield source.replace(node, node.arg)
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        yield source.replace(node, f"{source.segment(node.target)} = {source.segment(node.value)}")
    if isinstance(node, ast.JoinedStr):
        yield source.replace(node, "''")


def _from_list(source: Source, items: Iterable[ast.expr | ast.keyword]) -> Iterator[Edit]:
    for item in items:
        yield _until_comma(source, *source.span(item))


def _until_comma(source: Source, start: int, end: int) -> Edit:
    """The removal of an element with the comma after it, or, for the last one, the comma before it."""
    after = end
    while source.bytes[after : after + 1].isspace():
        after += 1
    if source.bytes[after : after + 1] == b",":
        after += 1
        while source.bytes[after : after + 1] in (b" ", b"\t"):
            after += 1
        return Edit(source.file, start, after)
    before = len(source.bytes[:start].rstrip())
    if source.bytes[before - 1 : before] == b",":
        start = before - 1
    return Edit(source.file, start, end)


# ---- parameters and results, with all calls -------------------------------------------------------------------------
def coupled(project: Project) -> list[Change]:
    """A parameter is dropped with the arguments for it; an element of a returned tuple with the names it goes to."""
    changes: list[Change] = []
    for source in sources(project):
        for function in source.nodes:
            if isinstance(function, FunctionNode):
                changes += coupled_parameters(project, source, function)
                changes += _without_results(project, source, function)
    return changes


def coupled_parameters(
    project: Project, source: Source, function: Function, only: set[str] | None = None,
) -> Iterator[Change]:
    """Each parameter (of `only`) is dropped with the arguments for it."""
    parameters = function.args.args
    method = int(bool(parameters) and parameters[0].arg in ("self", "cls"))
    names = _called_as(project, function)
    defaults = dict(zip(reversed([p.arg for p in parameters]), reversed(function.args.defaults)))
    for position, parameter in enumerate(parameters):
        if position < method or (only is not None and parameter.arg not in only):
            continue
        end = source.span(defaults[parameter.arg] if parameter.arg in defaults else parameter)[1]
        edits = [_until_comma(source, source.span(parameter)[0], end)]
        for other in sources(project):
            for call in _calls(other, names):
                edits += _without_argument(other, call, position - method, parameter.arg)
        yield tuple(edits)


def _without_argument(source: Source, call: ast.Call, position: int, name: str) -> Iterator[Edit]:
    for keyword in call.keywords:
        if keyword.arg == name:
            yield _until_comma(source, *source.span(keyword))
    if position < len(call.args) and not any(isinstance(a, ast.Starred) for a in call.args):
        yield _until_comma(source, *source.span(call.args[position]))


def _called_as(project: Project, function: Function) -> set[str]:
    """The names by which a function may be called; a class for its `__init__`, any variable for a `forward`."""
    if function.name == "__init__":
        return {
            c.name for source in sources(project) for c in source.nodes
            if isinstance(c, ast.ClassDef) and function in c.body
        }
    if function.name in ("forward", "__call__"):
        return {function.name, "__call__"}
    return {function.name, *(name for source in sources(project) for name in _made_of(source, function.name))}


def _made_of(source: Source, name: str) -> Iterator[str]:
    """Variables that hold what a call makes of a function: `compiled = torch.compile(f)`."""
    for node in source.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name):
            if any(name in (getattr(a, "id", ""), getattr(a, "attr", "")) for a in node.value.args):
                yield node.targets[0].id


def _calls(source: Source, names: set[str]) -> Iterator[ast.Call]:
    known = {n.name for n in source.nodes if isinstance(n, (*FunctionNode, ast.ClassDef))}
    for node in source.nodes:
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Call) and function.args:  # torch.compile(f)(x)
            function = function.args[0]
        name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
        object_call = "__call__" in names and name not in known and (
            isinstance(function, ast.Name) or getattr(getattr(function, "value", None), "id", "") == "self")
        if name in names or object_call:
            yield node


def _without_results(project: Project, source: Source, function: Function) -> Iterator[Change]:
    returned = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and isinstance(n.value, ast.Tuple)]
    sizes = {len(t.elts) for t in returned}
    if len(sizes) != 1:
        return
    size = sizes.pop()
    for position in range(size):
        edits = [_without_element(source, t, position) for t in returned]
        for other in sources(project):
            for node in other.nodes:
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                    edits += [
                        _without_element(other, t, position) for t in node.targets
                        if isinstance(t, ast.Tuple) and len(t.elts) == size
                    ]  # fmt: skip
        yield tuple(edits)


def _without_element(source: Source, display: ast.Tuple, position: int) -> Edit:
    left = [source.segment(e) for i, e in enumerate(display.elts) if i != position]
    return source.replace(display, ", ".join(left) if len(left) != 1 else left[0])


# ---- variables and numbers ------------------------------------------------------------------------------------------
def substituted(project: Project) -> list[Change]:
    """A variable that is assigned once and read once is replaced by its value; a constant also where read often."""
    changes: list[Change] = []
    for source in sources(project):
        names = [n for n in source.nodes if isinstance(n, ast.Name)]
        stored = Counter(n.id for n in names if not isinstance(n.ctx, ast.Load))
        for node in source.nodes:
            if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
                continue
            name = node.targets[0].id
            reads = [n for n in names if n.id == name and isinstance(n.ctx, ast.Load)]
            if stored[name] == 1 and (len(reads) == 1 or isinstance(node.value, (ast.Constant, ast.Name))):
                value = _enclosed(source, node.value)
                changes.append((source.remove(node), *(source.replace(read, value) for read in reads)))
    return changes


def merged(project: Project) -> list[Change]:
    """A variable that the next statement, a `return` or a call, reads is replaced there by its value."""
    changes: list[Change] = []
    for source in sources(project):
        for block in source.blocks():
            for first, second in pairwise(block):
                if isinstance(first, ast.Assign) and isinstance(second, (ast.Return, ast.Expr, ast.Assign)):
                    changes += _merged(source, first, second)
    return changes


def _merged(source: Source, first: ast.Assign, second: ast.stmt) -> Iterator[Change]:
    target = first.targets[0]
    if len(first.targets) != 1 or not isinstance(target, ast.Name):
        return
    names = [n for n in ast.walk(second) if isinstance(n, ast.Name) and n.id == target.id]
    reads = [n for n in names if isinstance(n.ctx, ast.Load)]
    if len(reads) == 1:
        yield (source.remove(first), source.replace(reads[0], _enclosed(source, first.value)))


def single_results(project: Project) -> list[Change]:
    """The call of a function that only returns an expression is replaced by that expression."""
    changes: list[Change] = []
    for source in sources(project):
        for function in source.nodes:
            if isinstance(function, ast.FunctionDef) and len(function.body) == 1 and not function.decorator_list:
                only = function.body[0]
                if isinstance(only, ast.Return) and only.value is not None:
                    changes += _replaced_calls(source, function, only.value)
    return changes


def _replaced_calls(source: Source, function: ast.FunctionDef, value: ast.expr) -> Iterator[Change]:
    parameters = [a.arg for a in function.args.args]
    edits = [source.remove(function)]
    for node in source.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function.name:
            if len(node.args) != len(parameters) or node.keywords:
                return
            given = dict(zip(parameters, [_enclosed(source, a) for a in node.args]))
            edits.append(source.replace(node, f"({_with_names(source, value, given)})"))
    if len(edits) > 1:
        yield tuple(edits)


def _with_names(source: Source, value: ast.expr, given: dict[str, str]) -> str:
    start, end = source.span(value)
    content = source.bytes[start:end]
    names = [n for n in ast.walk(value) if isinstance(n, ast.Name) and n.id in given]
    for name in sorted(names, key=lambda n: source.span(n)[0], reverse=True):
        first, last = source.span(name)
        content = content[: first - start] + given[name.id].encode() + content[last - start :]
    return content.decode()


def same_numbers(project: Project) -> list[Change]:
    """All occurrences of one integer become smaller together: sizes that have to agree do."""
    changes: list[Change] = []
    numbers: dict[int, list[Edit]] = {}
    for source in sources(project):
        for node in _numbers(source):
            if isinstance(node.value, int):
                numbers.setdefault(node.value, []).append(source.replace(node, ""))
    for number, edits in sorted(numbers.items(), reverse=True):
        changes += [tuple(_with(edits, str(n))) for n in _smaller(number)]
    return changes


def single_numbers(project: Project) -> list[Change]:
    """Each number, and each string, becomes a simpler one."""
    changes: list[Change] = []
    for source in sources(project):
        for node in _numbers(source):
            simpler: Iterable[float] = _smaller(node.value) if isinstance(node.value, int) else (
                () if node.value in (0.0, 0.5, 1.0) else (1.0, 0.5))
            changes += [(source.replace(node, str(n)),) for n in simpler]
    return changes


def _numbers(source: Source) -> Iterator[ast.Constant]:
    for node in source.nodes:
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield node


def _smaller(number: int) -> Iterator[int]:
    yield from (n for n in (1, 2, 4, 8) if n < number)
    if number > 16:
        yield number // 2


def _with(edits: list[Edit], text: str) -> Iterator[Edit]:
    return (Edit(e.file, e.start, e.end, text) for e in edits)
