"""A depthwise convolution of 3 by 3 pixels by ptdebug's kernel, where that takes it (`kernels/int8_depthwise.py`)."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from .....artifacts.context import CompileContext
from ....kernels import int8_depthwise
from .convolution import Convolution
from .quantities import Quantity, like

BY_PTDEBUG, BY_ONEDNN = "ptdebug", "onednn"


@dataclass(frozen=True)
class Depthwise(Convolution):
    """A convolution that becomes a call of ptdebug's kernel."""

    @property
    def why(self) -> str:
        """What was joined, for the match's record."""
        return super().why.replace("of oneDNN", "of ptdebug")

    def write(self) -> torch.fx.Node:
        """The call, which takes the place of the last node."""
        node, last, out = self.nodes[0], self.nodes[-1], self.out
        arguments: tuple[Any, ...] = node.args
        _, _, bias, stride, padding, *_ = arguments
        assert out is not None
        low, high = (0, 255) if self.post.name == "none" else _bounds(self.post.name, self.post.numbers, out)
        with node.graph.inserting_before(last):
            packed = like(node, torch.ops.ptdebug.pack_int8_depthwise.default, self.weight.node, self.weight.zeros)
            packed.meta["packed"] = True
            call = like(last, int8_depthwise.OPERATOR, self.image.node, self.image.scale, self.image.zero, packed,
                        self.weight.scales, bias, stride[0], _pair(padding), out.scale, out.zero, low, high)
        return self.put(call)


def by_own_kernel(found: Convolution, context: CompileContext) -> Convolution:
    """`found`, for ptdebug's kernel where that is chosen: decisions of kind "int8-depthwise"."""
    node, filters = found.nodes[0], found.weight.node.meta["val"]
    arguments: tuple[Any, ...] = node.args
    if arguments[8] == 1 or arguments[8] != filters.shape[0] or filters.shape[1] != 1:
        return found
    refused = _refused(found, arguments)
    options = (BY_ONEDNN,) if refused else (BY_PTDEBUG, BY_ONEDNN)
    why = refused or "three pixels of a filter are one instruction of VNNI, and results share what it reads"
    origins = (f"forward#{node.name}",)
    if context.decide("int8-depthwise", node.name, options, options[0], why, origins=origins) == BY_ONEDNN:
        return found
    return Depthwise(found.nodes, found.image, found.weight, None, found.post, found.out)


def _refused(found: Convolution, arguments: tuple[Any, ...]) -> str:
    """Why ptdebug's kernel does not take a depthwise convolution; "" if it does."""
    _, filters, bias, stride, _, dilation, *_ = arguments
    side = int8_depthwise.SIDE
    if tuple(filters.meta["val"].shape[2:]) != (side, side) or _pair(dilation) != [1, 1]:
        return f"its filters are not of {side} by {side} adjacent pixels"
    if len(set(stride)) != 1 or stride[0] not in int8_depthwise.STRIDES:
        return "its stride is neither 1 nor 2"
    if found.out is None or found.nodes[-1].meta["val"].dtype is not torch.uint8 or found.other is not None:
        return "its result is not quantized to uint8, or something is added to it"
    if found.post.name not in ("none", "relu", "hardtanh"):
        return f"{found.post.name} is no clamp"
    if bias is not None and bias.meta["val"].dtype is not torch.float32:
        return "its bias is not float32"
    if not int8_depthwise.is_available():
        return "this CPU has no instructions of AVX-512 for sums of four products (VNNI), or there is no C++ compiler"
    return ""


def _pair(numbers: Sequence[int]) -> list[int]:
    """One for each dimension of an image; ATen takes one for both."""
    return [numbers[0], numbers[-1]]


def _bounds(name: str, numbers: tuple[float, ...], out: Quantity) -> tuple[int, int]:
    """The quantized bounds of a ReLU or a clamp."""
    low, high = numbers if name == "hardtanh" else (0.0, float("inf"))
    steps = torch.round(torch.tensor([low, high]) * (1.0 / out.scale)) + out.zero
    least, most = steps.clamp(0, 255).int().tolist()
    return least, most
