"""What oneDNN does to a result in registers: the operators that may follow, by the names that it has for them."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

aten = torch.ops.aten


@dataclass(frozen=True)
class PostOp:
    """One of oneDNN's: its name, its numbers, and which algorithm."""

    name: str = "none"
    numbers: tuple[float, ...] = ()
    algorithm: str = ""

    @property
    def hides_nan(self) -> bool:
        """Whether oneDNN's makes a number of NaN, which eager does not: no matter where the result is quantized."""
        return self.name in ("relu", "hardtanh")


Rule = Callable[..., PostOp | None]  # of the arguments after the first, and the keywords


def _bounds(low: Any = None, high: Any = None) -> PostOp | None:
    bounds = [number for number in (low, high) if isinstance(number, (int, float))]
    return PostOp("hardtanh", (float(low), float(high))) if len(bounds) == 2 and low <= high else None


def _slope(slope: Any = 0.01) -> PostOp | None:
    return PostOp("leaky_relu", (float(slope),)) if isinstance(slope, (int, float)) else None


BOTH: dict[Any, Rule] = {
    aten.relu.default: lambda: PostOp("relu"),
    aten.clamp.default: _bounds,
    aten.hardtanh.default: lambda low=-1.0, high=1.0: _bounds(low, high),
    aten.hardswish.default: lambda: PostOp("hardswish"),
    aten.silu.default: lambda: PostOp("swish"),
}
"""After a convolution or a linear layer."""

AFTER_SUM: dict[Any, Rule] = {aten.relu.default: BOTH[aten.relu.default]}
"""After a convolution and a sum."""

LINEAR: dict[Any, Rule] = BOTH | {
    aten.gelu.default: lambda approximate="none": PostOp("gelu", (), approximate),
    aten.tanh.default: lambda: PostOp("tanh"),
    aten.leaky_relu.default: _slope,
}
"""After a linear layer."""


def post_op(node: torch.fx.Node | None, table: dict[Any, Rule]) -> PostOp | None:
    """What a node does to its first argument, if `table` has it."""
    rule = table.get(node.target) if node is not None else None
    return rule(*node.args[1:], **node.kwargs) if rule is not None and node is not None else None
