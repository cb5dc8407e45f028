"""Dequantization sinks below what moves or compares values, which then works on the integers: views, copies, `cat` of
parts with one scale, maxima of windows. A quantization right after it, with the same scale and zero, is undone by it.
"""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from ....lowering.realization import kind_of
from ....lowering.registry import RESHAPE, VIEW
from .quantities import Quantity, is_called, like, only_user, quantity, quantized

aten = torch.ops.aten

WHY = "it moves or compares values: on the integers the result is the same, from a quarter of the memory"
UNDONE = "quantized as it was before"
MAXIMA = (aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default)


def sunk(node: torch.fx.Node, may: Callable[[torch.fx.Node, str], bool]) -> tuple[torch.fx.Node, str] | None:
    """`node` on integers, dequantized after it, or without a quantization that undoes nothing; and why."""
    if is_called(node, "quantize_per_tensor"):
        before, after = quantity(node.args[0]), quantized(node)
        same = before is not None and after is not None and (before.scale, before.zero) == (after.scale, after.zero)
        if not same or before is None or before.node.meta["val"].dtype != node.meta["val"].dtype:
            return None
        if not may(node, UNDONE):
            return None
        node.replace_all_uses_with(before.node)
        return before.node, UNDONE
    moved = _operands(node)
    if not moved or not may(node, WHY):
        return None
    with node.graph.inserting_before(node):
        given = [found.node for found in moved]
        arguments = (given if node.target is aten.cat.default else given[0], *node.args[1:])
        integers = like(node, node.target, *arguments, keywords=node.kwargs)
        result = node
        if node.target in MAXIMA:
            (result,) = node.users
            integers = like(node, operator.getitem, integers, 0)
        dequantize: Any = moved[0].call.target
        made = like(result, dequantize, integers, *moved[0].call.args[1:], keywords=moved[0].call.kwargs)
    result.replace_all_uses_with(made)
    for dead in dict.fromkeys((result, node)):
        node.graph.erase_node(dead)
    return made, WHY


def _operands(node: torch.fx.Node) -> list[Quantity]:
    """What `node` moves or compares, if all of it is dequantized alike, for this node alone; nothing otherwise."""
    if node.target is aten.cat.default:
        parts: Any = node.args[0]
    elif node.target in MAXIMA:
        read = {user.args[1] for user in node.users if user.target is operator.getitem}
        parts = node.args[:1] if read == {0} and len(node.users) == 1 else ()
    else:
        moves = kind_of(node) in (VIEW, RESHAPE) and isinstance(node.meta.get("val"), torch.Tensor)
        parts = node.args[:1] if (moves or node.target is aten.clone.default) and len(node.all_input_nodes) == 1 else ()
    found = [quantity(part) for part in parts]
    alike = {(f.scale, f.zero, f.node.meta["val"].dtype) if f is not None else None for f in found}
    if None in alike or len(alike) != 1 or any(only_user(part) is not node for part in parts):
        return []
    if node.target in MAXIMA and (found[0] is None or found[0].dynamic or not found[0].scale > 0):
        return []
    return [f for f in found if f is not None]
