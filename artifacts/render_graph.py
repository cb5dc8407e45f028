"""Graphs as Python that is nearly executable: one line for each node, with its type as a comment."""
from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ..dependencies import msgspec
from .decode import form_of
from .facts import operations
from .inner_graphs import graphs_in
from .listing import Line, Listing, SourceText, place_refs, plural, printable, short_place, source_ref
from .records import AutogradFunction, Graph, Location, Node, NodeRef, Pass, TensorMeta, ref

INDENT = "    "
MAX_ARGUMENT = 400  # characters of one argument; a longer one ends in "…"
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z_0-9]*(\.[A-Za-z_0-9]+)*$")


def render_graph(graph: Graph, stage: str, name: str, source: SourceText) -> Listing:
    """A graph as a function of its placeholders."""
    return Listing(f"{stage} {name or graph.name}", "python", tuple(_graph_lines(graph, stage, name, source)))


def render_pass(record: Pass, stage: str, name: str, source: SourceText) -> Listing:
    """What a pass did, then the graph after it."""
    lines = [Line(printable(f"# after {record.name}: {pass_text(record)}"))]
    for match in record.matches:
        change = f"{', '.join(match.removed) or 'nothing'} -> {', '.join(match.added) or 'nothing'}"
        lines.append(Line(printable(f"#   {match.rule}: {change}{'  (' + match.why + ')' if match.why else ''}")))
    lines += [Line(""), *_graph_lines(record.graph, stage, name, source)]
    return Listing(f"{stage} {name or record.name}", "python", tuple(lines))


def pass_text(record: Pass) -> str:
    """How many rewrites a pass made, and in which time."""
    if not record.matches and not record.seconds:  # stock's trace
        return "what it rewrote is not recorded"
    return f"{plural(len(record.matches), 'rewrite')}, {1000 * record.seconds:.1f} ms"


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


# JSON objects that encode what JSON lacks: key -> text of the value.
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
        form = form_of(value)
        if form is not None:
            return _TAGGED[form[0]](form[1])
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


def node_text(node: Node) -> str:
    """`add = operator.add(x, y)  # float32[4]`."""
    value = value_text(node.value)
    if node.op == "placeholder":
        return f"{node.id}: {value}" if value else node.id
    if node.op == "output":
        return f"return {argument_text(node.args[0] if len(node.args) == 1 else node.args)}"
    return f"{node.id} = {call_text(node)}" + (f"  # {value}" if value else "")


@dataclass(frozen=True)
class _Place:
    """Where lines are printed: the artifact, the path of their nodes (see `inner_graphs.py`), the indentation."""

    stage: str
    name: str
    source: SourceText
    path: str = ""
    indent: str = ""

    def line(self, text: str, node: Node | None = None) -> Line:
        """One line; `node` is what it shows."""
        text = printable(self.indent + text)
        if node is None:
            return Line(text)
        return Line(text, ref(self.stage, self.path + node.id, self.name), (*node.origins, *place_refs(node.stack)))

    def inside(self, path: str = "") -> _Place:
        """One level deeper."""
        return replace(self, path=self.path + path, indent=self.indent + INDENT)


def _graph_lines(graph: Graph, stage: str, name: str, source: SourceText) -> list[Line]:
    inner = [operations(other) for path, other in graphs_in(graph) if path]
    more = f"; {plural(len(inner), 'graph')} inside, of {sum(inner)} operations" if inner else ""
    lines = [Line(f"# {len(graph.nodes)} nodes, {operations(graph)} operations{more}")]
    lines += [Line(printable(f"# {note}")) for note in graph.notes]
    return lines + _function_lines(graph, _function_name(graph.name), "", _Place(stage, name, source))


