"""Unfuses `addmm` into a product and a bias that the consumers' loops add.

`addmm` first fills its result with the bias and then accumulates into it, 5 to 10 % of a float32 product of the sizes
that models have. Where all readers of the result are generated loops, they add the bias for nothing.
"""
from __future__ import annotations

import torch
import torch.fx

from ....artifacts.context import CompileContext
from ....artifacts.records import Option, RuleMatch
from ...graphs.functional_graph import AtenGraph
from ...lowering.realization import leaving

aten = torch.ops.aten

# not bfloat16 and float16: the library rounds once, separate product and sum would round twice
EXACT_ENOUGH = (torch.float32, torch.float64)


def split_bias(graph: AtenGraph, context: CompileContext) -> list[RuleMatch]:
    """Replace `addmm(bias, a, b)` by `mm(a, b) + bias` where only loops read the result."""
    nodes = graph.module.graph
    found = [n for n in nodes.nodes if n.target is aten.addmm.default and _splits(n)]
    stays = leaving(nodes) if found else frozenset()
    matches = []
    for node in found:
        if node.name in stays:
            continue
        why = "only generated loops read the product: they add the bias, which saves a pass over the result"
        options = (Option("mm"), Option("addmm"))
        if context.decide("unfuse-addmm", node.name, options, "mm", why, origins=(f"forward#{node.name}",)) == "addmm":
            continue
        bias, left, right = node.args
        with nodes.inserting_before(node):
            product = nodes.call_function(aten.mm.default, (left, right))
            total = nodes.call_function(aten.add.Tensor, (product, bias))
        for made in (product, total):
            made.meta.update(node.meta)
        matches.append(RuleMatch("bias-in-loops", (node.name,), (product.name, total.name), why))
        node.replace_all_uses_with(total)
        nodes.erase_node(node)
    return matches


def _splits(node: torch.fx.Node) -> bool:
    """Whether the product has one bias for each column, no factors, and a dtype whose rounding this keeps."""
    bias = node.args[0]
    result = node.meta.get("val")
    if node.kwargs or not isinstance(bias, torch.fx.Node) or not isinstance(result, torch.Tensor):
        return False
    row = bias.meta["val"]
    return (
        result.dtype in EXACT_ENOUGH and result.device.type == "cpu" and row.dim() == 1 and row.dtype == result.dtype
        and isinstance(row.shape[0], int) and isinstance(result.shape[1], int) and row.shape[0] == result.shape[1]
        and bool(node.users)
    )
