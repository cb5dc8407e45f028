"""Nodes that raise for some data: what they look at must be looked at, even where nobody reads what they give."""
from __future__ import annotations

import torch.fx

from ...operators import effects
from .autograd_graphs import BACKWARD


def raises_by_value(node: torch.fx.Node) -> bool:
    """Whether an ATen call raises for some values of its arguments, as far as known; what only asserts is not meant. A
    backward raises nothing that its forward did not."""
    if node.meta.get("phase") == BACKWARD:
        return False
    return effects.raises_by_value(node.target, node.args, node.meta.get("val"))
