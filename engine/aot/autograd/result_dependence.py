"""Which results of a graph depend on others, as autograd sees them while the joint graph is traced."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from ...graphs.functional_graph import BETWEEN_PARTS, Captured, FromGraph, ViewOfGraph, ViewOfInput
from .result_sources import Results

Edge = tuple[Any, int]


def relations(
    captured: Captured, returned: Sequence[Any], results: Results, differentiated: Sequence[int]
) -> tuple[tuple[int, ...], dict[int, tuple[int, ...]]]:
    """(`cuts`, `related`) of a joint graph, whose trace `returned` functional tensors."""
    candidates = _candidates(captured, returned, results)
    if not candidates or len(differentiated) + len(candidates) < 3:
        return (), {}
    found: dict[int, set[int]] = {}
    for index in differentiated:
        own = {e for e, i in candidates.items() if getattr(results.outputs[i], "index", None) == index}
        own = {e for e in own if not isinstance(results.outputs[candidates[e]], ViewOfInput)}
        stops = {edge: position for edge, position in candidates.items() if edge not in own}
        reached = _first_reached(_edge(results.values[index]), stops)
        if reached:
            found[index] = reached
    cuts = tuple(sorted(set[int]().union(*found.values())))
    return cuts, {k: tuple(sorted(cuts.index(position) for position in each)) for k, each in found.items()}


def _candidates(captured: Captured, returned: Sequence[Any], results: Results) -> dict[Edge, int]:
    """Results that others may depend on, by the edges that lead to them: those that are made in the graph, and that the
    program gets, which may ask for the gradient there."""
    output_node = captured.module.graph.output_node()
    nodes: Any = output_node.args[0]
    unseen = output_node.meta.get(BETWEEN_PARTS, ())
    found: dict[Edge, int] = {}
    for position, (value, output, node) in enumerate(zip(returned, results.outputs, nodes)):
        made = isinstance(output, (FromGraph, ViewOfGraph, ViewOfInput)) and position not in unseen
        if not made or not value.requires_grad or value.is_leaf or node.op == "placeholder":
            continue
        found.setdefault(_edge(value), position)
    return found


def _edge(value: torch.Tensor) -> Edge:
    edge: Any = torch.autograd.graph.get_gradient_edge(value)
    return edge.node, edge.output_nr


def _first_reached(start: Edge, stops: dict[Edge, int]) -> set[int]:
    """The results that paths of autograd's graph come to first."""
    found, seen, stack = set[int](), {start[0]}, [start[0]]
    while stack:
        for edge in stack.pop().next_functions:
            if edge in stops:
                found.add(stops[edge])
            elif edge[0] is not None and edge[0] not in seen:
                seen.add(edge[0])
                stack.append(edge[0])
    return found