def _function_lines(graph: Graph, title: str, path: str, place: _Place, holder: Node | None = None) -> list[Line]:
    """A graph as a function; `holder` is the node that holds it."""
    body = place.inside(path)
    inputs = [place.line(f"def {title}(", holder)]
    lines = [place.line("):")]
    known: dict[tuple[object, ...], Line] = {}
    shown: tuple[object, ...] = ()
    for node in graph.nodes:  # once: those of a large graph are decoded meanwhile
        if node.op == "placeholder":
            comment = value_text(node.value)
            inputs.append(body.line(f"{node.id}," + (f"  # {comment}" if comment else ""), node))
            continue
        if node.stack:
            line = node.stack[-1]
            here = (line.file, line.line, node.module)
            if here != shown:
                shown = here
                key = (*here, line.function)
                if key not in known:
                    known[key] = _program_line(node, line, body)
                lines.append(known[key])
        lines += _node_lines(node, graph.inner.get(node.id), body)
    return inputs + lines


def _node_lines(node: Node, held: Graph | AutogradFunction | None, place: _Place) -> list[Line]:
    """A node; before it the graphs that it holds."""
    if isinstance(held, Graph):
        return _function_lines(held, node.id, f"{node.id}.", place, node)
    if node.op == "output":
        value = node.args[0] if len(node.args) == 1 else node.args
        return [place.line(f"return {argument_text(tuple(value) if isinstance(value, list) else value)}", node)]
    lines = []
    if held is not None:
        lines = _class_lines(node, held, place)
        node = msgspec.structs.replace(node, target=f"{node.target}.apply")
    comment = value_text(node.value)
    return [*lines, place.line(f"{node.id} = {call_text(node)}" + (f"  # {comment}" if comment else ""), node)]


def _class_lines(node: Node, held: AutogradFunction, place: _Place) -> list[Line]:
    body = place.inside()
    lines = [place.line(f"class {node.target}(torch.autograd.Function):", node)]
    lines += [body.line(f"# {fact}") for fact in _facts(held)]
    for side, graph in (("forward", held.forward), ("backward", held.backward)):
        lines += _function_lines(graph, side, f"{node.id}.{side}.", body)
    return lines


def _facts(held: AutogradFunction) -> Iterator[str]:
    """The properties of an autograd function that its two graphs do not show."""
    if not all(held.needs_input_grad):
        yield f"gradients of the first {sum(held.needs_input_grad)} of {len(held.needs_input_grad)} inputs"
    yield from (f"result {i} is not differentiable" for i in held.non_differentiable)
    yield from (f"result {i} is an input, changed in place" for i in held.dirty)
    for i, stride in enumerate(held.strides or ()):
        yield f"gradient_{i} is made " + ("contiguous" if stride is None else f"to have strides {stride}")
    if not held.materialize_grads:
        yield "the backward does not run where all gradients are absent (materialize_grads is False)"
    if held.once_differentiable:
        yield "once_differentiable: the gradients cannot be differentiated"


def _program_line(node: Node, where: Location, place: _Place) -> Line:
    text = source_text(where, place.source)
    line = short_place(where) + (f" in {where.function}" if where.function else "")
    module = f" [{node.module}]" if node.module else ""
    shown = place.line(f"# {line}{module}" + (f": {text}" if text else ""))
    return replace(shown, ref=source_ref(where.file, where.line))


def source_text(place: Location, source: SourceText) -> str:
    """The program's line at `place`, stripped, or "" if its file was not recorded."""
    text = source(place.file)
    if not text or place.line < 1:
        return ""
    lines = _split(text)
    return lines[place.line - 1].strip() if place.line <= len(lines) else ""


@lru_cache(maxsize=8)
def _split(text: str) -> list[str]:
    return text.split("\n")


def _function_name(name: str) -> str:
    name = re.sub(r"\W", "_", name) or "graph"
    return f"_{name}" if name[0].isdigit() or keyword.iskeyword(name) else name


def _contiguous(meta: TensorMeta) -> bool:
    if not all(isinstance(size, int) for size in (*meta.shape, *meta.stride)):
        return True  # symbolic: unknown
    expected = 1
    for size, stride in zip(reversed(meta.shape), reversed(meta.stride)):
        if size != 1:
            if stride != expected:
                return False
            expected *= int(size)
    return True
