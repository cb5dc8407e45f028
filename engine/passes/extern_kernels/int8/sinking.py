"""Dequantization sinks below what moves or compares values, which then works on the integers: views, copies, `cat` of
parts with one scale, maxima of windows. A quantization right after it, with the same scale and zero, is undone by it.
"""
from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx

from ....graphs.aliasing import outputs_reach
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
        integers = before.node
        if _is_returned(node) or integers.meta["val"].stride() != node.meta["val"].stride():  # it is one of its own
            with node.graph.inserting_before(node):
                integers = like(node, aten.clone.default, integers)
        node.replace_all_uses_with(integers)
        return integers, UNDONE
    moved = _operands(node)
    result = next(iter(node.users)) if moved and node.target in MAXIMA else node
    given = [found.node for found in moved]
    if not moved or (_is_returned(result) and not _laid_out_alike(node, result, given)) or not may(node, WHY):
        return None
    with node.graph.inserting_before(node):
        integers = like(node, node.target, *_arguments(node, given), keywords=node.kwargs)
        if result is not node:
            integers = like(node, operator.getitem, integers, 0)
        dequantize: Any = moved[0].call.target
        made = like(result, dequantize, integers, *moved[0].call.args[1:], keywords=moved[0].call.kwargs)
    result.replace_all_uses_with(made)
    for dead in dict.fromkeys((result, node)):
        node.graph.erase_node(dead)
    return made, WHY


def _is_returned(node: torch.fx.Node) -> bool:
    return node in outputs_reach(node.graph)


def _arguments(node: torch.fx.Node, given: list[Any]) -> tuple[Any, ...]:
    return (given if node.target is aten.cat.default else given[0], *node.args[1:])


def _laid_out_alike(node: torch.fx.Node, result: torch.fx.Node, given: list[torch.fx.Node]) -> bool:
    """Whether what `node` makes of the integers, dequantized, has the strides that the program sees: that of a view
    with gaps or repetitions has not."""
    target: Any = node.target
    integers = target(*torch.fx.node.map_arg(_arguments(node, given), lambda n: n.meta["val"]), **node.kwargs)
    moved = integers if result is node else integers[0]
    strides: tuple[int, ...] = torch.empty_like(moved).stride()
    return strides == result.meta["val"].stride()


def _operands(node: torch.fx.Node) -> list[Quantity]:
    """What `node` moves or compares, if all of it is dequantized alike, for this node alone; nothing otherwise."""
    if node.target is aten.cat.default:
        parts: Any = node.args[0]
    elif node.target in MAXIMA:
        read = {user.args[1] for user in node.users if user.target is operator.getitem}
        parts = node.args[:1] if read == {0} and len(node.users) == 1 else ()
    else:
        moves = (kind_of(node) in (VIEW, RESHAPE) and isinstance(node.meta.get("val"), torch.Tensor)
                 and node.target is not aten.as_strided.default)  # which depends on the strides of what it is given
        parts = node.args[:1] if (moves or node.target is aten.clone.default) and len(node.all_input_nodes) == 1 else ()
    found = [quantity(part) for part in parts]
    alike = {(f.scale, f.zero, f.node.meta["val"].dtype) if f is not None else None for f in found}
    if None in alike or len(alike) != 1 or any(only_user(part) is not node for part in parts):
        return []
    if node.target in MAXIMA and (found[0] is None or found[0].dynamic or not found[0].scale > 0):
        return []
    return [f for f in found if f is not None]
