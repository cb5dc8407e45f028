"""Decodes records inside untyped trees (arguments and values of nodes), which JSON leaves as plain objects.

msgspec checks the typed fields of a record; trees are checked here, once, so that readers can rely on them: limited
nesting, and node names that are names.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..dependencies import msgspec
from .records import AnyRecord, AutogradFunction, Graph, Kernel, Node, NodeRef, Partition, Pass, SavedInputs, TensorMeta

MAX_DEPTH = 100

_TYPES: dict[str, type[NodeRef] | type[TensorMeta]] = {"NodeRef": NodeRef, "TensorMeta": TensorMeta}


def revive(record: AnyRecord) -> AnyRecord:
    """The record with NodeRef and TensorMeta in its nodes' trees in place of their JSON. Tuples in trees stay lists.

    Raises msgspec.ValidationError for a tree that no recorder wrote.
    """
    if isinstance(record, Graph):
        return _graph(record, 0)
    if isinstance(record, Pass):
        return msgspec.structs.replace(record, graph=_graph(record.graph, 0))
    if isinstance(record, Partition):
        for saved in record.saved:
            _tree(saved.value)
    elif isinstance(record, SavedInputs):
        for item in record.inputs:
            _tree(item.value)
    elif isinstance(record, Kernel):
        _tree(record.metrics)
    return record


class EncodedNodes:
    """The nodes of a graph, decoded one at a time and again for each walk: of 200,000 all take 250 MB."""

    def __init__(self, nodes: Sequence[msgspec.Raw]) -> None:
        self._nodes = nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        """Raises msgspec.MsgspecError at a damaged one."""
        return (_node(_node_decoder.decode(raw)) for raw in self._nodes)

    def operators(self) -> Iterator[str]:
        """The `op` of each node; nothing else is decoded."""
        return (_op_decoder.decode(raw).op for raw in self._nodes)


    def of(self, op: str) -> Iterator[Node]:
        """The nodes with that `op`; of the others nothing else is decoded."""
        return (_node(_node_decoder.decode(raw)) for raw in self._nodes if _op_decoder.decode(raw).op == op)


class _Op(msgspec.Struct):
    op: str


class _EncodedGraph(msgspec.Struct):
    name: str
    nodes: tuple[msgspec.Raw, ...]
    notes: tuple[str, ...] = ()
    inner: dict[str, Graph | AutogradFunction] = {}


_node_decoder = msgspec.json.Decoder(Node)
_op_decoder = msgspec.json.Decoder(_Op)
_graph_decoder = msgspec.json.Decoder(_EncodedGraph)


def encoded_graph(content: bytes) -> Graph:
    """The graph whose record is `content`, with EncodedNodes in place of its nodes."""
    found = _graph_decoder.decode(content)
    inner = _graph(Graph(found.name, (), found.notes, found.inner), 0).inner
    return Graph(found.name, EncodedNodes(found.nodes), found.notes, inner)  # type: ignore[arg-type]


def _graph(graph: Graph, depth: int) -> Graph:
    if depth > MAX_DEPTH:
        raise msgspec.ValidationError("graphs are nested too deeply")
    inner: dict[str, Graph | AutogradFunction] = {}
    for name, held in graph.inner.items():
        inner[name] = _graph(held, depth + 1) if isinstance(held, Graph) else _function(held, depth + 1)
    return msgspec.structs.replace(graph, nodes=tuple(map(_node, graph.nodes)), inner=inner)


def _function(held: AutogradFunction, depth: int) -> AutogradFunction:
    return msgspec.structs.replace(held, forward=_graph(held.forward, depth), backward=_graph(held.backward, depth))


def _node(node: Node) -> Node:
    value = node.value
    if isinstance(value, tuple):
        value = tuple(map(_tree, value))
    kwargs = {key: _tree(argument) for key, argument in node.kwargs.items()}
    return msgspec.structs.replace(node, args=tuple(map(_tree, node.args)), kwargs=kwargs, value=value)


def _tree(value: Any, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise msgspec.ValidationError("a value is nested too deeply")
    if isinstance(value, dict):
        name = value.get("record")
        kind = _TYPES.get(name) if isinstance(name, str) else None
        return msgspec.convert(value, kind) if kind else {k: _tree(inner, depth + 1) for k, inner in value.items()}
    return [_tree(inner, depth + 1) for inner in value] if isinstance(value, (list, tuple)) else value


def _list_of(length: int) -> Callable[[Any], bool]:
    return lambda content: isinstance(content, list) and len(content) == length


def _is_text(content: Any) -> bool:
    return isinstance(content, str)


_FORMS: dict[str, Callable[[Any], bool]] = {
    "list": lambda content: isinstance(content, list), "float": _is_text, "torch": _is_text, "symbol": _is_text,
    "slice": _list_of(3), "complex": _list_of(2), "python": lambda content: content == "...",
}


def form_of(value: Mapping[str, Any]) -> tuple[str, Any] | None:
    """(kind, content) of an object that encodes what JSON lacks (written by `fx_graphs.plain`); else None."""
    if len(value) != 1:
        return None
    (kind, content), = value.items()
    return (kind, content) if kind in _FORMS and _FORMS[kind](content) else None
