"""Which captured operation's derivative is wrong in a joint graph.

Autograd tells the gradient of each captured value. In the order in which gradients flow, the first that no node of the
joint graph's backward has was lost by the operation through which it arrives: the last one that reads the value.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.fx

CLOSE = 1e-3
"""Relative to the largest gradient of a value; wrong derivatives are further off."""


def wrong_derivative(
    module: torch.fx.GraphModule, gradients: Mapping[str, torch.Tensor], found: Iterable[Any]
) -> torch.fx.Node | None:
    """The captured node whose derivative is wrong: `gradients` are autograd's, of captured values by name, `found` the
    values of the joint graph's backward."""
    values = [value for value in found if isinstance(value, torch.Tensor) and value.is_floating_point()]
    nodes = list(module.graph.nodes)
    place = {node: position for position, node in enumerate(nodes)}
    for node in reversed(nodes):
        wanted = gradients.get(node.name)
        if wanted is None or any(is_that(value, wanted) for value in values):
            continue
        readers = [user for user in node.users if user.op != "output"]
        return max(readers, key=place.__getitem__, default=None)
    return None


def is_that(value: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether two gradients are the same but for rounding and shape."""
    if value.dtype != wanted.dtype or value.numel() != wanted.numel():
        return False
    try:
        value = value.detach().reshape(wanted.shape).double()
    except RuntimeError:
        return False
    exact = wanted.detach().double()
    if not torch.equal(value.isfinite(), exact.isfinite()):
        return False
    keep = exact.isfinite()
    if not bool(keep.any()):
        return True
    return (value - exact)[keep].abs().max().item() <= CLOSE * exact[keep].abs().max().item()
