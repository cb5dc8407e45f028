"""The ways of computing one 2-d convolution, and what each costs here.

- `contiguous`: ATen, on images as PyTorch stores them (N, C, H, W).
- `channels-last`: ATen, on images whose channels are innermost; the weight stays as it is, and ATen turns it.
- `product`: channels-last, for 1x1 kernels: one matrix product over all pixels (those that the stride visits).
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from .measure import Call, costs

aten = torch.ops.aten

CONTIGUOUS, LAST, PRODUCT = "contiguous", "channels-last", "product"


@dataclass(frozen=True)
class Convolution:
    """A 2-d float32 convolution of static sizes on the CPU; `node` is its node in the ATen graph."""

    node: torch.fx.Node
    image: tuple[int, ...]
    weight: tuple[int, ...]
    bias: bool
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def costs(self) -> dict[str, float]:
        """Seconds of each way, by its name."""
        return costs(f"convolution {self.describe()}", self._calls)

    def describe(self) -> str:
        """All that the time depends on."""
        return f"{self.image} {self.weight} {self.bias} {self.stride} {self.padding} {self.dilation} {self.groups}"

    @property
    def is_product(self) -> bool:
        """Whether each pixel of the result is a product of one pixel with the weight."""
        return self.weight[2:] == (1, 1) and self.padding == (0, 0) and self.groups == 1

    def _calls(self) -> dict[str, Call]:
        image = torch.full(self.image, 0.5)
        weight = torch.full(self.weight, 0.5)
        bias = torch.full(self.weight[:1], 0.5) if self.bias else None
        turned = image.contiguous(memory_format=torch.channels_last)
        rest = (list(self.stride), list(self.padding), list(self.dilation), False, [0, 0], self.groups)
        calls: dict[str, Call] = {
            CONTIGUOUS: lambda: aten.convolution.default(image, weight, bias, *rest),
            LAST: lambda: aten.convolution.default(turned, weight, bias, *rest),
        }
        if self.is_product:
            down, across = self.stride
            pixels, columns = turned.permute(0, 2, 3, 1)[:, ::down, ::across], weight.flatten(1).t()
            calls[PRODUCT] = lambda: aten.mm.default(pixels.reshape(-1, self.image[1]), columns)
        return calls


def recognize(node: torch.fx.Node) -> Convolution | None:
    """The convolution that a node computes; None for what is left as it is."""
    if node.target is not aten.convolution.default:
        return None
    arguments: tuple[Any, ...] = node.args
    image, weight, bias, stride, padding, dilation, transposed, _, groups = arguments
    values = [n.meta["val"] for n in (image, weight, node)]
    if transposed or node.kwargs or any(
        v.dim() != 4 or v.dtype != torch.float32 or v.device.type != "cpu" or not v.is_contiguous()
        or not all(isinstance(s, int) and s > 0 for s in v.shape) for v in values
    ):
        return None
    return Convolution(
        node, tuple(values[0].shape), tuple(values[1].shape), bias is not None,
        _pair(stride), _pair(padding), _pair(dilation), groups,
    )


def as_product(found: Convolution) -> torch.fx.Node:
    """Write the convolution as a matrix product over pixels, before its node; the node that takes its place."""
    node, graph = found.node, found.node.graph
    image, weight, bias = node.args[:3]
    batch, outputs, height, width = node.meta["val"].shape
    channels = found.image[1]

    def call(target: Any, *args: Any) -> torch.fx.Node:
        made = graph.call_function(target, args)
        made.meta.update(node.meta)
        made.meta["val"] = target(*torch.fx.node.map_arg(args, lambda n: n.meta["val"]))
        return made

    with graph.inserting_before(node):
        for dimension, step in zip((2, 3), found.stride):
            if step != 1:
                image = call(aten.slice.Tensor, image, dimension, 0, found.image[dimension], step)
        pixels = call(aten.reshape.default, call(aten.permute.default, image, [0, 2, 3, 1]),
                      [batch * height * width, channels])
        columns = call(aten.permute.default, call(aten.reshape.default, weight, [outputs, channels]), [1, 0])
        product = aten.mm.default if bias is None else aten.addmm.default
        total = call(product, *(() if bias is None else (bias,)), pixels, columns)
        whole = call(aten.reshape.default, total, [batch, height, width, outputs])
        return call(aten.permute.default, whole, [0, 3, 1, 2])


def _pair(value: Any) -> tuple[int, ...]:
    return tuple(value) * 2 if len(value) == 1 else tuple(value)
