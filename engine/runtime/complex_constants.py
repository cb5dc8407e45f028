"""Complex constants in a graph that Python runs.

torch.fx writes a graph as Python, and a complex number as `repr` does. That is a sum: `(-0-1j)` has the real part 0.0,
`(nan-0j)` has the imaginary part 0.0, and `(1+infj)` is no expression at all. So each is made of its two parts.
"""
from __future__ import annotations

from typing import Any

import torch
import torch.fx

_EXACT = "ptdebug_exact"  # in a module's `meta`: its form with exact constants


def with_exact_constants(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """`module`, or where it or a graph in it has complex constants a copy that calls `complex` for them."""
    known: torch.fx.GraphModule | None = module.meta.get(_EXACT)
    if known is None:
        known = module.meta[_EXACT] = _exact(module)
    return known


def _exact(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    inner = {
        name: exact for name, child in module.named_children()
        if isinstance(child, torch.fx.GraphModule) and (exact := with_exact_constants(child)) is not child
    }
    if not inner and not any(_has_complex(node) for node in module.graph.nodes):
        return module
    graph = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    output: Any = graph.graph_copy(module.graph, copies)
    for node in list(graph.nodes):
        _write_out(graph, node)
    result = graph.output(output)
    _write_out(graph, result)
    copy = torch.fx.GraphModule(module, graph)
    for name, exact in inner.items():
        setattr(copy, name, exact)
    return copy


def _has_complex(node: torch.fx.Node) -> bool:
    found = False

    def look(value: Any) -> Any:
        nonlocal found
        found = found or type(value) is complex
        return value

    torch.fx.node.map_aggregate((node.args, node.kwargs), look)
    return found


def _write_out(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """Let nodes before this one make its complex constants."""
    if not _has_complex(node):
        return

    def made(value: Any) -> Any:
        if type(value) is not complex:
            return value
        with graph.inserting_before(node):
            return graph.call_function(complex, (value.real, value.imag))

    node.args, node.kwargs = torch.fx.node.map_aggregate((node.args, node.kwargs), made)
