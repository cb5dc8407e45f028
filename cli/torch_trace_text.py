"""Reads the texts of PyTorch's structured trace into records: graphs, breaks, bytecode, generated code."""
from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..artifacts.facts import LIBRARY_CALL
from ..artifacts.records import (
    Break,
    Bytecode,
    CodeLine,
    Graph,
    Instruction,
    Kernel,
    Location,
    Node,
    NodeRef,
    Schedule,
    ScheduledGroup,
    TensorMeta,
    Wrapper,
    ref,
)
from ..dependencies import msgspec
from .launch import PACKAGE, ROOMS

DTYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32",
    "i16": "int16", "i8": "int8", "u8": "uint8", "b8": "bool", "c64": "complex64", "c128": "complex128",
}
_LAUNCH = os.path.join(PACKAGE, "cli", "launch.py")
_TENSOR = re.compile(r"(\w+)\[([^\]]*)\](?:\[([^\]]*)\])?(\w+(?::\d+)?)?")
_PLACE = re.compile(r"\s*# File: (.+):(\d+) in ([^,]+), code: (.*)")
_BREAK = re.compile(r"Graph break in user code at (.+):(\d+)\nGraph Break Reason: (.*?)(?:\n\n|$)(.*)", re.DOTALL)
_KIND = re.compile(
    r"(?:^|\n)([^\n]+)\n\s+Explanation: (.*?)(?=\n\s+(?:Hint|Developer debug context):|\n\n|$)", re.DOTALL)
_KERNEL = re.compile(r"(\w+) = async_compile\.(cpp_pybinding|triton)\((?:\[[^\]]*\]|'[^']*'), r?'''(.*?)'''", re.DOTALL)


def graph(text: str, name: str) -> Graph:
    """A graph from the Python that `print_readable` writes; sizes, strides and devices come from its annotations.
    Graphs inside of it are classes in its class."""
    text = text.replace("class <lambda>(", "class GraphModule(")
    module = next(n for n in ast.parse(text).body if isinstance(n, ast.ClassDef))
    return msgspec.structs.replace(_graph(module, name, text.splitlines()), notes=("read from stock's text",))


def _graph(module: ast.ClassDef, name: str, lines: Sequence[str]) -> Graph:
    function = next(n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == "forward")
    inside = {n.name: n for n in module.body if isinstance(n, ast.ClassDef)}
    known: dict[str, str] = {}
    nodes: list[Node] = []
    for argument in function.args.args[1:]:
        known[argument.arg] = argument.arg
        nodes.append(Node(argument.arg, "placeholder", argument.arg, value=_meta(argument.annotation)))
    typed = {one.target.id: _meta(one.annotation) for one in function.body
             if isinstance(one, ast.AnnAssign) and one.value is None and isinstance(one.target, ast.Name)}
    place: Location | None = None
    read = function.lineno
    for statement in function.body:
        if inputs := _unpacked(statement):  # of a joint graph, whose arguments are two lists
            known = {name: name for name in inputs}
            nodes = [Node(name, "placeholder", name, value=typed.get(name)) for name in inputs]
            continue
        while read < statement.lineno:
            found = _PLACE.match(lines[read])
            place = Location(found[1], int(found[2]), found[3]) if found else place
            read += 1
        node = _node(statement, known, place)
        if node is not None:
            nodes.append(node)
    held = [node for node in nodes if node.op == "get_attr" and node.target in inside]
    return Graph(name, tuple(nodes), inner={node.id: _graph(inside[node.target], node.id, lines) for node in held})


def _unpacked(statement: ast.stmt) -> list[str]:
    """The names in `a, b, = fx_pytree.tree_flatten_spec([primals, tangents], self._in_spec)`."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return []
    target = statement.targets[0]
    if not isinstance(target, ast.Tuple) or not ast.unparse(statement.value.func).endswith("tree_flatten_spec"):
        return []
    return [one.id for one in target.elts if isinstance(one, ast.Name)]


def _node(statement: ast.stmt, known: dict[str, str], place: Location | None) -> Node | None:
    stack = (place,) if place else ()
    if isinstance(statement, ast.Return):
        values = () if statement.value is None else (_tree(statement.value, known),)
        return Node("output", "output", "output", values)
    target = statement.target if isinstance(statement, ast.AnnAssign) else (
        statement.targets[0] if isinstance(statement, ast.Assign) else None)
    if not isinstance(target, ast.Name) or not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return None
    value = statement.value
    if value is None or (isinstance(value, ast.Constant) and value.value is None):
        return None  # `x = None` ends the life of a name
    if isinstance(value, ast.Name) and value.id in known:
        known[target.id] = known[value.id]
        return None
    known[target.id] = target.id
    meta = _meta(statement.annotation) if isinstance(statement, ast.AnnAssign) else None
    if isinstance(value, ast.Attribute) and ast.unparse(value).startswith("self."):
        return Node(target.id, "get_attr", ast.unparse(value).removeprefix("self."), value=meta, stack=stack)
    if not isinstance(value, ast.Call):
        return Node(target.id, "call_function", _operator(value), _operands(value, known), value=meta, stack=stack)
    args = tuple(_tree(argument, known) for argument in value.args)
    kwargs = {keyword.arg or "**": _tree(keyword.value, known) for keyword in value.keywords}
    function = value.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id in known:
        own = NodeRef(known[function.value.id])
        return Node(target.id, "call_method", function.attr, (own, *args), kwargs, meta, stack)
    return Node(target.id, "call_function", ast.unparse(function), args, kwargs, meta, stack)


_OPERATORS = {
    "Mult": "mul", "Div": "truediv", "MatMult": "matmul", "BitAnd": "and_", "BitOr": "or_", "BitXor": "xor",
    "USub": "neg", "UAdd": "pos", "Not": "not_", "GtE": "ge", "LtE": "le", "NotEq": "ne",
}
"""Python's name of an operator in a syntax tree -> its function in `operator`, where that is another."""


