"""Splits a graph into what runs once, on frozen inputs, and what runs on each call."""
from __future__ import annotations

import operator
from dataclasses import replace

import torch
import torch.fx

from ....artifacts.records import RuleMatch
from ...graphs.aliasing import outputs_reach, returns_alias
from ...graphs.functional_graph import AtenGraph
from ...graphs.wrapper_source import Folding
from .parameters import frozen_nodes
from .source import folding_source

LARGEST = 16 << 20
"""Bytes beyond which a value is kept only if its operands are no smaller (not so: a mask computed from a size)."""


def split(aten: AtenGraph) -> tuple[AtenGraph, tuple[RuleMatch, ...]]:
    """Cut `aten`: the values that cross the cut become placeholders after its own.

    Views of inputs stay on both sides: loops read through them for nothing. What the program gets to see stays in the
    graph too, as it must be new memory on each call.
    """
    graph = aten.module.graph
    frozen = frozen_nodes(graph)
    kept = [node for node in _crossing(graph, frozen) if _is_worth(node)]
    if not kept:
        return aten, ()
    needed = _above(kept)
    own = [node for node in graph.nodes if node.op == "placeholder"]
    inside = [node for node in graph.nodes if node in needed]
    inputs = [node for node in own if node in needed]
    source = folding_source(inside, inputs, kept, aten.module)
    matches = []
    for node in kept:
        with graph.inserting_after(_last_placeholder(graph)):
            value = graph.placeholder(f"folded_{node.name}")
        value.meta.update(node.meta)
        node.replace_all_uses_with(value)
        why = "depends on frozen parameters only: computed once, and again when one of them changes"
        matches.append(RuleMatch("fold", (node.name,), (value.name,), why))
    for node in reversed(inside):
        if node.op != "placeholder" and not node.users:
            graph.erase_node(node)
    folding = Folding(source, tuple(own.index(node) for node in inputs))
    further = tuple(node.meta["val"] for node in kept)
    return replace(aten, inputs=(*aten.inputs, *further), folding=folding), tuple(matches)


def _last_placeholder(graph: torch.fx.Graph) -> torch.fx.Node:
    return [node for node in graph.nodes if node.op == "placeholder"][-1]


def _crossing(graph: torch.fx.Graph, frozen: frozenset[torch.fx.Node]) -> list[torch.fx.Node]:
    """The frozen values that are computed, not just views, and that something outside reads, through views maybe."""
    visible = outputs_reach(graph)
    inside = {n for n in frozen if n not in visible}
    read: set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        if node in inside and any(user not in inside or (user in read and _is_view(user)) for user in node.users):
            read.add(node)
    return [n for n in graph.nodes if n in read and n.op == "call_function" and not _is_view(n)]


def _is_view(node: torch.fx.Node) -> bool:
    """Whether a node is a window on its argument, or one of several (of what an operator computes, it is a value)."""
    if node.target is operator.getitem:
        return _is_view(node.all_input_nodes[0])
    return node.op == "call_function" and returns_alias(node)


def _is_worth(node: torch.fx.Node) -> bool:
    """Whether a value depends on a parameter at all, is one tensor, and is not too large to be kept."""
    value = node.meta.get("val")
    sources = [n for n in _above([node]) if n.op == "placeholder"]
    if not sources or not isinstance(value, torch.Tensor):
        return False
    size = value.numel() * value.itemsize
    return size <= max(LARGEST, sum(n.meta["val"].numel() * n.meta["val"].itemsize for n in sources))


def _above(nodes: list[torch.fx.Node]) -> set[torch.fx.Node]:
    """The nodes, and all that they are computed from."""
    found, pending = set(nodes), list(nodes)
    while pending:
        for node in pending.pop().all_input_nodes:
            if node not in found:
                found.add(node)
                pending.append(node)
    return found
