"""The differences of two graphs: nodes of one side alone, and pairs that compute something else.

Names do not count, and order only where a node writes. Changes of one kind that many nodes share (a size that became
dynamic) are one change.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..inner_graphs import sides
from ..records import AutogradFunction, Graph, Location, Node, NodeRef, TensorMeta, ref
from ..render_graph import argument_text, node_text, value_text
from .changes import ADDED, CHANGED, REMOVED, Change, StageDiff, merged
from .matching import match, operator_of
from .program_text import ProgramText
from .write_order import moved_reads

TRAITS = ("dtype", "device", "requires_grad")
TRAITS_OF_STOCK = ("dtype", "device")
"""What stock's trace says of a tensor, besides its sizes."""


def diff_graphs(
    first: Graph, second: Graph, texts: tuple[ProgramText, ProgramText], stage: str = "", name: str = "",
    pairs: Mapping[str, str] | None = None, traits: tuple[str, ...] = TRAITS,
) -> StageDiff:
    """The differences of two graphs; `pairs` are the nodes that are the same ones, found by `match` if not given;
    `traits` are those of tensors that both records have."""
    pairs = match(first, second, texts) if pairs is None else pairs
    partners = {node.id: node for node in second.nodes}
    taken = set(pairs.values())
    changes, same = [], 0
    for node in first.nodes:
        if node.id not in pairs:
            changes.append(_alone(REMOVED, node, stage, name))
            continue
        partner = partners[pairs[node.id]]
        found = _changes(node, partner, pairs, stage, name, traits)
        found += _inner_changes((first, second), (node, partner), texts, traits)
        same += not found
        changes += found
    changes += _order_changes(first, second, pairs, stage, name)
    changes += [_alone(ADDED, node, stage, name) for node in second.nodes if node.id not in taken]
    shared = merged(changes, lambda change: (change.detail,) if change.detail.startswith(_SHARED) else None)
    notes = tuple(f"only in the first: {note}" for note in first.notes if note not in second.notes) + tuple(
        f"only in the second: {note}" for note in second.notes if note not in first.notes)
    return StageDiff(stage, name, "node", shared, same, notes)


_SHARED = ("size ", "requires_grad ", "dtype ", "device ")
"""How the details begin that many nodes may share."""


def _alone(kind: str, node: Node, stage: str, name: str) -> Change:
    there = ref(stage, node.id, name)
    if kind == REMOVED:
        return Change(kind, node_text(node), location=_place(node), refs=(there, ""))
    return Change(kind, second=node_text(node), location=_place(node), refs=("", there))


def _place(node: Node) -> Location | None:
    return node.stack[-1] if node.stack else None


def _changes(
    a: Node, b: Node, pairs: Mapping[str, str], stage: str, name: str, traits: tuple[str, ...]
) -> list[Change]:
    """What differs in two nodes that are the same one: one change for what they compute, one for each trait of the
    value."""
    refs = (ref(stage, a.id, name), ref(stage, b.id, name))
    found = []
    operator = operator_of(a) != operator_of(b)
    if operator or not _equal((a.args, a.kwargs), (b.args, b.kwargs), pairs):
        detail = f"{a.target} -> {b.target}" if operator else _argument_change(a, b, pairs)
        found.append(Change(CHANGED, node_text(a), node_text(b), detail, _place(b), refs))
    for detail in _value_changes(a.value, b.value, traits):
        found.append(Change(CHANGED, node_text(a), node_text(b), detail, _place(b), refs))
    return found