def _operator(value: ast.expr) -> str:
    kind = value.ops[0] if isinstance(value, ast.Compare) else getattr(value, "op", None)
    if isinstance(kind, ast.operator | ast.unaryop | ast.cmpop):
        name = type(kind).__name__
        return f"operator.{_OPERATORS.get(name, name.lower())}"
    named = {ast.Subscript: "operator.getitem", ast.Attribute: "builtins.getattr"}
    return named.get(type(value), type(value).__name__.lower())


def _operands(value: ast.expr, known: Mapping[str, str]) -> tuple[Any, ...]:
    match value:
        case ast.BinOp(left=left, right=right):
            return _tree(left, known), _tree(right, known)
        case ast.UnaryOp(operand=operand):
            return (_tree(operand, known),)
        case ast.Compare(left=left, comparators=[right]):
            return _tree(left, known), _tree(right, known)
        case ast.Subscript(value=base, slice=index):
            return _tree(base, known), _tree(index, known)
        case ast.Attribute(value=base, attr=name):
            return _tree(base, known), name
    return (ast.unparse(value),)


def _tree(value: ast.expr, known: Mapping[str, str]) -> Any:
    if isinstance(value, ast.Name) and value.id in known:
        return NodeRef(known[value.id])
    if isinstance(value, ast.Tuple | ast.List):
        return [_tree(item, known) for item in value.elts]
    match value:
        case ast.Call(func=ast.Name(id="slice"), args=parts) if len(parts) == 3:
            return {"slice": [_tree(part, known) for part in parts]}
        case ast.Call(func=ast.Name(id="device") | ast.Attribute(attr="device"), keywords=[_, *_]):
            return {"torch": _device(value)}
        case ast.Attribute(value=ast.Name(id="torch")):
            return {"torch": ast.unparse(value)}
        case ast.Name(id="inf" | "nan"):
            return {"float": value.id}
        case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id="inf")):
            return {"float": "-inf"}
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value="inf" | "-inf" | "nan" as number)]):
            return {"float": number}
        case ast.Constant(value=constant) if constant is Ellipsis:
            return {"python": "..."}
    try:
        constant = ast.literal_eval(value)
    except ValueError:
        return ast.unparse(value)
    return constant if isinstance(constant, (bool, int, float, str, type(None))) else repr(constant)


def _device(call: ast.Call) -> str:
    """`cuda:0` of `device(type='cuda', index=0)`."""
    parts = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    return f"{parts['type']}:{parts['index']}" if "index" in parts else str(parts.get("type", "cpu"))


def _meta(annotation: ast.expr | None) -> TensorMeta | None:
    found = _TENSOR.match(annotation.value) if isinstance(annotation, ast.Constant) and isinstance(
        annotation.value, str) else None
    if not found:
        return None
    dtype, shape, stride, device = found.groups()
    return TensorMeta(DTYPES.get(dtype, dtype), _sizes(shape), _sizes(stride or ""), device or "cpu")


