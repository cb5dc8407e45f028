"""Records inside untyped trees (arguments and values of nodes) come out of JSON as objects; this makes them records."""
from __future__ import annotations

from typing import Any

from ..dependencies import msgspec
from .records import AnyRecord, AutogradFunction, Graph, Node, NodeRef, Pass, TensorMeta

_TYPES: dict[str, type[NodeRef] | type[TensorMeta]] = {"NodeRef": NodeRef, "TensorMeta": TensorMeta}


def revive(record: AnyRecord) -> AnyRecord:
    """The record with NodeRef and TensorMeta where its nodes' trees hold their JSON. Tuples in trees stay lists."""
    if isinstance(record, Graph):
        return _graph(record)
    if isinstance(record, Pass):
        return msgspec.structs.replace(record, graph=_graph(record.graph))
    return record


def _graph(graph: Graph) -> Graph:
    inner = {name: _graph(held) if isinstance(held, Graph) else _function(held) for name, held in graph.inner.items()}
    return msgspec.structs.replace(graph, nodes=tuple(map(_node, graph.nodes)), inner=inner)


def _function(held: AutogradFunction) -> AutogradFunction:
    return msgspec.structs.replace(held, forward=_graph(held.forward), backward=_graph(held.backward))


def _node(node: Node) -> Node:
    value = node.value
    if isinstance(value, tuple):
        value = tuple(map(_tree, value))
    return msgspec.structs.replace(node, args=tuple(map(_tree, node.args)), kwargs=_tree(node.kwargs), value=value)


def _tree(value: Any) -> Any:
    if isinstance(value, dict):
        kind = _TYPES.get(value.get("record", ""))
        return msgspec.convert(value, kind) if kind else {key: _tree(inner) for key, inner in value.items()}
    return [_tree(inner) for inner in value] if isinstance(value, list) else value