def _inner_changes(
    graphs: tuple[Graph, Graph], nodes: tuple[Node, Node], texts: tuple[ProgramText, ProgramText],
    traits: tuple[str, ...],
) -> list[Change]:
    """What differs in the graphs that two nodes hold: branches, bodies of loops, the sides of an autograd function."""
    held = [graph.inner.get(node.id) for graph, node in zip(graphs, nodes)]
    if None in held and texts[0].compiler != texts[1].compiler:
        return []  # stock's record may hold none
    if type(held[0]) is not type(held[1]):
        return [Change(CHANGED, node_text(nodes[0]), node_text(nodes[1]), "what the node holds", _place(nodes[1]))]
    found = [replace(change, detail=f"in {side}: {change.detail}".removesuffix(": "), refs=("", ""))
             for (_, one), (side, other) in zip(*(sides(graph, node.id) for graph, node in zip(graphs, nodes)))
             for change in diff_graphs(one, other, texts, traits=traits).changes]
    if isinstance(held[0], AutogradFunction) and isinstance(held[1], AutogradFunction):
        found += [Change(CHANGED, node_text(nodes[0]), node_text(nodes[1]), f"{trait} {x} -> {y}", _place(nodes[1]))
                  for trait in _OF_FUNCTIONS if (x := getattr(held[0], trait)) != (y := getattr(held[1], trait))]
    return found


_OF_FUNCTIONS = ("needs_input_grad", "non_differentiable", "dirty", "once_differentiable", "materialize_grads")


def _order_changes(first: Graph, second: Graph, pairs: Mapping[str, str], stage: str, name: str) -> list[Change]:
    nodes = {node.id: node for node in second.nodes}
    return [Change(CHANGED, node_text(node), node_text(nodes[partner]), f"it writes before or after {', '.join(moved)}",
                   _place(nodes[partner]), (ref(stage, node.id, name), ref(stage, partner, name)))
            for node, partner, moved in moved_reads(first, second, pairs)]


def _argument_change(a: Node, b: Node, pairs: Mapping[str, str]) -> str:
    """The first argument that differs, in words."""
    for place, (x, y) in enumerate(zip(a.args, b.args)):
        if not _equal(x, y, pairs):
            return f"argument {place}: {_short(x)} -> {_short(y)}"
    for key in dict.fromkeys([*a.kwargs, *b.kwargs]):
        x, y = a.kwargs.get(key), b.kwargs.get(key)
        if not _equal(x, y, pairs):
            return f"{key}: {_short(x)} -> {_short(y)}"
    return f"{len(a.args)} arguments -> {len(b.args)}"


def _short(value: Any) -> str:
    text = argument_text(value)
    return text if len(text) < 60 else text[:57] + "..."


def _equal(a: Any, b: Any, pairs: Mapping[str, str]) -> bool:
    """Whether two argument trees are the same, nodes by `pairs`."""
    if isinstance(a, NodeRef):
        return isinstance(b, NodeRef) and pairs.get(a.node) == b.node
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(_equal(a[key], b[key], pairs) for key in a)
    if isinstance(a, (list, tuple)):
        return isinstance(b, (list, tuple)) and len(a) == len(b) and all(_equal(x, y, pairs) for x, y in zip(a, b))
    return repr(a) == repr(b)  # True is not 1, nor 0.0 -0.0; nan is nan


def _value_changes(a: Any, b: Any, traits: tuple[str, ...]) -> list[str]:
    """In words, what differs in the metadata of two values."""
    if isinstance(a, TensorMeta) and isinstance(b, TensorMeta):
        found = []
        if len(a.shape) != len(b.shape):
            found.append(f"shape {list(a.shape)} -> {list(b.shape)}")
        else:
            sizes = {f"size {x} -> {y}": None for x, y in zip(a.shape, b.shape) if x != y}
            found += list(sizes)
            if not sizes and a.stride != b.stride:
                found.append(f"strides {list(a.stride)} -> {list(b.stride)}")
        for trait in traits:
            x, y = getattr(a, trait), getattr(b, trait)
            if x != y:
                found.append(f"{trait} {str(x).removeprefix('torch.')} -> {str(y).removeprefix('torch.')}")
        return found
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)) and len(a) == len(b):
        return list(dict.fromkeys(change for x, y in zip(a, b) for change in _value_changes(x, y, traits)))
    texts = value_text(a), value_text(b)
    if traits is TRAITS_OF_STOCK and not all(texts):  # stock's text does not say it of every node
        return []
    return [] if texts[0] == texts[1] else [f"value {texts[0] or 'unknown'} -> {texts[1] or 'unknown'}"]
