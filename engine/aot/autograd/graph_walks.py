"""What autograd's graph, as the trace has built it, leads to and keeps."""
from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Walk:
    """What autograd's graph leads to from one result: nodes, and edges (node, number of its output)."""

    nodes: set[Any]
    edges: set[tuple[Any, int]]


def walk(root: Any) -> Walk:
    """What the graph leads to from a tensor."""
    start = torch.autograd.graph.get_gradient_edge(root)
    stack: list[Any] = [start.node]
    found = Walk({start.node}, {(start.node, start.output_nr)})
    while stack:
        for node, number in stack.pop().next_functions:
            found.edges.add((node, number))
            if node is not None and node not in found.nodes:
                found.nodes.add(node)
                stack.append(node)
    return found


def freed_together(walks: list[Walk], saved: Mapping[Any, frozenset[int]]) -> tuple[frozenset[int], ...]:
    """For each result those whose backward runs through one of the nodes that this result's frees."""
    freed = [walk.nodes & saved.keys() for walk in walks]
    return tuple(frozenset(k for k, others in enumerate(freed) if own & others) for own in freed)


def saved_memory(walks: list[Walk]) -> dict[Any, frozenset[int]]:
    """The nodes that have saved tensors, which they free when they have run, each with the storages of these."""
    nodes = set[Any]().union(*(walk.nodes for walk in walks))
    found = {node: _saved_by(node) for node in nodes}
    return {node: storages for node, storages in found.items() if storages is not None}


def watched(
    tensors: Mapping[int, torch.Tensor], walks: list[Walk], saved: Mapping[Any, frozenset[int]],
    exempt: Callable[[Any], bool],
) -> dict[int, frozenset[int]]:
    """Those of `tensors` whose memory nodes have saved, so that a later write to it makes their backward raise: each
    with the results that lead to such a node. Nodes that are `exempt` do not count."""
    counted = {node: storages for node, storages in saved.items() if storages and not exempt(node)}
    reached = [frozenset[int]().union(*(counted[n] for n in walk.nodes & counted.keys())) for walk in walks]
    found = {key: frozenset(k for k, own in enumerate(reached) if storage_of(t) in own) for key, t in tensors.items()}
    return {key: results for key, results in found.items() if results}


def storage_of(value: torch.Tensor) -> int:
    """Which memory a tensor is in."""
    return value.untyped_storage()._cdata


def _saved_by(node: Any) -> frozenset[int] | None:
    """The storages that a node of autograd's has saved; None where it saves nothing."""
    kind: Any = type(node)
    try:
        found = [getattr(node, name) for name in _names_of_saved(kind)]
    except RuntimeError:  # one of them has been changed in place since
        return frozenset()
    values = [v for value in found for v in (value if isinstance(value, tuple) else (value,))]
    saved = [v for v in values if v is not None]
    strided = [v for v in saved if isinstance(v, torch.Tensor) and v.layout is torch.strided]
    return frozenset(map(storage_of, strided)) if saved else None


@functools.cache
def _names_of_saved(kind: type) -> tuple[str, ...]:
    """The attributes that unpack the tensors which nodes of a class save (`saved_tensors` is a Function's)."""
    names = dir(kind)
    of_functions = "_raw_saved_tensors"  # a Function's, whose other name is another
    raw = (name.removeprefix("_raw") for name in names if name.startswith("_raw_saved_") and name != of_functions)
    return (*raw, "saved_tensors") if "saved_tensors" in names else tuple(raw)
