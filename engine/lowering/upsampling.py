"""Bilinear upsampling in two passes: along the rows into a narrow buffer, then between its rows.

A single pass would gather four elements for each result; two passes gather two for each element of the narrow buffer,
and the second pass reads whole rows. The arithmetic is that of ATen's UpSampleKernel.cpp: source = ratio * (index +
0.5) - 0.5, in the compute dtype. Where a size stays as it is, a CPU's kernel takes each element for itself, whatever
the scale says; a GPU's does so where all of them stay, and else asks the scale (cuda/UpSampleBilinear2d.cu).
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ..ir.affine import Linear, Size, contiguous_strides
from ..unsupported import NoLowering
from .body import BodyBuilder, compute_dtype
from .lazy_tensors import Base, Index, Value
from .registry import COMPOSITE, GATHER, lowering

if TYPE_CHECKING:
    from .graph import GraphLowering

aten = torch.ops.aten

MANY = 8  # lines whose elements are made of the same places: these are computed once
Taps = tuple[tuple[Linear, str], tuple[Linear, str]]  # two source indices with their weights


@lowering(aten.upsample_bilinear2d.default, kind=COMPOSITE)
def _bilinear(graph: GraphLowering, node: torch.fx.Node, x: Value, output_size: Sequence[Size], corners: bool,
              scale_h: float | None = None, scale_w: float | None = None) -> Value:
    fake = node.meta["val"]
    rows, columns = x.size[2:]
    high, wide = output_size[-2:]
    if not all(type(n) is int for n in (rows, columns, high, wide)) or 0 in x.size or not x.dtype.is_floating_point:
        raise NoLowering("bilinear upsampling of symbolic sizes or integers")
    if _is_copy(x, output_size):
        return graph.pointwise(node, fake, (x,), lambda e, index: x.load(e, index))
    dtype = compute_dtype(x.dtype)
    if not x.base.buffer and x.base.heavy:
        graph.decide_stored(x.base, "each element is read for several of the result")

    taps = _taps_of_lines(graph, x, columns, wide, corners, scale_w, dtype)

    def along_rows(e: BodyBuilder, index: Index) -> str:
        batch, channel, row, column = index
        return _mixed(e, taps(e, column), lambda place: x.load(e, (batch, channel, row, place)))

    size = (*x.size[:2], rows, wide)
    last = x.base.stride[-1:] == (1,) and x.reindex is None  # else channels are what is contiguous
    strides = contiguous_strides(size) if last else _channels_last(size)
    reads = frozenset((x.base.buffer,)) if x.base.buffer else x.base.reads
    narrow = Value(Base(node.name, size, strides, dtype, x.device, along_rows, reads=reads), size)
    graph.realize(narrow.base)

    def between_rows(e: BodyBuilder, index: Index) -> str:
        batch, channel, row, column = index
        value = _mixed(e, _taps(e, row, rows, high, corners, scale_h, dtype, x.device),
                       lambda place: narrow.load(e, (batch, channel, place, column)))
        return e.rounded(value, fake.dtype)

    return graph.pointwise(node, fake, (narrow,), between_rows)


@lowering(aten.upsample_linear1d.default, kind=GATHER)
def _linear(graph: GraphLowering, node: torch.fx.Node, x: Value, output_size: Sequence[Size], corners: bool,
            scale: float | None = None) -> Value:
    fake = node.meta["val"]
    given, wanted = x.size[-1], output_size[-1]
    if type(given) is not int or type(wanted) is not int or 0 in x.size or not x.dtype.is_floating_point:
        raise NoLowering("linear upsampling of symbolic sizes or integers")
    if _is_copy(x, output_size):
        return graph.pointwise(node, fake, (x,), lambda e, index: x.load(e, index))
    dtype = compute_dtype(x.dtype)

    taps = _taps_of_lines(graph, x, given, wanted, corners, scale, dtype)

    def compute(e: BodyBuilder, index: Index) -> str:
        value = _mixed(e, taps(e, index[-1]), lambda place: x.load(e, (*index[:-1], place)))
        return e.rounded(value, fake.dtype)

    return graph.gather(node, (x,), compute)


def _is_copy(x: Value, output_size: Sequence[Size]) -> bool:
    """Whether a GPU's kernel copies the image."""
    return x.device.type != "cpu" and tuple(x.size[2:]) == tuple(output_size)


