"""A captured graph as if its tensors on the CPU were on a GPU, which need not be there: for an export to it.

As `torch.export.passes.move_to_device_pass` does: the fake tensors are on that device, and so is what the graph makes
on a `torch.device` of the CPU, which the program has from its tensors. What it makes without naming a device is on the
CPU there, too, as in a program that runs on a GPU.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.amp.autocast_mode import _enter_autocast
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.utils._pytree import tree_map

from .functional_graph import Captured, fake_mode_of


def on_device(captured: Captured, device: torch.device) -> Captured:
    """The graph on `device`, with fake tensors of its own."""
    moving = _Moving(fake_mode_of(captured), device)
    inputs = tuple(map(moving.value, captured.inputs))
    return replace(captured, module=moving.module(captured.module), inputs=inputs)  # type: ignore[type-var]


class _Moving:
    """What has been moved: each fake tensor once."""

    def __init__(self, mode: FakeTensorMode, device: torch.device) -> None:
        self._mode, self._device = mode, device
        self._made: dict[FakeTensor, FakeTensor] = {}  # by identity

    def module(self, module: torch.fx.GraphModule) -> torch.fx.GraphModule:
        """A copy of a graph, with the graphs inside it."""
        graph, inside = torch.fx.Graph(), dict[str, Any]()
        copies: dict[torch.fx.Node, torch.fx.Node] = {}
        for node in module.graph.nodes:
            copies[node] = copy = graph.node_copy(node, copies.__getitem__)
            constant = self._autocast if node.target is _enter_autocast else self._constant
            copy.args, copy.kwargs = torch.fx.node.map_aggregate((copy.args, copy.kwargs), constant)
            if "val" in copy.meta:
                copy.meta["val"] = tree_map(self.value, copy.meta["val"])
            if node.op == "get_attr":
                held = getattr(module, str(node.target))
                inside[str(node.target)] = self.module(held) if isinstance(held, torch.fx.GraphModule) else held
        return _LazyGraphModule(inside, graph)

    def value(self, value: Any) -> Any:
        """A fake tensor on the device; anything else, and what is on another one, is itself."""
        if not isinstance(value, FakeTensor) or value.device.type != "cpu":
            return value
        if value not in self._made:
            with self._mode, torch.no_grad():
                made: Any = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=self._device)
            self._made[value] = made.requires_grad_(value.requires_grad)
        return self._made[value]

    def _constant(self, value: Any) -> Any:
        return self._device if isinstance(value, torch.device) and value.type == "cpu" else value

    def _autocast(self, value: Any) -> Any:
        return self._device.type if isinstance(value, str) and value == "cpu" else value
