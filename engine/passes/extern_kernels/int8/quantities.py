"""What is quantized in a graph: values, weights, and quantizations of results."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from ...freezing.parameters import is_packable

aten = torch.ops.aten

BYTES = {torch.uint8: (0, 255), torch.int8: (-128, 127)}
OTHERWISE = "not quantized, or not as oneDNN has it (8 bits; a weight is a buffer, with a scale for each output)"
RESHAPES = (aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.flatten.using_ints)


@dataclass(frozen=True)
class Quantity:
    """A value whose integers are those of `node`, (integer - zero) * scale; `call` says so. Scale and zero are numbers,
    or tensors of one element where they are chosen at each call."""

    node: torch.fx.Node
    scale: Any
    zero: Any
    call: torch.fx.Node

    @property
    def dynamic(self) -> bool:
        """Whether scale and zero are chosen at each call."""
        return isinstance(self.scale, torch.fx.Node)


@dataclass(frozen=True)
class Weight:
    """A packable weight: integers of outputs by inputs (by pixels), a scale and maybe a zero for each output."""

    node: torch.fx.Node
    scales: torch.fx.Node
    zeros: torch.fx.Node


def is_quantization(node: torch.fx.Node) -> bool:
    """Whether a node's operator quantizes or dequantizes."""
    return getattr(node.target, "namespace", "") == "quantized_decomposed"


def is_called(node: Any, name: str, overload: str = "default") -> bool:
    """Whether a node calls that operator of `quantized_decomposed`."""
    target = getattr(node, "target", None)
    return str(target) == f"quantized_decomposed.{name}.{overload}"


def quantity(node: Any) -> Quantity | None:
    """What a node dequantizes, one scale for all of it, to float32."""
    dynamic = is_called(node, "dequantize_per_tensor", "tensor")
    if not (dynamic or is_called(node, "dequantize_per_tensor")):
        return None
    integers, scale, zero, _low, _high, dtype = node.args
    known = dynamic or (isinstance(scale, float) and isinstance(zero, int))
    if dtype not in BYTES or not known or node.kwargs.get("out_dtype") not in (None, torch.float32):
        return None
    return Quantity(integers, scale, zero, node)


def weight(node: Any) -> Weight | None:
    """What a node dequantizes, a scale for each output (its first dimension), if it is a parameter or buffer."""
    if not is_called(node, "dequantize_per_channel") or node.kwargs.get("out_dtype") not in (None, torch.float32):
        return None
    integers, scales, zeros, axis, _low, _high, dtype = node.args
    packable = all(isinstance(n, torch.fx.Node) and is_packable(n) for n in (integers, scales, zeros))
    if axis != 0 or dtype is not torch.int8 or not packable or scales.meta["val"].dtype is not torch.float32:
        return None
    if zeros.meta["val"].dtype not in (torch.int32, torch.int64):  # others are no integers, or wrap around in eager
        return None
    if any(type(size) is int and size == 0 for size in integers.meta["val"].shape):  # oneDNN divides by it
        return None
    return Weight(integers, scales, zeros)


def quantized(node: Any) -> Quantity | None:
    """The scale and zero of a node that quantizes to all integers of 8 bits."""
    if not is_called(node, "quantize_per_tensor"):
        return None
    _, scale, zero, low, high, dtype = node.args
    if BYTES.get(dtype) != (low, high) or not isinstance(scale, float) or not isinstance(zero, int):
        return None
    return Quantity(node, scale, zero, node)


def only_user(node: torch.fx.Node) -> torch.fx.Node | None:
    """The one node that reads a node; None where there are others, or none."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def reshaped(node: Any) -> tuple[Any, list[torch.fx.Node]]:
    """What a node reshapes, and the reshapes from there, the last of which it is."""
    steps: list[torch.fx.Node] = []
    while isinstance(node, torch.fx.Node) and node.target in RESHAPES:
        steps.insert(0, node)
        node = node.args[0]
    return node, steps


def like(
    node: torch.fx.Node, target: Any, *args: Any, val: Any = None, keywords: Mapping[str, Any] | None = None
) -> torch.fx.Node:
    """A new call with the provenance of `node`; its fake result is `val`, or that of calling `target` on fakes."""
    made = node.graph.call_function(target, args, dict(keywords or {}))
    made.meta.update(node.meta)
    fakes = torch.fx.node.map_arg(args, lambda n: n.meta["val"])
    made.meta["val"] = target(*fakes, **(keywords or {})) if val is None else val
    return made

