"""Convolutions and linear layers on 8-bit integers by oneDNN: what its operators lack to be nodes of a graph.

Weights are packed once, where their values are known. oneDNN takes weights whose zero is 0, and says nothing of others:
where there is another zero, and what is left of the integers without it does not fit in 8 bits, packing raises
CannotBuild, and the call runs in eager. A sum is written into a copy of what is added, which the graph may read later;
where it does not, the scheduler leaves out the copy (`sum_in_place`).
"""
from __future__ import annotations

from typing import Any

import torch

from ..toolchain.cpp_build import CannotBuild

_LIBRARY = torch.library.Library("ptdebug", "FRAGMENT")
_LIBRARY.define("pack_int8_convolution(Tensor weight, Tensor scales, Tensor? zero_points, float x_scale, int x_zero, "
                "int[] stride, int[] padding, int[] dilation, int groups, int[]? shape) -> Tensor")
_LIBRARY.define("pack_int8_linear(Tensor weight, Tensor? zero_points, int[]? shape) -> Tensor")
_LIBRARY.define("int8_convolution_sum(Tensor x, float x_scale, int x_zero, Tensor weight, Tensor scales, "
                "Tensor zero_points, Tensor other, Tensor? bias, int[] stride, int[] padding, int[] dilation, "
                "int groups, float out_scale, int out_zero, ScalarType out_dtype, float other_scale, int other_zero, "
                "str unary) -> Tensor")


def pack_convolution(
    weight: torch.Tensor, scales: torch.Tensor, zero_points: torch.Tensor | None, x_scale: float, x_zero: int,
    stride: list[int], padding: list[int], dilation: list[int], groups: int, shape: list[int] | None,
) -> torch.Tensor:
    """The weight (outputs, inputs, height, width) of a convolution, in oneDNN's layout for images of `shape`."""
    weight = without_zero(weight, zero_points)
    pack: Any = torch.ops.onednn.qconv_prepack.default
    packed: torch.Tensor = pack(weight, scales, x_scale, x_zero, stride, padding, dilation, groups, shape)
    return packed


def pack_linear(weight: torch.Tensor, zero_points: torch.Tensor | None, shape: list[int] | None) -> torch.Tensor:
    """The weight (outputs, inputs) of a linear layer, in oneDNN's layout for rows of `shape`."""
    packed: torch.Tensor = torch.ops.onednn.qlinear_prepack.default(without_zero(weight, zero_points), shape)
    return packed


def convolution_sum(
    x: torch.Tensor, x_scale: float, x_zero: int, weight: torch.Tensor, scales: torch.Tensor, zero_points: torch.Tensor,
    other: torch.Tensor, bias: torch.Tensor | None, stride: list[int], padding: list[int], dilation: list[int],
    groups: int, out_scale: float, out_zero: int, out_dtype: torch.dtype, other_scale: float, other_zero: int,
    unary: str,
) -> torch.Tensor:
    """The convolution of `x`, plus `other` (both quantized), then `unary`, quantized."""
    operator, arguments = sum_in_place((
        x, x_scale, x_zero, weight, scales, zero_points, other.clone(memory_format=torch.channels_last), bias, stride,
        padding, dilation, groups, out_scale, out_zero, out_dtype, other_scale, other_zero, unary))
    result: torch.Tensor = operator(*arguments)
    return result


def sum_in_place(arguments: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """oneDNN's operator, which overwrites what is added, and its arguments, for those of `SUM`."""
    *before, other_scale, other_zero, unary = arguments
    return torch.ops.onednn.qconv2d_pointwise.binary, (*before, other_scale, other_zero, "sum", 1.0, unary, [], "")


def without_zero(weight: torch.Tensor, zero_points: torch.Tensor | None) -> torch.Tensor:
    """The integers less their zero points, which are of each output."""
    if zero_points is None or not zero_points.any():
        return weight.contiguous()
    wide = weight.int() - zero_points.int().view(-1, *[1] * (weight.dim() - 1))
    if int(wide.min()) < -128 or int(wide.max()) > 127:
        raise CannotBuild("the quantized weights have a zero point that oneDNN's integers cannot do without")
    return wide.to(torch.int8)


def _like_weight(weight: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.empty_like(weight)


def _like_other(*arguments: Any) -> torch.Tensor:
    return torch.empty_like(arguments[6], dtype=arguments[14], memory_format=torch.channels_last)


for name, kernel, meta in (("pack_int8_convolution", pack_convolution, _like_weight),
                           ("pack_int8_linear", pack_linear, _like_weight),
                           ("int8_convolution_sum", convolution_sum, _like_other)):
    for key in ("CPU", "MkldnnCPU"):  # that of packed weights
        _LIBRARY.impl(name, kernel, key)
    _LIBRARY.impl(name, meta, "Meta")

SUM = torch.ops.ptdebug.int8_convolution_sum.default
ADDED = 6
"""The position of what is added among the arguments of `SUM`, and of oneDNN's operator."""
