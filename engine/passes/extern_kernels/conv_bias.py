"""Unfuses the bias of a convolution on a GPU: the loops that read the result add it.

cuDNN's convolution has no bias: ATen adds it in another pass over the result.
"""
from __future__ import annotations

from typing import cast

import torch
import torch.fx

from ....artifacts.context import CompileContext
from ....artifacts.records import RuleMatch
from ...graphs.functional_graph import AtenGraph
from ...lowering.realization import leaving

aten = torch.ops.aten

GPU = "cuda"
BY_LOOPS, BY_LIBRARY = "loops", "library"


def add_in_loops(graph: AtenGraph, context: CompileContext) -> list[RuleMatch]:
    """Replace `convolution(image, weight, bias)` by `convolution(image, weight) + bias` where only loops read the
    result, decisions of kind "conv-bias"."""
    nodes = graph.module.graph
    found = [n for n in nodes.nodes if n.target is aten.convolution.default and _has_bias(n)]
    stays = leaving(nodes) if found else frozenset()
    matches = []
    why = "the library adds a bias in another pass over the result; the loops that read it add it for nothing"
    for node in found:
        options, origins = (BY_LOOPS, BY_LIBRARY), (f"forward#{node.name}",)
        if node.name in stays or context.decide(
                "conv-bias", node.name, options, BY_LOOPS, why, origins=origins) == BY_LIBRARY:
            continue
        bias = cast(torch.fx.Node, node.args[2])
        value = bias.meta["val"]
        shape = [value.shape[0], *[1] * (node.meta["val"].dim() - 2)]
        with nodes.inserting_before(node):
            plain = nodes.call_function(aten.convolution.default, (*node.args[:2], None, *node.args[3:]))
            channels = nodes.call_function(aten.reshape.default, (bias, shape))
            total = nodes.call_function(aten.add.Tensor, (plain, channels))
        for made in (plain, channels, total):
            made.meta.update(node.meta)
        channels.meta["val"] = value.reshape(shape)
        matches.append(RuleMatch("bias-in-loops", (node.name,), (plain.name, total.name), why))
        node.replace_all_uses_with(total)
        nodes.erase_node(node)
    return matches


def _has_bias(node: torch.fx.Node) -> bool:
    bias, value = node.args[2], node.meta.get("val")
    return (not node.kwargs and isinstance(bias, torch.fx.Node) and isinstance(value, torch.Tensor)
            and value.device.type == GPU and value.dtype == bias.meta["val"].dtype and bool(node.users))