def _channels_last(size: Sequence[Size]) -> tuple[Size, ...]:
    channels, rows, columns = size[1:]
    return (channels * rows * columns, 1, channels * columns, channels)


def _mixed(e: BodyBuilder, taps: Taps, load: Any) -> str:
    (one, first), (other, second) = taps
    return e("add", e("mul", load(one), first), e("mul", load(other), second))


def _taps_of_lines(graph: GraphLowering, x: Value, given: int, wanted: int, corners: bool, scale: float | None,
                   dtype: torch.dtype) -> Callable[[BodyBuilder, Linear], Taps]:
    """`_taps` of all lines of an image: on a CPU from two small buffers, where the lines are many."""
    lines = [n for n in x.size[:-1] if type(n) is int]
    if x.device.type != "cpu" or given == wanted or (len(lines) == len(x.size) - 1 and math.prod(lines) < MANY):
        return lambda e, place: _taps(e, place, given, wanted, corners, scale, dtype, x.device)

    def stored(kind: torch.dtype, value: Callable[[BodyBuilder, Index], str]) -> Value:
        made = Value(Base(graph.node.name, (wanted,), (1,), kind, x.device, value, reads=frozenset()), (wanted,))
        graph.realize(made.base)
        return made

    places = stored(torch.int32, lambda e, index: e.cast(
        _place_and_share(e, index[0], given, wanted, corners, scale, dtype)[0], torch.int32))
    shares = stored(dtype, lambda e, index: _place_and_share(e, index[0], given, wanted, corners, scale, dtype)[1])

    def taps(e: BodyBuilder, place: Linear) -> Taps:
        return _both(e, places.load(e, (place,)), shares.load(e, (place,)), given, dtype)

    return taps


def _taps(e: BodyBuilder, place: Linear, given: int, wanted: int, corners: bool, scale: float | None,
          dtype: torch.dtype, device: torch.device) -> Taps:
    """The two elements of a line of `given` elements that element `place` of `wanted` is made of."""
    if given == wanted and device.type == "cpu":
        return (place, e.constant(1.0, dtype)), (place, e.constant(0.0, dtype))
    return _both(e, *_place_and_share(e, place, given, wanted, corners, scale, dtype), given, dtype)


def _place_and_share(e: BodyBuilder, place: Linear, given: int, wanted: int, corners: bool, scale: float | None,
                     dtype: torch.dtype) -> tuple[str, str]:
    """The first element that element `place` is made of, and the weight of the one after it."""
    at = e.cast(e.index_value(place), dtype)
    ratio = _ratio(given, wanted, corners, scale, dtype)
    if corners:
        source = e("mul", at, ratio)
    else:
        source = e("maximum", e("sub", e("mul", e("add", at, 0.5), ratio), 0.5), 0.0)
    whole = e("minimum", e.cast(source, torch.int64), given - 1)
    return whole, e("minimum", e("maximum", e("sub", source, e.cast(whole, dtype)), 0.0), 1.0)


def _both(e: BodyBuilder, whole: str, second: str, given: int, dtype: torch.dtype) -> Taps:
    first = e("sub", e.constant(1.0, dtype), second)
    after = e("minimum", e("add", whole, 1), given - 1)
    return (e.indirect(whole, given, unchecked=True), first), (e.indirect(after, given, unchecked=True), second)


def _ratio(given: int, wanted: int, corners: bool, scale: float | None, dtype: torch.dtype) -> float:
    """Source elements for each result, in `dtype` as ATen computes it."""
    one = torch.ones((), dtype=dtype)
    if corners:
        return float(one * (given - 1) / (wanted - 1)) if wanted > 1 else 0.0
    return float(one * (1.0 / scale)) if scale is not None and scale > 0 else float(one * given / wanted)
