"""Graphs inside of a graph: the functions of torch.cond and of loops, the two sides of an autograd function.

In references, the id of an inner graph's node is its path: "capture#inner_0.sin", "capture#sq.backward.mul".
"""
from __future__ import annotations

from collections.abc import Iterator

from .records import Graph


def graphs_in(graph: Graph, path: str = "") -> Iterator[tuple[str, Graph]]:
    """The graph and all that are inside of it, outermost first, each with the path that its nodes' ids begin with."""
    yield path, graph
    for node in graph.inner:
        for side, inner in sides(graph, node):
            yield from graphs_in(inner, f"{path}{side}.")


def sides(graph: Graph, node: str) -> list[tuple[str, Graph]]:
    """The graphs that a node holds, by name: one, an autograd function's two, or none."""
    held = graph.inner.get(node)
    if held is None:
        return []
    if isinstance(held, Graph):
        return [(node, held)]
    return [(f"{node}.forward", held.forward), (f"{node}.backward", held.backward)]
