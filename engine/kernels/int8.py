"""Convolutions and linear layers on 8-bit integers by oneDNN: what its operators lack to be nodes of a graph.

Weights are packed once, where their values are known. oneDNN takes weights whose zero is 0, and says nothing of others:
where there is another zero, and what is left of the integers without it does not fit in 8 bits, packing raises
CannotBuild, and the call runs in eager. A sum is written into a copy of what is added, which the graph may read later;
where it does not, the scheduler leaves out the copy (`sum_in_place`). A convolution of single pixels is a product of
rows: its operator returns what it has written, where that of convolutions returns a copy.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
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
for name, added, result in (("int8_rows_sum", "Tensor", "Tensor"), ("int8_rows_sum_", "Tensor(a!)", "Tensor(a!)")):
    _LIBRARY.define(f"{name}(Tensor x, float x_scale, int x_zero, Tensor weight, Tensor scales, Tensor zero_points, "
                    f"{added} other, Tensor? bias, float out_scale, int out_zero, ScalarType out_dtype, "
                    f"float other_scale, int other_zero, str unary) -> {result}")


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
    """The weight (outputs, inputs) of a linear layer, or of a convolution of single pixels, in oneDNN's layout for rows
    of `shape`."""
    rows = without_zero(weight, zero_points).flatten(1)
    packed: torch.Tensor = torch.ops.onednn.qlinear_prepack.default(rows, shape)
    return packed


def convolution_sum(
    x: torch.Tensor, x_scale: float, x_zero: int, weight: torch.Tensor, scales: torch.Tensor, zero_points: torch.Tensor,
    other: torch.Tensor, bias: torch.Tensor | None, stride: list[int], padding: list[int], dilation: list[int],
    groups: int, out_scale: float, out_zero: int, out_dtype: torch.dtype, other_scale: float, other_zero: int,
    unary: str,
) -> torch.Tensor:
    """The convolution of `x`, plus `other` (both quantized), then `unary`, quantized."""
    operator, arguments = sum_in_place(SUM, (
        x, x_scale, x_zero, weight, scales, zero_points, other.clone(memory_format=torch.channels_last), bias, stride,
        padding, dilation, groups, out_scale, out_zero, out_dtype, other_scale, other_zero, unary))
    result: torch.Tensor = operator(*arguments)
    return result


def rows_sum_in_place(*arguments: Any) -> torch.Tensor:
    """The same for single pixels, arguments as in `ROWS_SUM`: it overwrites `other`, and returns it."""
    other: torch.Tensor = arguments[ADDED]
    image = arguments[0].contiguous(memory_format=torch.channels_last)
    given = rows_arguments((image, *arguments[1:]), lambda image: image.movedim(1, -1).view(-1, image.shape[1]))
    torch.ops.onednn.qlinear_pointwise.binary(*given)
    return other


def rows_sum(*arguments: Any) -> torch.Tensor:
    """The same, written into a copy of `other`."""
    copy = arguments[ADDED].clone(memory_format=torch.channels_last)
    return rows_sum_in_place(*arguments[:ADDED], copy, *arguments[ADDED + 1 :])


def rows_arguments(arguments: Sequence[Any], rows_of: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Arguments of oneDNN's product of rows for those of `ROWS_SUM`; `rows_of` gives the pixels of images as rows."""
    *before, unary = arguments
    given = [rows_of(value) if k in (0, ADDED) else value for k, value in enumerate(before)]
    return (*given, "sum", 1.0, unary, [], "")


def sum_in_place(operator: Any, arguments: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """The operator that overwrites what is added, and its arguments, for those of one of `SUMS`."""
    if operator is ROWS_SUM:
        return ROWS_SUM_IN_PLACE, arguments
    *before, unary = arguments
    return torch.ops.onednn.qconv2d_pointwise.binary, (*before, "sum", 1.0, unary, [], "")


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
    return torch.empty_like(arguments[ADDED], memory_format=torch.channels_last)


for name, kernel, meta in (("pack_int8_convolution", pack_convolution, _like_weight),
                           ("pack_int8_linear", pack_linear, _like_weight),
                           ("int8_convolution_sum", convolution_sum, _like_other),
                           ("int8_rows_sum", rows_sum, _like_other),
                           ("int8_rows_sum_", rows_sum_in_place, lambda *arguments: arguments[ADDED])):
    for key in ("CPU", "MkldnnCPU"):  # that of packed weights
        _LIBRARY.impl(name, kernel, key)
    _LIBRARY.impl(name, meta, "Meta")

SUM = torch.ops.ptdebug.int8_convolution_sum.default
ROWS_SUM, ROWS_SUM_IN_PLACE = torch.ops.ptdebug.int8_rows_sum.default, torch.ops.ptdebug.int8_rows_sum_.default
SUMS = (SUM, ROWS_SUM)
ADDED = 6
"""The position of what is added among the arguments of each."""
