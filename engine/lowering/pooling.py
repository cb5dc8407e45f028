"""Pooling over windows, forward and backward: each window's elements are read one after the other, in ATen's order.

A backward gathers: an element of the input looks at the few windows that it can be in. So it needs no atomic additions,
and adds in ATen's order too. Windows that share most of their elements are gone through in two passes, along the last
dimension and then along the others: 7 x 7 elements are 14 reads. Large windows are left to ATen.
"""
from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ..ir.affine import Linear, Size, constant
from ..ir.ir import identity
from ..unsupported import NoLowering
from .body import BodyBuilder, compute_dtype
from .concat import inside
from .lazy_tensors import Base, Compute, Index, Value, offset
from .pointwise import lazily_rounded
from .registry import COMPOSITE, GATHER, lowering

if TYPE_CHECKING:
    from .graph import GraphLowering

aten = torch.ops.aten
UNROLLED = 49  # elements of a window, or windows of an element, that are unrolled
_WINDOWED = "an element is read in several windows"
PASS = 4  # reads that a second pass over an image costs for each element


@dataclass(frozen=True)
class Windows:
    """Windows over the last dimensions, of the sizes `given`: one entry for each of these dimensions."""

    given: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def places(self) -> list[tuple[int, ...]]:
        """The elements of a window, by their position in it."""
        return list(itertools.product(*[range(k) for k in self.kernel]))

    @property
    def around(self) -> list[tuple[int, ...]]:
        """The windows that an element can be in: how many steps before the last one that begins at it or before."""
        reach = [-(-((k - 1) * d + 1) // s) for k, d, s in zip(self.kernel, self.dilation, self.stride)]
        return list(itertools.product(*[range(n - 1, -1, -1) for n in reach]))

    @property
    def overlap(self) -> bool:
        """Whether two passes read less than one: the first makes a row of sums for each row of the tensor."""
        first, rest, steps = self.kernel[-1], math.prod(self.kernel[:-1]), math.prod(self.stride[:-1])
        return first > 1 and first * rest > first * steps + rest + PASS

    def over(self, dims: slice) -> Windows:
        """The same along some of the dimensions."""
        return Windows(*[numbers[dims] for numbers in (
            self.given, self.kernel, self.stride, self.padding, self.dilation)])

    def element(self, e: BodyBuilder, window: Index, place: tuple[int, ...]) -> tuple[Index, str]:
        """(index of an element of a window, whether it lies inside the tensor)."""
        index = tuple([o * s + (at * d - p) for o, s, at, d, p in
                       zip(window, self.stride, place, self.dilation, self.padding)])
        return index, inside(e, index, self.given)


def windows(x: Value, rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any = 1) -> Windows:
    """The windows of a pooling operator's arguments. Raises NoLowering for large or symbolic ones."""
    given = x.size[-rank:]
    sizes = [_each(v, rank) for v in (kernel, stride or kernel, padding, dilation)]
    if not all(type(n) is int for numbers in (given, *sizes) for n in numbers) or 0 in x.size:
        raise NoLowering("pooling of symbolic sizes or of nothing")
    if math.prod(sizes[0]) > UNROLLED:
        raise NoLowering(f"windows of more than {UNROLLED} elements")
    return Windows(tuple(given), *map(tuple, sizes))


def _each(value: Any, rank: int) -> list[Any]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    return values * rank if len(values) == 1 else values


# ---- maximum
def _max_pool(rank: int) -> Any:
    def lower(graph: GraphLowering, node: torch.fx.Node, x: Value, kernel: Any, stride: Any = (), padding: Any = 0,
              dilation: Any = 1, ceil_mode: bool = False) -> tuple[Value, Value]:
        frame = windows(x, rank, kernel, stride, padding, dilation)
        values, indices = (graph.base_of(fake, node.name) for fake in node.meta["val"])
        if not x.base.buffer and (x.base.heavy or x.base.depth > 1):
            graph.decide_stored(x.base, _WINDOWED)
        if not any(user.target is operator.getitem and user.args[1] == 1 for user in node.users):
            part, dims = x, range(-rank, 0)
            if frame.overlap and x.device.type == "cpu":
                part = _along_last(graph, node, x, frame, x.dtype,
                                   lambda e, index: _largest_value(e, x, frame.over(LAST), index, (-1,)))
                frame, dims = frame.over(OTHERS), range(-rank, -1)
            largest = graph.pointwise(node, node.meta["val"][0], (part,),
                                      lambda e, index: _largest_value(e, part, frame, index, dims), heavy=True)
            graph.realize(largest.base)
            return largest, largest
        names = graph.new_buffer(values), graph.new_buffer(indices)

        def emit(e: BodyBuilder, index: Index, _: Index) -> None:
            e.origin = node.name
            best, place = _largest(e, x, frame, index, rank)
            e.store(names[0], offset(index, values.stride), best, values.dtype)
            e.store(names[1], offset(index, indices.stride), place, indices.dtype)

        graph.loops(values.size, values.stride, (), emit)
        values.buffer, indices.buffer = names
        return Value(values, values.size), Value(indices, indices.size)

    return lower


def _largest(e: BodyBuilder, x: Value, frame: Windows, index: Index, rank: int) -> tuple[str, str]:
    """The largest element of a window, and its place in the plane; the first of equals, a NaN before all.

    The index is an offset in the window, in a narrow integer, which vectors select as fast as floats.
    """
    dtype = compute_dtype(x.dtype)
    lowest = identity("max", dtype)
    best, place, found = e.constant(lowest, dtype), e.constant(-1, torch.int32), False
    for at in frame.places:
        element, within = frame.element(e, index[-rank:], at)
        steps = reduce(lambda total, step: total * step[1] + step[0],
                       zip([a * d for a, d in zip(at, frame.dilation)], frame.given), 0)
        value = e.masked(within, partial(x.load, e, index[:-rank] + element), lowest)
        better = e("gt", value, best)
        better = better if found else e("logical_or", better, e("lt", place, 0))
        if dtype.is_floating_point:
            better = e("logical_or", better, e("isnan", value))
        if e.known(within) is not True:
            better = e("logical_and", within, better)
        found = found or e.known(within) is True
        best = e("where", better, value, best)
        place = e("where", better, e.constant(steps, torch.int32), place)
    start, _ = frame.element(e, index[-rank:], (0,) * rank)
    return best, e("add", e.index_value(_flat(start, frame.given)), e.cast(place, torch.int64))


def _largest_value(e: BodyBuilder, x: Value, frame: Windows, index: Index, dims: Sequence[int]) -> str:
    """The largest element of a window over `dims`, NaN first, without its index, which costs far more."""
    dtype = compute_dtype(x.dtype)
    lowest = identity("max", dtype)
    best = e.constant(lowest, dtype)
    for at in frame.places:
        value = _element_of(e, x, frame, index, dims, at, lowest)
        better = e("gt", value, best)
        if dtype.is_floating_point:
            better = e("logical_or", better, e("isnan", value))
        best = e("where", better, value, best)
    return best


def _element_of(e: BodyBuilder, x: Value, frame: Windows, index: Index, dims: Sequence[int], at: tuple[int, ...],
                outside: Any) -> str:
    """The element at place `at` of the window over `dims` that belongs to the result at `index`."""
    element, within = frame.element(e, tuple([index[d] for d in dims]), at)
    moved = {d % len(index): i for d, i in zip(dims, element)}
    return e.masked(within, partial(x.load, e, tuple([moved.get(d, i) for d, i in enumerate(index)])), outside)


LAST, OTHERS = slice(-1, None), slice(None, -1)


def _along_last(graph: GraphLowering, node: torch.fx.Node, x: Value, frame: Windows, dtype: torch.dtype,
                compute: Compute) -> Value:
    """The first of two passes: what each window is along the last dimension, in memory, laid out as the result is."""
    result = node.meta["val"]
    fake = result if isinstance(result, torch.Tensor) else result[0]
    size = (*x.size[:-1], fake.shape[-1])
    strides, step = [0] * len(size), 1
    for d in sorted(range(len(size)), key=lambda d: (fake.stride(d), -d)):
        strides[d], step = step, step * size[d]
    reads = frozenset((x.base.buffer,)) if x.base.buffer else x.base.reads
    base = Base(node.name, size, tuple(strides), dtype, x.device, compute, reads=reads)
    graph.realize(base)
    return Value(base, size)


def _flat(index: Index, sizes: Sequence[int]) -> Linear:
    total = constant(0)
    for i, n in zip(index, sizes):
        total = total * n + i
    return total


def _max_pool_backward(rank: int) -> Any:
    def lower(graph: GraphLowering, node: torch.fx.Node, grad: Value, x: Value, kernel: Any, stride: Any, padding: Any,
              dilation: Any, ceil_mode: bool, indices: Value) -> Value:
        frame = windows(x, rank, kernel, stride, padding, dilation)

        def here(e: BodyBuilder, index: Index, window: Index) -> str:
            place = e.index_value(_flat(index[-rank:], frame.given))
            return e("eq", indices.load(e, index[:-rank] + window), place)

        return _gathered(graph, node, grad, (grad, indices), frame, here)

    return lower


def _gathered(graph: GraphLowering, node: torch.fx.Node, grad: Value, inputs: Sequence[Value], frame: Windows,
              takes: Any, share: Any = None) -> Value:
    """The gradient of the pooled tensor: the sum over windows that `takes(e, index, window)`, each times its share."""
    fake = node.meta["val"]
    rank = len(frame.given)
    if len(frame.around) > UNROLLED:
        raise NoLowering(f"elements in more than {UNROLLED} windows")
    wide = compute_dtype(fake.dtype)
    counts = grad.size[-rank:]
    for value in inputs:
        cheap = graph.stored.reads_less(value.base) or (not value.base.heavy and value.base.depth <= 1)
        if not value.base.buffer and not cheap:
            graph.decide_stored(value.base, _WINDOWED)

    def compute(e: BodyBuilder, index: Index) -> str:
        total = e.constant(0, wide)
        for back in frame.around:
            last = [(i + p) // s for i, p, s in zip(index[-rank:], frame.padding, frame.stride)]
            window = tuple([place - steps for place, steps in zip(last, back)])

            def part(window: Index = window) -> str:
                value = e.cast(grad.load(e, index[:-rank] + window), wide)
                value = value if share is None else share(e, value, window)
                condition = takes(e, index, window)
                return value if e.known(condition) is True else e("where", condition, value, 0)

            total = e("add", total, e.masked(inside(e, window, counts), part, 0))
        return total

    return lazily_rounded(graph, node, fake, inputs, compute, heavy=fake.device.type == "cpu")


for _rank in (2, 3):
    _name = f"max_pool{_rank}d_with_indices"
    lowering(getattr(aten, _name).default, kind=COMPOSITE)(_max_pool(_rank))
    lowering(getattr(aten, f"{_name}_backward").default, kind=GATHER)(_max_pool_backward(_rank))


# ---- mean
def _avg_pool(rank: int) -> Any:
    def lower(graph: GraphLowering, node: torch.fx.Node, x: Value, kernel: Any, stride: Any = (), padding: Any = 0,
              ceil_mode: bool = False, count_include_pad: bool = True, divisor: int | None = None) -> Value:
        if not x.dtype.is_floating_point:
            raise NoLowering("means of integers")
        frame = windows(x, rank, kernel, stride, padding)
        wide = compute_dtype(x.dtype)
        if not x.base.buffer and (x.base.heavy or x.base.depth > 1):
            graph.decide_stored(x.base, _WINDOWED)

        part, inner, dims = x, frame, range(-rank, 0)
        if frame.overlap and x.device.type == "cpu":
            part = _along_last(graph, node, x, frame, wide,
                               lambda e, index: _sum(e, x, frame.over(LAST), index, (-1,), wide))
            inner, dims = frame.over(OTHERS), range(-rank, -1)

        def compute(e: BodyBuilder, index: Index) -> str:
            total = _sum(e, part, inner, index, dims, wide)
            count = _elements(e, frame, index[-rank:], count_include_pad, divisor)
            return e("truediv", total, e.cast(count, wide))

        return lazily_rounded(graph, node, node.meta["val"], (part,), compute, heavy=x.device.type == "cpu")

    return lower


def _sum(e: BodyBuilder, x: Value, frame: Windows, index: Index, dims: Sequence[int], wide: torch.dtype) -> str:
    """The sum of a window over `dims`."""
    total = e.constant(0, wide)
    for at in frame.places:
        total = e("add", total, e.cast(_element_of(e, x, frame, index, dims, at, 0), wide))
    return total


def _elements(e: BodyBuilder, frame: Windows, window: Index, with_padding: bool, divisor: int | None) -> str:
    """By how many elements a window's sum is divided, as an int64."""
    if divisor is not None:
        return e.constant(divisor, torch.int64)
    count = e.constant(1, torch.int64)
    for o, given, k, s, p in zip(window, frame.given, frame.kernel, frame.stride, frame.padding):
        first = o * s - p
        end = _bounded(e, first + k, None, given + p if with_padding else given)
        begin = e.index_value(first) if with_padding else _bounded(e, first, 0, None)
        count = e("mul", count, e("sub", end, begin))
    return count


def _bounded(e: BodyBuilder, form: Linear, least: Size | None, most: Size | None) -> str:
    """A form, kept within bounds; what its own bounds tell costs nothing."""
    low, high = form.bounds
    value = e.index_value(form)
    if least is not None and not (type(low) is int and low >= least):
        value = e("maximum", value, least)
    if most is not None and not (type(high) is int and high <= most):
        value = e("minimum", value, most)
    return value


def _avg_pool_backward(rank: int) -> Any:
    def lower(graph: GraphLowering, node: torch.fx.Node, grad: Value, x: Value, kernel: Any, stride: Any, padding: Any,
              ceil_mode: bool, count_include_pad: bool, divisor: int | None) -> Value:
        frame = windows(x, rank, kernel, stride, padding)

        def reaches(e: BodyBuilder, index: Index, window: Index) -> str:
            beyond = tuple([i + p - o * s for i, p, o, s in
                            zip(index[-rank:], frame.padding, window, frame.stride)])
            return inside(e, beyond, frame.kernel)

        def share(e: BodyBuilder, value: str, window: Index) -> str:
            count = _elements(e, frame, window, count_include_pad, divisor)
            return e("truediv", value, e.cast(count, e.dtypes[value]))

        return _gathered(graph, node, grad, (grad,), frame, reaches, share)

    return lower


for _rank in (2, 3):
    lowering(getattr(aten, f"avg_pool{_rank}d").default, kind=GATHER)(_avg_pool(_rank))
    lowering(getattr(aten, f"avg_pool{_rank}d_backward").default, kind=GATHER)(_avg_pool_backward(_rank))
