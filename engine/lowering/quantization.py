"""Quantization of `torch.export`'s flows (PT2E): the operators of `quantized_decomposed` as loops.

Those operators exist once a program has imported `torch.ao.quantization.fx._decomposed` (torchao does), which says how
each number is rounded; the loops round as it does. Here a value is quantized or dequantized where it is read or
written; which products and convolutions run on the integers themselves, `passes/extern_kernels/int8/` decides.
"""
from __future__ import annotations

from typing import Any

import torch
import torch.fx

from ..ir.affine import constant
from ..unsupported import NoLowering
from .body import BodyBuilder
from .graph import GraphLowering
from .lazy_tensors import Index, Value
from .pointwise import lazily_rounded
from .registry import POINTWISE, lowering

decomposed = torch.ops.quantized_decomposed

INTEGERS = frozenset((torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32))
ZEROS = (torch.int32, torch.int64, torch.float32)  # less a narrower one, eager's integers wrap around


@lowering(decomposed.quantize_per_tensor.default, decomposed.quantize_per_tensor.tensor, kind=POINTWISE)
def _quantize(graph: GraphLowering, node: torch.fx.Node, x: Value, scale: Any, zero_point: Any, low: int, high: int,
              dtype: torch.dtype) -> Value:
    """`clamp(round(x * (1 / scale)) + zero_point, low, high)`, in float32, the reciprocal in float64."""
    _check(x.dtype.is_floating_point and dtype in INTEGERS, low, high)

    def compute(e: BodyBuilder, index: Index) -> str:
        step = _element(e, scale, torch.float64)
        inverse = 1.0 / step if isinstance(step, float) else e.cast(e("truediv", 1.0, step), torch.float32)
        zero = _element(e, zero_point, torch.float32)
        return _quantized(e, e.cast(x.load(e, index), torch.float32), inverse, zero, low, high, dtype)

    return graph.pointwise(node, node.meta["val"], (x, scale, zero_point), compute)


@lowering(decomposed.quantize_per_channel.default, kind=POINTWISE)
def _quantize_channels(graph: GraphLowering, node: torch.fx.Node, x: Value, scales: Value, zero_points: Value,
                       axis: int, low: int, high: int, dtype: torch.dtype) -> Value:
    """As `_quantize`, with a scale and a zero point for each index along `axis`; the reciprocal in float32."""
    _check(x.dtype.is_floating_point and dtype in INTEGERS and scales.dtype is torch.float32, low, high)

    def compute(e: BodyBuilder, index: Index) -> str:
        along = (index[axis],)
        inverse = e("truediv", 1.0, scales.load(e, along))
        zero = e.cast(zero_points.load(e, along), torch.float32)
        return _quantized(e, e.cast(x.load(e, index), torch.float32), inverse, zero, low, high, dtype)

    return graph.pointwise(node, node.meta["val"], (x, scales, zero_points), compute)


@lowering(decomposed.dequantize_per_tensor.default, decomposed.dequantize_per_tensor.tensor, kind=POINTWISE)
def _dequantize(graph: GraphLowering, node: torch.fx.Node, x: Value, scale: Any, zero_point: Any, low: int, high: int,
                dtype: torch.dtype, *, out_dtype: torch.dtype | None = None) -> Value:
    """`(x - zero_point) * scale`, in the result's dtype."""
    _check(x.dtype in INTEGERS and (out_dtype or torch.float32).is_floating_point)

    def compute(e: BodyBuilder, index: Index) -> str:
        zero, step = _element(e, zero_point, torch.float32), _element(e, scale, torch.float32)
        return e("mul", e("sub", e.cast(x.load(e, index), torch.float32), zero), step)

    return lazily_rounded(graph, node, node.meta["val"], (x, scale, zero_point), compute)


@lowering(decomposed.dequantize_per_channel.default, kind=POINTWISE)
def _dequantize_channels(graph: GraphLowering, node: torch.fx.Node, x: Value, scales: Value, zero_points: Value | None,
                         axis: int, low: int, high: int, dtype: torch.dtype, *,
                         out_dtype: torch.dtype | None = None) -> Value:
    """`(x - zero_points) * scales` along `axis`: the difference of integers is exact."""
    _check(x.dtype in INTEGERS and scales.dtype is torch.float32)
    _check(zero_points is None or zero_points.dtype in ZEROS)

    def compute(e: BodyBuilder, index: Index) -> str:
        along = (index[axis],)
        value = e.cast(x.load(e, index), torch.float32)
        if zero_points is not None:
            value = e("sub", value, e.cast(zero_points.load(e, along), torch.float32))
        return e("mul", value, scales.load(e, along))

    return lazily_rounded(graph, node, node.meta["val"], (x, scales, zero_points), compute)


def _check(known: bool, *numbers: Any) -> None:
    if not known or not all(isinstance(number, int) for number in numbers):
        raise NoLowering("a quantization of dtypes or to bounds that loops do not know")


def _element(e: BodyBuilder, number: Any, dtype: torch.dtype) -> Any:
    """A parameter: a Python number as it is, or the element of a tensor of one, in `dtype`."""
    if isinstance(number, Value):
        return e.cast(number.load(e, (constant(0),) * len(number.size)), dtype)
    if not isinstance(number, (int, float)):
        raise NoLowering("a quantization whose scale or zero point varies")
    return number


def _quantized(e: BodyBuilder, value: str, inverse: Any, zero: Any, low: int, high: int, dtype: torch.dtype) -> str:
    step = e("add", e("round", e("mul", value, inverse)), zero)
    return e.cast(e("minimum", e("maximum", step, low), high), dtype)
