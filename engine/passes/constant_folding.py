"""Constant folding: what depends on constants only is computed once, at compile time."""
from __future__ import annotations

from typing import Any

import torch
import torch.fx

from ...artifacts.records import RuleMatch
from ..graphs.aliasing import outputs_reach
from ..graphs.functional_graph import AtenGraph
from .choices import May, always
from .dead_code import has_effect

LIMIT_ELEMENTS = 4096
"""Larger results are cheaper to compute in a kernel than to keep."""


def fold_constants(aten: AtenGraph, may: May = always) -> list[RuleMatch]:
    """Replace nodes whose tensor arguments are all constants of the graph by a constant.

    Factories (arange, full) stay: loops compute them without touching memory. Results stay, as they must be new memory
    in each call.
    """
    graph, module = aten.module.graph, aten.module
    visible = outputs_reach(graph)
    known: dict[torch.fx.Node, torch.Tensor] = {
        n: getattr(module, str(n.target)) for n in graph.nodes if n.op == "get_attr"
    }
    matches: list[RuleMatch] = []
    for node in list(graph.nodes):
        if node.op != "call_function" or node in visible or not node.all_input_nodes or has_effect(node):
            continue
        if not all(n in known for n in node.all_input_nodes) or not _small_and_static(node) or not may(node):
            continue
        result = _evaluate(node, known)
        if not isinstance(result, torch.Tensor):
            continue
        name = f"folded{len(matches)}"
        module.register_buffer(name, result)
        with graph.inserting_before(node):
            constant = graph.get_attr(name)
        constant.meta.update(node.meta)
        known[constant] = result
        node.replace_all_uses_with(constant)
        graph.erase_node(node)
        why = f"all arguments of {node.target} are constants"
        matches.append(RuleMatch("fold", (node.name,), (constant.name,), why))
    return matches


def _small_and_static(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return (
        isinstance(value, torch.Tensor)
        and all(type(s) is int for s in value.shape)
        and value.numel() <= LIMIT_ELEMENTS
        and value.device.type == "cpu"
    )


def _evaluate(node: torch.fx.Node, known: dict[torch.fx.Node, torch.Tensor]) -> Any:
    args = torch.fx.node.map_arg(node.args, known.__getitem__)
    kwargs = torch.fx.node.map_arg(node.kwargs, known.__getitem__)
    with torch.no_grad(), torch._C._DisableAutocast():  # whose casts are in the graph
        result = node.target(*args, **kwargs)  # type: ignore[operator]
    return result.clone() if isinstance(result, torch.Tensor) else result