def _sizes(text: str) -> tuple[int | str, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(int(part) if part.lstrip("-").isdigit() else part for part in parts)


def skips_frame(text: str) -> bool:
    """Whether the whole frame runs in eager after this break."""
    return "Skipping the function and falling back to eager" in text


_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_(\d+)")


def origin(function: str, file: str) -> str:
    """What `Frame.origin` and `Break.resumes` call the continuation of a function after a break: here its name, which
    has the function's and the line; "" for another function."""
    match = _RESUMED.fullmatch(function)
    return f"{file}:{match[1]}+{match[2]}" if match else ""


def graph_break(number: int, text: str, function: str = "", in_file: str = "", seconds: float = 0.0) -> Break:
    """A graph break from stock's report of it, that `function` met, whose tracing was thrown away after `seconds`."""
    found = _BREAK.match(text)
    if not found:
        return Break(f"b{number}", "stock", text.strip(), "", Location("?", -1), "")
    file, line, headline, detail = found.groups()
    detail = f"{headline}\n{detail}"
    kind = _KIND.search(detail)
    hint = re.search(r"Hint: (.*)", detail)
    title = (kind[1] if kind else headline).strip()
    code = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    calls = detail.partition("User code traceback:")[2].partition("\nTraceback (most recent call last)")[0]
    frames = re.findall(r'File "(.+)", line (\d+), in (\S+)', calls)
    inner = next((name for where, at, name in reversed(frames) if (where, at) == (file, line)), "")
    own = _RESUMED.sub(r"\1", function)
    at = next((at for where, at, name in reversed(frames) if (where, name) == (in_file, own)), line)
    resume = "" if skips_frame(text) else f"torch_dynamo_resume_in_{own or inner or 'this_function'}_at_{at}"
    return Break(f"b{number}", code, " ".join(kind[2].split()) if kind else title, hint[1] if hint else "",
                 Location(file, int(line), inner), _source_line(file, int(line)), resume=resume,
                 resumes=(origin(resume, in_file or file),) if resume else (), seconds=seconds)


def _source_line(file: str, line: int) -> str:
    try:
        with open(file, encoding="utf-8") as source:
            return next((text.strip() for number, text in enumerate(source, 1) if number == line), "")
    except (OSError, UnicodeDecodeError):
        return ""


def locations(stack: Sequence[Mapping[str, Any]], files: Mapping[int, str]) -> tuple[Location, ...]:
    """The program's part of a stack of the trace, whose file names are numbers into the table of its strings."""
    named = [Location(files.get(f["filename"], "?"), f["line"], f["name"]) for f in stack]
    launched = [number for number, place in enumerate(named) if place.file.startswith(_LAUNCH)]
    if launched:  # what is outside of it has started the program, and is none of its frames
        named = named[launched[-1] + 1:]
    return tuple(place for place in named if not place.file.startswith(ROOMS) and "/torch/" not in place.file)


def wrapper(text: str) -> Wrapper:
    """Inductor's output code, whole."""
    return Wrapper("", "python", tuple(_lines(text)))


def kernels(text: str) -> Iterator[Kernel]:
    """The kernels that stand as strings in the output code."""
    for name, kind, source in _KERNEL.findall(text):
        language = "cpp" if kind == "cpp_pybinding" else "triton"
        yield Kernel(name, language, tuple(_lines(source.strip("\n"))), (name,))


def schedule(text: str, graph: str, kernels: Collection[str], code: str, nodes: set[str]) -> Schedule:
    """The calls of the generated `code`, in their order, from Inductor's mapping of them to the `nodes` of `graph`, a
    pass; what is not among `kernels` is a library's. The mapping may have calls of code that was written before."""
    found: dict[str, list[str]] = msgspec.json.decode(text).get("cppCodeToPost", {})
    calls = sorted((int(number), name, computed) for key, computed in found.items()
                   for name, _, number in (key.rpartition(":"),)
                   if name in kernels or (name in code and nodes & set(computed)))
    return Schedule(tuple(
        ScheduledGroup(f"call{number}", "loops" if name in kernels else "extern", (), name,
                       origins=tuple(ref("passes", node, graph) for node in dict.fromkeys(nodes)))
        for number, name, nodes in calls))


def called(code: str, kernels: Collection[str]) -> Schedule:
    """The calls that generated code makes, in their order, where the mapping names none: without their nodes."""
    found = []
    for line in code.split("\n"):
        if library := LIBRARY_CALL.match(line):
            found.append(("extern", library[1]))
        elif (kernel := _KERNEL_CALL.match(line)) and kernel[1] in kernels:
            found.append(("loops", kernel[1]))
    return Schedule(tuple(ScheduledGroup(f"call{number}", kind, (), name)
                          for number, (kind, name) in enumerate(found, 1)))


_KERNEL_CALL = re.compile(r"\s+(\w+)(?:\.run)?\(")


def with_captured(graph: Graph, text: str) -> Graph:
    """A graph after Inductor's passes, its nodes linked with those of the captured graph that the mapping names."""
    captured: dict[str, list[str]] = msgspec.json.decode(text).get("postToPre", {})
    return msgspec.structs.replace(graph, nodes=tuple(
        msgspec.structs.replace(node, origins=tuple(ref("capture", name) for name in captured.get(node.id, ())))
        for node in graph.nodes))


_INSTRUCTION = re.compile(r"\s*(?:(\d+)\s+)?(>>)?\s*(\d+)\s+([A-Z][A-Z_0-9]+)(?:\s+\d+)?(?:\s+\((.*)\))?\s*$")


def bytecode(text: str, name: str, role: str) -> Bytecode:
    """Bytecode as `dis` prints it, below a line about the code object."""
    instructions = []
    for row in text.splitlines():
        found = _INSTRUCTION.match(row)
        if found:
            instructions.append(Instruction(found[3], found[4], found[5] or "", jump_target=bool(found[2])))
    return Bytecode(name, tuple(instructions), role=role)


def _lines(text: str) -> Iterable[CodeLine]:
    return (CodeLine(line) for line in text.splitlines())
