"""Splits the backward of a depthwise convolution: the image's gradient from the library, the weight's from the faster
kernel.

The library's call computes all three gradients at once, and takes most of its time for the weight's;
`kernels/depthwise.py` says why, and has another kernel.
"""
from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.fx

from ....artifacts.context import CompileContext
from ....artifacts.records import RuleMatch
from ...graphs.functional_graph import AtenGraph
from ...kernels import depthwise
from ...toolchain.benchmarking import TOO_BUSY, Call, costs, timed_options, verdict

aten = torch.ops.aten

FUSED, SPLIT = "fused", "split"
WORTH = 0.9  # of the library's time, below which the backward is split


@dataclass(frozen=True)
class Gradients:
    """The node of the gradients of a 2-d depthwise convolution of static sizes, in float32 on the CPU."""

    node: torch.fx.Node
    tensors: tuple[torch.Tensor, ...]  # fakes of gradient, image and weight
    window: tuple[tuple[int, ...], ...]  # stride, padding, dilation
    wanted: tuple[bool, ...]  # of image, weight, bias

    def describe(self) -> str:
        """All that the time depends on."""
        layouts = [(tuple(t.shape), t.stride()) for t in self.tensors]
        return f"{layouts} {self.window} {self.wanted}"

    def calls(self) -> dict[str, Call]:
        """Each way, on made-up data."""
        gradient, image, weight = [torch.empty_strided(t.shape, t.stride()).fill_(0.5) for t in self.tensors]
        channels, kernel, window = image.shape[1], weight.shape[2:], [list(w) for w in self.window]

        def fused(wanted: tuple[bool, ...] = self.wanted) -> object:
            return aten.convolution_backward.default(
                gradient, image, weight, [channels], *window, False, [0, 0], channels, list(wanted))

        def split() -> object:
            rest = fused((True, False, False)) if self.wanted[0] else None
            bias = gradient.sum((0, 2, 3)) if self.wanted[2] else None
            return rest, depthwise.depthwise_weight_gradient(gradient, image, kernel, *self.window), bias

        return {FUSED: fused, SPLIT: split}


def part_gradients(graph: AtenGraph, context: CompileContext) -> list[RuleMatch]:
    """Split the backward of depthwise convolutions where that is faster here, decisions of kind "weight-grad"."""
    matches = []
    for node in list(graph.module.graph.nodes):
        found = _recognize(node)
        if found is None or not depthwise.KERNEL.available:
            continue
        known = costs(f"depthwise gradients {found.describe()}", found.calls)
        default = SPLIT if known and known[SPLIT] < WORTH * known[FUSED] else FUSED
        where = f"for a filter of {tuple(found.tensors[2].shape[2:])} for each channel"
        why = verdict(known, default, where, "splitting has to save 10 %") if known else TOO_BUSY
        options = timed_options(known, (SPLIT, FUSED))
        origins = (f"forward#{node.name}",)
        if context.decide("weight-grad", node.name, options, default, why, origins=origins) == SPLIT:
            matches.append(RuleMatch("weight-gradient", (node.name,), _part(found), why))
    return matches


def _recognize(node: torch.fx.Node) -> Gradients | None:
    if node.target is not aten.convolution_backward.default or node.kwargs:
        return None
    gradient, image, weight, _, *window, transposed, _, groups, wanted = cast(tuple[Any, ...], node.args)
    tensors = tuple(n.meta["val"] for n in (gradient, image, weight))
    if transposed or not wanted[1] or any(t.dim() != 4 or t.layout is not torch.strided for t in tensors):
        return None
    if any(t.dtype != torch.float32 or t.device.type != "cpu" or t.numel() == 0 for t in tensors):
        return None
    if any(not isinstance(n, int) for t in tensors for n in (*t.shape, *t.stride())):
        return None
    if not 1 < groups == tensors[1].shape[1] == tensors[2].shape[0]:
        return None
    pairs = tuple(tuple(w) * (2 if len(w) == 1 else 1) for w in window)
    return Gradients(node, tensors, pairs, tuple(wanted))


def _part(found: Gradients) -> tuple[str, ...]:
    """Rewrite the node; the names of what took its place."""
    node, values = found.node, found.node.meta["val"]
    gradient, image = cast(tuple[torch.fx.Node, ...], node.args[:2])
    kernel, window = list(found.tensors[2].shape[2:]), [list(w) for w in found.window]
    made: dict[int, torch.fx.Node] = {}
    with node.graph.inserting_before(node):
        made[1] = node.graph.call_function(depthwise.OPERATOR, (gradient, image, kernel, *window))
        if found.wanted[2]:
            made[2] = node.graph.call_function(aten.sum.dim_IntList, (gradient, [0, 2, 3]))
    for position, new in made.items():
        new.meta.update(node.meta)
        new.meta["val"] = values[position]
        for user in [u for u in node.users if u.target is operator.getitem and u.args[1] == position]:
            user.replace_all_uses_with(new)
            node.graph.erase_node(user)
    node.args = (*node.args[:-1], [found.wanted[0], False, False])
    node.meta["val"] = (values[0], None, None)
    if not node.users:
        node.graph.erase_node(node)
    return tuple(new.name for new in made.values())
