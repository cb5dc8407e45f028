"""Prepacks frozen weights of channels-last convolutions for oneDNN, and fuses a following sum.

oneDNN reorders a weight into its blocked layout on each call; a frozen weight is reordered once. A sum with an image
that nothing else reads is fused into the call, where the result is in registers. A relu stays in loops: most of
oneDNN's kernels turn NaN into 0 there.
"""
from __future__ import annotations

from typing import Any

import torch
import torch.fx

from ....artifacts.context import CompileContext
from ....artifacts.records import RuleMatch
from ...graphs.functional_graph import AtenGraph
from ..freezing.parameters import frozen_nodes
from .convolution import recognize_turned

aten = torch.ops.aten

PACKED, AS_STORED = "packed", "as-stored"


def pack_convolutions(graph: AtenGraph, context: CompileContext) -> list[RuleMatch]:
    """Pack what can be packed, decisions of kind "prepack"; the graph is rewritten in place."""
    frozen = frozen_nodes(graph.module.graph)
    if not frozen or not torch.backends.mkldnn.is_available():
        return []
    matches = []
    for node in list(graph.module.graph.nodes):
        if not recognize_turned(node) or node.args[1] not in frozen:
            continue
        why = "the weight is frozen: it is reordered for oneDNN once"
        options, origins = (PACKED, AS_STORED), (f"forward#{node.name}",)
        if context.decide("prepack", node.name, options, PACKED, why, origins=origins) == PACKED:
            matches.append(_pack(node, why))
    return matches


def _pack(node: torch.fx.Node, why: str) -> RuleMatch:
    """Replace the convolution, and the sum fused into it, by the packed convolution."""
    other = _added(node)
    last = node if other is None else next(iter(node.users))
    arguments: tuple[Any, ...] = node.args
    image, weight, bias, stride, padding, dilation, _, _, groups = arguments
    with node.graph.inserting_before(last):
        order = (padding, stride, dilation, groups)
        reordered = node.graph.call_function(
            torch.ops.mkldnn._reorder_convolution_weight.default, (weight, *order, list(image.meta["val"].shape)))
        operators = torch.ops.mkldnn._convolution_pointwise
        if other is None:
            arguments = (image, reordered, bias, *order, "none", [], "")
            call = node.graph.call_function(operators.default, arguments)
        else:
            arguments = (image, other, reordered, bias, *order, "add", 1.0, None, [], "")
            call = node.graph.call_function(operators.binary, arguments)
    reordered.meta.update(node.meta)
    reordered.meta.update(val=weight.meta["val"], packed=True)
    call.meta.update(last.meta)
    removed = [node] if other is None else [node, last]
    call.meta["origins"] = tuple(dict.fromkeys(o for n in removed for o in n.meta.get("origins", ())))
    last.replace_all_uses_with(call)
    for dead in reversed(removed):
        node.graph.erase_node(dead)
    taken = "" if other is None else ", with the following sum fused"
    return RuleMatch("packed-convolution", tuple(n.name for n in removed), (call.name,), why + taken)


def _added(node: torch.fx.Node) -> torch.fx.Node | None:
    """The image that is added to the convolution's by the one node that reads it; None where nothing is."""
    user = next(iter(node.users)) if len(node.users) == 1 else None
    if user is None or user.target is not aten.add.Tensor or user.kwargs or not _alike(user, node):
        return None
    left, right = user.args
    added = right if left is node else left
    return added if isinstance(added, torch.fx.Node) and added is not node and _alike(added, node) else None


def _alike(one: torch.fx.Node, other: torch.fx.Node) -> bool:
    a, b = one.meta.get("val"), other.meta["val"]
    if not isinstance(a, torch.Tensor) or a.dtype != b.dtype or a.device != b.device:
        return False
    return a.shape == b.shape and a.stride() == b.stride()
