"""Graphs as Python that can be read, and nearly run: one line for each node, its type behind it."""
from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from typing import Any

from .listing import Line, Listing, SourceText, place_refs, printable, short_place, source_ref
from .records import Graph, Location, Node, NodeRef, Pass, TensorMeta, ref

INDENT = "    "
MAX_ARGUMENT = 400  # characters of one argument; a longer one ends in "…"
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z_0-9]*(\.[A-Za-z_0-9]+)*$")


def render_graph(graph: Graph, stage: str, name: str, source: SourceText) -> Listing:
    """A graph as a function of its placeholders."""
    return Listing(f"{stage} {name or graph.name}", "python", tuple(_graph_lines(graph, stage, name, source)))


def render_pass(record: Pass, stage: str, name: str, source: SourceText) -> Listing:
    """What a pass did, then the graph after it."""
    milliseconds = f"{1000 * record.seconds:.1f} ms"
    lines = [Line(printable(f"# after {record.name}: {len(record.matches)} rewrites, {milliseconds}"))]
    for match in record.matches:
        change = f"{', '.join(match.removed) or 'nothing'} -> {', '.join(match.added) or 'nothing'}"
        lines.append(Line(printable(f"#   {match.rule}: {change}{'  (' + match.why + ')' if match.why else ''}")))
    lines += [Line(""), *_graph_lines(record.graph, stage, name, source)]
    return Listing(f"{stage} {name or record.name}", "python", tuple(lines))


def tensor_text(meta: TensorMeta) -> str:
    """`float32[4, 8]`, with device and strides where they are not cpu and contiguous."""
    text = f"{meta.dtype.removeprefix('torch.')}[{', '.join(map(str, meta.shape))}]"
    if not _contiguous(meta):
        text += f" strides ({', '.join(map(str, meta.stride))})"
    if meta.device != "cpu":
        text += f" {meta.device}"
    return text + (" requires_grad" if meta.requires_grad else "")


def value_text(value: Any) -> str:
    """The type comment of a node's value: a tensor, a tuple of such, or a text."""
    if isinstance(value, TensorMeta):
        return tensor_text(value)
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(value_text(v) for v in value) + ")"
    return "" if value is None else str(value)


# JSON objects that stand for what JSON lacks: key -> text of the value.
_TAGGED: dict[str, Callable[[Any], str]] = {
    "list": lambda v: argument_text(list(v)),
    "float": lambda value: f"float({str(value)!r})",
    "torch": str,
    "symbol": str,
    "slice": lambda value: "slice(" + ", ".join(argument_text(v) for v in value) + ")",
    "complex": lambda parts: f"complex({', '.join(map(str, parts))})",
    "python": str,
}


def argument_text(value: Any) -> str:
    """An argument tree as Python."""
    if isinstance(value, NodeRef):
        return value.node
    if isinstance(value, dict):
        if len(value) == 1:
            (key, inner), = value.items()
            if key in _TAGGED:
                return _TAGGED[key](inner)
        if "tensor" in value and "dtype" in value:
            return f"<{value['dtype']}{value.get('shape', [])}>"
        return "{" + ", ".join(f"{k!r}: {argument_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(argument_text, value)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(argument_text, value)) + ("," if len(value) == 1 else "") + ")"
    text = repr(value)
    return text if len(text) <= MAX_ARGUMENT else text[:MAX_ARGUMENT] + "…"


def call_text(node: Node) -> str:
    """The right-hand side of a node."""
    args = [argument_text(a) for a in node.args]
    kwargs = [f"{key}={argument_text(value)}" for key, value in node.kwargs.items()]
    if node.op == "get_attr":
        return f"self.{node.target}"
    if node.op == "call_module":
        return f"self.{node.target}({', '.join(args + kwargs)})"
    if node.op == "call_method" and args:
        return f"{args[0]}.{node.target}({', '.join(args[1:] + kwargs)})"
    target = node.target if _IDENTIFIER.match(node.target) else f"<{node.target}>"
    return f"{target}({', '.join(args + kwargs)})"


def _graph_lines(graph: Graph, stage: str, name: str, source: SourceText) -> list[Line]:
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    computed = sum(node.op not in ("placeholder", "get_attr", "output") for node in graph.nodes)
    lines = [Line(f"# {len(graph.nodes)} nodes, {computed} operations")]
    lines += [Line(printable(f"# {note}")) for note in graph.notes]
    lines.append(Line(printable(f"def {_function_name(graph.name)}(")))
    for node in inputs:
        comment = value_text(node.value)
        origins = (*node.origins, *place_refs(node.stack))
        text = f"{INDENT}{node.id}," + (f"  # {comment}" if comment else "")
        lines.append(Line(printable(text), ref(stage, node.id, name), origins))
    lines.append(Line("):"))
    shown: tuple[object, ...] = ()
    for node in graph.nodes:
        if node.op == "placeholder":
            continue
        if node.stack:
            place = node.stack[-1]
            if (place.file, place.line, node.module) != shown:
                shown = (place.file, place.line, node.module)
                lines.append(_place_line(node, place, source))
        lines.append(_node_line(node, stage, name))
    return lines


def _node_line(node: Node, stage: str, name: str) -> Line:
    if node.op == "output":
        value = node.args[0] if len(node.args) == 1 else node.args
        value = tuple(value) if isinstance(value, list) else value
        text = f"{INDENT}return {argument_text(value)}"
    else:
        comment = value_text(node.value)
        text = f"{INDENT}{node.id} = {call_text(node)}" + (f"  # {comment}" if comment else "")
    return Line(printable(text), ref(stage, node.id, name), (*node.origins, *place_refs(node.stack)))


def _place_line(node: Node, place: Location, source: SourceText) -> Line:
    text = source_text(place, source)
    where = f"{short_place(place)}" + (f" in {place.function}" if place.function else "")
    module = f" [{node.module}]" if node.module else ""
    return Line(printable(f"{INDENT}# {where}{module}" + (f": {text}" if text else "")),
                source_ref(place.file, place.line))


def source_text(place: Location, source: SourceText) -> str:
    """The program's line at `place`, stripped, or "" where its file was not kept."""
    text = source(place.file)
    if not text or place.line < 1:
        return ""
    lines = text.split("\n")
    return lines[place.line - 1].strip() if place.line <= len(lines) else ""


def _function_name(name: str) -> str:
    name = re.sub(r"\W", "_", name) or "graph"
    return f"_{name}" if name[0].isdigit() or keyword.iskeyword(name) else name


def _contiguous(meta: TensorMeta) -> bool:
    if not all(isinstance(size, int) for size in (*meta.shape, *meta.stride)):
        return True  # symbolic: not worth a claim
    expected = 1
    for size, stride in zip(reversed(meta.shape), reversed(meta.stride)):
        if size != 1:
            if stride != expected:
                return False
            expected *= int(size)
    return True
