"""Softmax and the normalizations, each as the few loop bodies that fit its data flow."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch._prims_common import is_contiguous_for_memory_format_or_false

from ..ir.affine import ZERO, Size, constant, contiguous_strides, product, size, stored_strides
from ..unsupported import NoLowering
from .body import BodyBuilder, compute_dtype
from .lazy_tensors import Base, Index, Value, offset
from .pointwise import lazily_rounded
from .reductions import IN_REGISTERS, full_index, moments
from .registry import COMPOSITE, POINTWISE, lowering
from .views import regroup

if TYPE_CHECKING:
    from .graph import GraphLowering

aten = torch.ops.aten


def row_base(graph: GraphLowering, x: Value, dims: tuple[int, ...], dtype: torch.dtype) -> Base:
    """Metadata of a value for each row of `x`: the dimensions `dims` are 1."""
    shape = tuple([1 if d in dims else s for d, s in enumerate(x.size)])
    return Base(graph.node.name, shape, contiguous_strides(shape), dtype, x.device)


def row_reduce(graph: GraphLowering, x: Value, dim: int, kind: str, dtype: torch.dtype, finish: str = "") -> Value:
    """Reduce dimension `dim` (kept, as 1) in `dtype`, and apply the operation `finish`, to a new buffer."""
    base = row_base(graph, x, (dim,), dtype)
    name, node = graph.new_buffer(base), graph.node

    def body(e: BodyBuilder, index: Index, inner: Index) -> None:
        e.origin = node.name
        element = x.load(e, full_index(len(x.size), (dim,), index, inner, True))
        result = e.reduce(kind, e.cast(element, dtype), dtype)
        e.store(name, offset(index, base.stride), e(finish, result) if finish else result, dtype)

    graph.loops(base.size, base.stride, (x.size[dim],), body)
    base.buffer = name
    return Value(base, base.size)


def lazy(graph: GraphLowering, x: Value, dtype: torch.dtype, inputs: tuple[Value, ...], compute: Any) -> Value:
    """An intermediate of the node with the shape and layout of `x`."""
    whole = x.reindex is None and x.size == x.base.size
    order = stored_strides(x.size, x.base.stride) if whole else contiguous_strides(x.size)
    base = Base(graph.node.name, x.size, order, dtype, x.device, compute, "",
                1 + max(v.base.depth for v in inputs), frozenset(b for v in inputs for b in v.base.reads), True)
    return Value(base, base.size)


def settled(graph: GraphLowering, x: Value) -> Value:
    """`x`, realized when it is more than a cheap expression: it is about to be read several times."""
    base = x.base
    if not base.buffer and (base.heavy or base.depth > 2 or len(base.reads) > 1):
        graph.decide_stored(base, "it is read several times")
    return x


@lowering(aten._softmax.default, aten._log_softmax.default, aten._safe_softmax.default, kind=COMPOSITE)
def _softmax(graph: GraphLowering, node: torch.fx.Node, x: Value, dim: int, *rest: Any, **_: Any) -> Value:
    fake = node.meta["val"]
    if not x.size:
        raise NoLowering("softmax of a 0-d tensor")
    at, wide = dim % len(x.size), compute_dtype(fake.dtype)
    settled(graph, x)
    top = row_reduce(graph, x, at, "max", wide)
    safe = node.target is aten._safe_softmax.default

    def exponent(e: BodyBuilder, index: Index) -> str:
        return e("exp", e("sub", e.cast(x.load(e, index), wide), top.broadcast(e, _row(index, at))))

    if node.target is aten._log_softmax.default:
        # For a likely class the sum is just above 1, and its logarithm would be lost to rounding: float64 on a CPU.
        exact = torch.float64 if x.device.type == "cpu" else wide
        total = row_reduce(graph, lazy(graph, x, wide, (x, top), exponent), at, "sum", exact, finish="log")

        def logarithm(e: BodyBuilder, index: Index) -> str:
            shifted = e("sub", e.cast(x.load(e, index), wide), top.load(e, _row(index, at)))
            return e("sub", shifted, e.cast(total.load(e, _row(index, at)), wide))

        return lazily_rounded(graph, node, fake, (x, top, total), logarithm)
    powers = lazy(graph, x, wide, (x, top), exponent)
    if x.device.type == "cpu" or (type(x.size[at]) is int and x.size[at] <= IN_REGISTERS):
        graph.realize(powers.base)  # else a GPU would write them to memory: it has them twice as fast from the input
    total = row_reduce(graph, powers, at, "sum", wide)

    def quotient(e: BodyBuilder, index: Index) -> str:
        value = e("truediv", powers.load(e, index), total.load(e, _row(index, at)))
        if safe:  # rows that are -inf everywhere give 0
            value = e("where", e("eq", top.load(e, _row(index, at)), float("-inf")), 0.0, value)
        return value

    return lazily_rounded(graph, node, fake, (powers, total), quotient)


def _row(index: Index, at: int) -> Index:
    return index[:at] + (ZERO,) + index[at + 1:]


@lowering(aten.native_layer_norm.default, kind=COMPOSITE)
def _layer_norm(graph: GraphLowering, node: torch.fx.Node, x: Value, shape: Any, weight: Value | None,
                bias: Value | None, eps: float) -> tuple[Value, Value, Value]:
    out, mean_fake, _ = node.meta["val"]
    over = tuple(range(len(x.size) - len(shape), len(x.size)))
    wide = compute_dtype(out.dtype)
    settled(graph, x)
    mean, scale = _mean_and_scale(graph, x, over, eps, wide)
    first = over[0]

    def compute(e: BodyBuilder, index: Index) -> str:
        row = index[:first] + (ZERO,) * len(over)
        value = e("mul", e("sub", e.cast(x.load(e, index), wide), mean.load(e, row)), scale.load(e, row))
        if weight is not None:
            value = e("mul", value, e.cast(weight.load(e, index[first:]), wide))
        return value if bias is None else e("add", value, e.cast(bias.load(e, index[first:]), wide))

    affine = tuple(v for v in (weight, bias) if v is not None)
    result = lazily_rounded(graph, node, out, (x, mean, scale, *affine), compute)
    return result, statistic(graph, mean, mean_fake), statistic(graph, scale, mean_fake)


def _mean_and_scale(graph: GraphLowering, x: Value, over: tuple[int, ...], eps: float, wide: torch.dtype,
                    ) -> tuple[Value, Value]:
    """The mean and 1/sqrt(variance + eps) of each row, in `wide`."""
    count: Size = product(x.size[d] for d in over)

    def finish(e: BodyBuilder, squares: str) -> str:
        return e("rsqrt", e("add", e("truediv", squares, _count(e, count, wide)), eps))

    return moments(graph, x, over, row_base(graph, x, over, wide), row_base(graph, x, over, wide), True, finish)


def _count(e: BodyBuilder, count: Size, dtype: torch.dtype) -> str:
    return e.constant(count, dtype) if type(count) is int else e.cast(e.index_value(constant(count)), dtype)


def statistic(graph: GraphLowering, value: Value, fake: torch.Tensor) -> Value:
    """A row statistic in the shape and dtype in which the operator returns it."""
    shape = tuple(size(s) for s in fake.shape)
    view = value if shape == value.size else value.through(shape, regroup(value.size, shape))
    if value.dtype is fake.dtype:
        return view
    base = graph.base_of(fake, graph.node.name)
    base.compute = lambda e, index: e.rounded(view.load(e, index), fake.dtype)
    return Value(base, base.size)


@lowering(aten.native_group_norm.default, kind=COMPOSITE)
def _group_norm(graph: GraphLowering, node: torch.fx.Node, x: Value, weight: Value | None, bias: Value | None,
                n: Size, c: Size, hw: Size, groups: int, eps: float) -> tuple[Value, Value, Value]:
    out, mean_fake, _ = node.meta["val"]
    wide = compute_dtype(out.dtype)
    settled(graph, x)
    channels = x.size[1]
    if type(channels) is not int or 0 in x.size:
        raise NoLowering("group norm of nothing or with a symbolic number of channels")
    width = channels // groups
    split = (x.size[0], groups, width, *x.size[2:])
    grouped = x.through(split, lambda index: (index[0], index[1] * width + index[2], *index[3:]))
    over = tuple(range(2, len(split)))
    mean, scale = _mean_and_scale(graph, grouped, over, eps, wide)

    def compute(e: BodyBuilder, index: Index) -> str:
        row = (index[0], index[1] // width) + (ZERO,) * len(over)
        value = e("mul", e("sub", e.cast(x.load(e, index), wide), mean.load(e, row)), scale.load(e, row))
        if weight is not None:
            value = e("mul", value, e.cast(weight.load(e, (index[1],)), wide))
        return value if bias is None else e("add", value, e.cast(bias.load(e, (index[1],)), wide))

    affine = tuple(v for v in (weight, bias) if v is not None)
    result = lazily_rounded(graph, node, out, (x, mean, scale, *affine), compute)
    return result, statistic(graph, mean, mean_fake), statistic(graph, scale, mean_fake)


@lowering(aten._native_batch_norm_legit_no_training.default, kind=POINTWISE)
def _batch_norm_eval(graph: GraphLowering, node: torch.fx.Node, x: Value, weight: Value | None, bias: Value | None,
                     mean: Value, variance: Value, momentum: float, eps: float) -> tuple[Value, ...]:
    return _evaluated(graph, node, x, weight, bias, mean, variance, eps)


@lowering(aten.native_batch_norm.default, kind=POINTWISE)
def _batch_norm(graph: GraphLowering, node: torch.fx.Node, x: Value, weight: Value | None, bias: Value | None,
                mean: Value | None, variance: Value | None, training: bool, momentum: float, eps: float) -> Any:
    if training or mean is None or variance is None:
        raise NoLowering("batch norm in training mode is left to ATen")
    return _evaluated(graph, node, x, weight, bias, mean, variance, eps)


def _evaluated(graph: GraphLowering, node: torch.fx.Node, *args: Any) -> tuple[Value, ...]:
    """The normalized tensor, and the batch statistics that evaluation does not compute: tensors without elements."""
    saved = [graph.base_of(fake, node.name) for fake in node.meta["val"][1:3]]
    for base in saved:
        base.compute = lambda e, index, dtype=base.dtype: e.constant(0, dtype)
    return _normalized(graph, node, *args), *[Value(base, base.size) for base in saved]


def _normalized(graph: GraphLowering, node: torch.fx.Node, x: Value, weight: Value | None, bias: Value | None,
                mean: Value, variance: Value, eps: float) -> Value:
    """x * alpha + beta with alpha and beta of the channel, as ATen's kernel for dense tensors computes it; that for
    others subtracts the mean first (aten/src/ATen/native/Normalization.cpp), and so do a GPU's, which then multiply by
    the weight before the scale (cuda/Normalization.cuh): that decides where numbers overflow."""
    out = node.meta["val"][0]
    wide = compute_dtype(out.dtype)
    image, *channels = [n.meta["val"] for n in node.args[:5] if isinstance(n, torch.fx.Node)]
    dense = _is_dense(image, MEMORY_FORMATS) and all(_is_dense(c, MEMORY_FORMATS[:1]) for c in channels)

    def compute(e: BodyBuilder, index: Index) -> str:
        channel = (index[1],)
        element, middle = e.cast(x.load(e, index), wide), e.cast(mean.load(e, channel), wide)
        scale = e("rsqrt", e("add", e.cast(variance.load(e, channel), wide), eps))
        factor = None if weight is None else e.cast(weight.load(e, channel), wide)
        shift = None if bias is None else e.cast(bias.load(e, channel), wide)
        if not dense:
            factors = [scale, factor] if x.device.type == "cpu" else [factor, scale]
            value = e("sub", element, middle)
            for each in factors:
                value = value if each is None else e("mul", value, each)
            return value if shift is None else e("add", value, shift)
        alpha = scale if factor is None else e("mul", scale, factor)
        moved = e("mul", middle, alpha)
        beta = e("neg", moved) if shift is None else e("sub", shift, moved)
        return e("add", e("mul", element, alpha), beta)

    affine = tuple(v for v in (weight, bias) if v is not None)
    return lazily_rounded(graph, node, out, (x, mean, variance, *affine), compute)


MEMORY_FORMATS = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)


def _is_dense(tensor: torch.Tensor, formats: Sequence[torch.memory_format]) -> bool:
    return tensor.device.type == "cpu" and any(
        is_contiguous_for_memory_format_or_false(tensor, memory_format=f) for f in formats)
