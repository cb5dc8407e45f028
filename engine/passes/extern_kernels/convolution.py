"""The implementations of one 2-d convolution, and how long each takes here.

- `contiguous`: ATen, on images as PyTorch stores them (N, C, H, W).
- `channels-last`: ATen, on channels-last images; the weight stays as it is, and ATen reorders it. A frozen weight is
  prepacked for oneDNN instead, which then also adds the image that `weight_prepacking.py` finds after the convolution.
- `matmul`: channels-last, for 1x1 kernels: one matrix product over all pixels (those that the stride visits), by the
  kernel that `matmul.py` will choose for it.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
import torch.fx

from ...kernels import sgemm
from ...toolchain.benchmarking import Call, costs
from .matmul import LONGEST, SMALL, onednn

aten = torch.ops.aten

CONTIGUOUS, LAST, PRODUCT = "contiguous", "channels-last", "matmul"
BY_ONEDNN, BY_OWN = "matmul-onednn", "matmul-ptdebug"


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
    frozen: bool = False

    def costs(self) -> dict[str, float]:
        """Seconds of each way, by its name; nothing where the machine is too busy to tell."""
        others = self._other_products()
        known = costs(f"2-d convolution {self.describe()} {others}", self._calls)
        return {way: min(known[w] for w in (way, *(others if way == PRODUCT else ()))) for way in self.ways if known}

    def describe(self) -> str:
        """All that the time depends on."""
        rest = f"{self.stride} {self.padding} {self.dilation} {self.groups}{' frozen' if self.frozen else ''}"
        return f"{self.image} {self.weight} {self.bias} {rest}"

    @property
    def ways(self) -> tuple[str, ...]:
        """The names of the ways."""
        return (CONTIGUOUS, LAST, PRODUCT) if self.is_product else (CONTIGUOUS, LAST)

    @property
    def is_product(self) -> bool:
        """Whether each pixel of the result is a product of one pixel with the weight."""
        return self.weight[2:] == (1, 1) and self.padding == (0, 0) and self.groups == 1

    def _other_products(self) -> tuple[str, ...]:
        """The ways of computing the product besides ATen's."""
        if not self.is_product:
            return ()
        batch, channels, height, width = self.image
        pixels = batch * -(-height // self.stride[0]) * -(-width // self.stride[1])
        offered = {BY_ONEDNN: torch.backends.mkldnn.is_available() and channels <= LONGEST,
                   BY_OWN: pixels * channels * self.weight[0] >= SMALL and sgemm.KERNEL.available}
        return tuple([way for way, there in offered.items() if there])

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
            products: dict[str, Callable[[torch.Tensor], object]] = {
                PRODUCT: lambda rows: aten.mm.default(rows, columns), BY_ONEDNN: lambda rows: onednn(rows, columns.t()),
                BY_OWN: lambda rows: sgemm.product(rows, columns),
            }
            for way in (PRODUCT, *self._other_products()):
                calls[way] = partial(lambda by: by(pixels.reshape(-1, self.image[1])), products[way])
        if self.frozen:
            order = (list(self.padding), list(self.stride), list(self.dilation), self.groups)
            packed = torch.ops.mkldnn._reorder_convolution_weight(weight, *order, list(self.image))
            calls[LAST] = lambda: torch.ops.mkldnn._convolution_pointwise(turned, packed, bias, *order, "none", [], "")
        return calls


def recognize(node: torch.fx.Node, frozen: frozenset[torch.fx.Node] = frozenset()) -> Convolution | None:
    """The convolution that a node computes; None for what is left as it is. `frozen` are nodes known beforehand."""
    if node.target is not aten.convolution.default:
        return None
    arguments: tuple[Any, ...] = node.args
    image, weight, bias, stride, padding, dilation, transposed, _, groups = arguments
    values = [n.meta["val"] for n in (image, weight, node)]
    if transposed or node.kwargs or not _plain((image, weight, node)) or any(v.dim() != 4 for v in values):
        return None
    if not _is_set(node):
        return None
    packs = weight in frozen and torch.backends.mkldnn.is_available()
    return Convolution(
        node, tuple(values[0].shape), tuple(values[1].shape), bias is not None,
        _pair(stride), _pair(padding), _pair(dilation), groups, packs,
    )


def recognize_turned(node: torch.fx.Node) -> bool:
    """Whether a node is a 2-d float32 convolution of static sizes on the CPU, of an image with channels innermost."""
    if node.target is not aten.convolution.default or node.kwargs or node.args[6] or not _is_set(node):
        return False
    image, weight = (cast(torch.fx.Node, n).meta["val"] for n in node.args[:2])
    static = all(isinstance(s, int) and s > 0 for v in (image, weight) for s in v.shape)
    if image.dtype != torch.float32 or image.device.type != "cpu" or image.dim() != 4 or not static:
        return False
    return bool(image.is_contiguous(memory_format=torch.channels_last) and weight.is_contiguous())


def widen(node: torch.fx.Node) -> torch.fx.Node | None:
    """Write a convolution of rows, before its node, as one of images of one row; None for any other node.

    ATen does the same inside; outside, the image has a layout that can be chosen.
    """
    if node.target is not aten.convolution.default or node.kwargs or node.args[6]:
        return None
    image, weight, bias, stride, padding, dilation, _, _, groups = cast(tuple[Any, ...], node.args)
    if node.meta["val"].dim() != 3 or image.meta["val"].dim() != 3 or not _plain((image, weight, node)):
        return None

    def call(target: Any, *args: Any) -> torch.fx.Node:
        return _call(node, target, *args)

    with node.graph.inserting_before(node):
        wide = [call(aten.unsqueeze.default, n, 2) for n in (image, weight)]
        pairs = [[1, *stride], [0, *padding], [1, *dilation]]
        return call(aten.squeeze.dim, call(aten.convolution.default, *wide, bias, *pairs, False, [0, 0], groups), 2)


def as_product(found: Convolution) -> torch.fx.Node:
    """Write the convolution as a matrix product over pixels, before its node; the node that takes its place."""
    node = found.node
    image, weight, bias = node.args[:3]
    batch, outputs, height, width = node.meta["val"].shape
    channels = found.image[1]

    def call(target: Any, *args: Any) -> torch.fx.Node:
        return _call(node, target, *args)

    with node.graph.inserting_before(node):
        for dimension, step in zip((2, 3), found.stride):
            if step != 1:
                image = call(aten.slice.Tensor, image, dimension, 0, found.image[dimension], step)
        pixels = call(aten.reshape.default, call(aten.permute.default, image, [0, 2, 3, 1]),
                      [batch * height * width, channels])
        columns = call(aten.permute.default, call(aten.reshape.default, weight, [outputs, channels]), [1, 0])
        matmul = aten.mm.default if bias is None else aten.addmm.default
        total = call(matmul, *(() if bias is None else (bias,)), pixels, columns)
        whole = call(aten.reshape.default, total, [batch, height, width, outputs])
        return call(aten.permute.default, whole, [0, 3, 1, 2])


def _call(node: torch.fx.Node, target: Any, *args: Any) -> torch.fx.Node:
    """A new node with the provenance of `node`."""
    made = node.graph.call_function(target, args)
    made.meta.update(node.meta)
    made.meta["val"] = target(*torch.fx.node.map_arg(args, lambda n: n.meta["val"]))
    return made


def _plain(nodes: Sequence[torch.fx.Node]) -> bool:
    """Whether all are contiguous float32 tensors of static sizes on the CPU, with elements."""
    return all(
        v.dtype == torch.float32 and v.device.type == "cpu" and v.is_contiguous()
        and all(isinstance(s, int) and s > 0 for s in v.shape) for v in (n.meta["val"] for n in nodes)
    )


def _is_set(node: torch.fx.Node) -> bool:
    """Whether no step, padding, dilation or number of groups varies: sizes may be static where those are not."""
    *_, stride, padding, dilation, _, _, groups = cast(tuple[Any, ...], node.args)
    return all(isinstance(number, int) for number in (*stride, *padding, *dilation, groups))


def _pair(value: Any) -> tuple[int, ...]:
    return tuple(value) * 2 if len(value) == 1 else tuple(value)
