"""Lowerings of views: each is an index mapping and moves no data.

`value.through(size, reindex)` is a view; reindex maps the view's indices to those of what is viewed. Sizes that an
operator infers (-1) are read off the fake tensor.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch
import torch.fx
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._sympy.functions import PythonMod

from ...operators.overlap import is_dense
from ..graphs.aliasing import viewed
from ..ir.affine import ZERO, Linear, Size, constant, contiguous_strides, less, product, size, sizes
from ..unsupported import NoLowering
from .lazy_tensors import Index, Reindex, Value, offset
from .registry import GATHER, POINTWISE, RESHAPE, VIEW, lowering

if TYPE_CHECKING:
    from .body import BodyBuilder
    from .graph import GraphLowering

aten = torch.ops.aten


def shape_of(node: torch.fx.Node) -> tuple[Size, ...]:
    """The shape of the node's fake tensor."""
    return sizes(node.meta["val"].shape)


# ---- reshape
def regroup(old: Sequence[Size], new: Sequence[Size]) -> Reindex:
    """Indices of shape `new` to indices of shape `old` with the same elements in row-major order.

    Dimensions are matched in groups of equal products, so that only what is merged or split needs arithmetic.
    """
    groups = _groups(list(old), list(new))
    moves = []
    for old_dims, new_dims in groups:
        strides = contiguous_strides([new[d] for d in new_dims])
        moves.append((old_dims, new_dims, strides, contiguous_strides([old[d] for d in old_dims])))
    rank = len(old)

    def reindex(index: Index) -> Index:
        result: list[Linear] = [ZERO] * rank
        for old_dims, new_dims, merge, split in moves:
            if len(old_dims) == 1 and len(new_dims) == 1:
                result[old_dims[0]] = index[new_dims[0]]
                continue
            flat = offset(tuple([index[d] for d in new_dims]), merge)
            for position, d in enumerate(old_dims):
                part = flat // split[position] if split[position] != 1 else flat
                result[d] = part if position == 0 else part % old[d]
        return tuple(result)

    return reindex


def _groups(old: list[Size], new: list[Size]) -> list[tuple[list[int], list[int]]]:
    """Pairs of dimension lists with equal products; dimensions of size 1 are left out."""
    old_dims = [d for d, s in enumerate(old) if s != 1]
    new_dims = [d for d, s in enumerate(new) if s != 1]
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old_dims) and j < len(new_dims):
        left, right = [old_dims[i]], [new_dims[j]]
        a, b = old[old_dims[i]], new[new_dims[j]]
        i, j = i + 1, j + 1
        while a != b:
            grow_left = _smaller(a, b) if i < len(old_dims) and j < len(new_dims) else i < len(old_dims)
            if grow_left and i < len(old_dims):
                left.append(old_dims[i])
                a = size(a * old[old_dims[i]])
                i += 1
            elif j < len(new_dims):
                right.append(new_dims[j])
                b = size(b * new[new_dims[j]])
                j += 1
            else:  # symbolic products that are equal, but not visibly: all dimensions in one group
                return [(old_dims, new_dims)]
        groups.append((left, right))
    return groups if i == len(old_dims) and j == len(new_dims) else [(old_dims, new_dims)]


def _smaller(a: Size, b: Size) -> bool:
    if type(a) is int and type(b) is int:
        return a < b
    return len(getattr(a, "free_symbols", ())) <= len(getattr(b, "free_symbols", ())) and a != b and not _divides(b, a)


def _divides(b: Size, a: Size) -> bool:
    quotient = a / b if not (type(a) is int and type(b) is int) else None
    return quotient is not None and quotient.as_numer_denom()[1] == 1


@lowering(aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten._reshape_alias.default, kind=RESHAPE)
def _view(graph: GraphLowering, node: torch.fx.Node, x: Value, *_: Any) -> Value:
    new = shape_of(node)
    if 0 in new or 0 in x.size:
        return x.through(new, lambda index: (ZERO,) * len(x.size))
    return x.through(new, regroup(x.size, new))


@lowering(aten.alias.default, aten.detach.default, aten.lift_fresh.default, kind=RESHAPE)
def _alias(graph: GraphLowering, node: torch.fx.Node, x: Value) -> Value:
    return x


@lowering(aten.unsqueeze.default, kind=RESHAPE)
def _unsqueeze(graph: GraphLowering, node: torch.fx.Node, x: Value, dim: int) -> Value:
    new = shape_of(node)
    at = dim % len(new)
    return x.through(new, lambda index: index[:at] + index[at + 1:])


@lowering(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, kind=RESHAPE)
def _squeeze(graph: GraphLowering, node: torch.fx.Node, x: Value, dims: Any = None) -> Value:
    rank = len(x.size)
    given = range(rank) if dims is None else [dims] if isinstance(dims, int) else dims
    wanted = [d % rank for d in given] if rank else []
    kept = [d for d in range(rank) if not (d in wanted and x.size[d] == 1)]

    def reindex(index: Index) -> Index:
        result = [ZERO] * rank
        for i, d in zip(index, kept):
            result[d] = i
        return tuple(result)

    return x.through(tuple(x.size[d] for d in kept), reindex)


@lowering(aten.expand.default, kind=RESHAPE)
def _expand(graph: GraphLowering, node: torch.fx.Node, x: Value, *_: Any, implicit: bool = False) -> Value:
    new = shape_of(node)
    extra = len(new) - len(x.size)
    fixed = [s == 1 for s in x.size]
    return x.through(new, lambda index: tuple([ZERO if f else i for f, i in zip(fixed, index[extra:])]))


# ---- order
@lowering(aten.permute.default, kind=VIEW)
def _permute(graph: GraphLowering, node: torch.fx.Node, x: Value, dims: Sequence[int]) -> Value:
    return permuted(x, dims)


def permuted(x: Value, dims: Sequence[int]) -> Value:
    """`x` with its dimensions in the order `dims`."""
    rank = len(x.size)
    order = [d % rank for d in dims]
    back = [order.index(d) for d in range(rank)]
    return x.through(tuple([x.size[d] for d in order]), lambda index: tuple([index[b] for b in back]))


@lowering(aten.transpose.int, kind=VIEW)
def _transpose(graph: GraphLowering, node: torch.fx.Node, x: Value, a: int, b: int) -> Value:
    if not x.size:
        return x
    dims = list(range(len(x.size)))
    dims[a], dims[b] = dims[b], dims[a]
    return permuted(x, dims)


@lowering(aten.t.default, aten.numpy_T.default, kind=VIEW)
def _t(graph: GraphLowering, node: torch.fx.Node, x: Value) -> Value:
    return permuted(x, range(len(x.size))[::-1])


@lowering(aten.flip.default, kind=GATHER)
def _flip(graph: GraphLowering, node: torch.fx.Node, x: Value, dims: Sequence[int]) -> Value:
    turned = {d % len(x.size) for d in dims} if x.size else set()
    view = x.through(x.size, lambda index: tuple([
        constant(size(x.size[d] - 1)) - i if d in turned else i for d, i in enumerate(index)]))
    return fresh(graph, node, view)


@lowering(aten.roll.default, kind=GATHER)
def _roll(graph: GraphLowering, node: torch.fx.Node, x: Value, shifts: Any, dims: Any = ()) -> Value:
    shifts = shifts if isinstance(shifts, (list, tuple)) else (shifts,)
    dims = dims if isinstance(dims, (list, tuple)) else (dims,)
    plain = x.base.buffer and x.base.device.type == "cpu" and x.reindex is None
    if not dims:
        flat = product(x.size)
        if plain and sympy.sympify(flat).is_positive and x.base.stride == contiguous_strides(x.size):
            line = x.through((flat,), regroup(x.size, (flat,)))
            return _rolled_memory(graph, node, x, shifts[0], flat, lambda index: offset(index, x.base.stride),
                                  lambda e, index, place: line.load(e, (place,)))
        rolled = x.through((flat,), regroup(x.size, (flat,))).through((flat,), _rolled(0, shifts[0], (flat,)))
        return fresh(graph, node, rolled.through(x.size, regroup((flat,), x.size)))
    places = [d % len(x.size) for d in dims]
    along = [d for d in places if x.base.stride[d] == 1 and sympy.sympify(x.size[d]).is_positive] if plain else []
    at = along[0] if len(along) == 1 else None
    for shift, dim in zip(shifts, places):
        if dim != at:
            x = x.through(x.size, _rolled(dim, shift, x.size))
    if at is None:
        return fresh(graph, node, x)
    return _rolled_memory(graph, node, x, shifts[places.index(at)], x.size[at], lambda index: index[at],
                          lambda e, index, place: x.load(e, (*index[:at], place, *index[at + 1:])))


def _rolled_memory(graph: GraphLowering, node: torch.fx.Node, x: Value, by: Any, extent: Size,
                   along: Callable[[Index], Linear], read: Callable[[BodyBuilder, Index, Linear], str]) -> Value:
    """A roll along memory: two reads under masks, each of neighbours, where a remainder is a gather.

    `along(index)` is the place, below `extent`, that is rolled by `by`; `read` reads at another one.
    """
    shift = _below(size(by), extent)

    def compute(e: BodyBuilder, index: Index) -> str:
        place = along(index)
        value = e.masked(e("ge", e.index_value(place), shift), lambda: read(e, index, place - shift), 0)
        moved = place - shift + extent
        return e.masked(e("lt", e.index_value(place), shift), lambda: read(e, index, moved), value)

    return graph.gather(node, (x,), compute)


def _below(shift: Size, extent: Size) -> Size:
    """A roll by `shift` as one forward by less than the extent."""
    if type(shift) is int and type(extent) is int:
        return shift % extent
    return size(PythonMod(sympy.sympify(shift), sympy.sympify(extent)))


def _rolled(at: int, shift: Size, shape: Sequence[Size]) -> Reindex:
    extent = shape[at]
    if extent == 0:
        return lambda index: index
    if type(shift) is int and type(extent) is int:
        back: Size = -shift % extent
    elif type(shift) is int and shift <= 0:
        back = -shift
    else:
        back = size(extent - shift)
    return lambda index: tuple([(i + back) % extent if d == at else i for d, i in enumerate(index)])


# ---- parts
@lowering(aten.select.int, kind=VIEW)
def _select(graph: GraphLowering, node: torch.fx.Node, x: Value, dim: int, position: Size) -> Value:
    at = dim % len(x.size)
    fixed = constant(_from_start(position, x.size[at]))
    return x.through(x.size[:at] + x.size[at + 1:], lambda index: index[:at] + (fixed,) + index[at:])


def _from_start(position: Size, extent: Size) -> Size:
    if type(position) is int:
        return position if position >= 0 else size(extent + position)
    if position.is_nonnegative:
        return position
    raise NoLowering("a symbolic position of unknown sign")


@lowering(aten.slice.Tensor, kind=VIEW)
def _slice(graph: GraphLowering, node: torch.fx.Node, x: Value, dim: int = 0, start: Any = None, end: Any = None,
           step: Any = 1) -> Value:
    at = dim % len(x.size)
    begin = slice_start(node, start, x.size[at], at)
    return x.through(shape_of(node), lambda index: index[:at] + (index[at] * step + begin,) + index[at + 1:])


def slice_start(node: torch.fx.Node, start: Any, extent: Size, dim: int) -> Size:
    """The first position of a slice, as Python counts, of a dimension of the first argument of `node`."""
    if start is None:
        return 0
    if type(start) is int and type(extent) is int:
        return min(max(start + extent, 0) if start < 0 else start, extent)
    begin = _from_start(start, extent)
    if type(start) is int and start < 0:
        sliced: Any = node.args[0]
        enough = statically_known_true(sliced.meta["val"].shape[dim] >= -start)
        return begin if enough else size(sympy.Max(0, begin))
    if less(begin, size(extent + 1)):
        return begin
    raise NoLowering("a symbolic slice that may start beyond the end")


@lowering(aten.split.Tensor, aten.split_with_sizes.default, kind=VIEW)
def _split(graph: GraphLowering, node: torch.fx.Node, x: Value, lengths: Any, dim: int = 0) -> tuple[Value, ...]:
    at = dim % len(x.size)
    parts = []
    begin: Size = 0
    for fake in node.meta["val"]:
        parts.append(_part(x, at, begin, sizes(fake.shape)))
        begin = size(begin + parts[-1].size[at])
    return tuple(parts)


def _part(x: Value, at: int, begin: Size, shape: tuple[Size, ...]) -> Value:
    return x.through(shape, lambda index: index[:at] + (index[at] + begin,) + index[at + 1:])


@lowering(aten.unbind.int, kind=VIEW)
def _unbind(graph: GraphLowering, node: torch.fx.Node, x: Value, dim: int = 0) -> tuple[Value, ...]:
    at = dim % len(x.size)
    return tuple(_select(graph, node, x, at, i) for i in range(len(node.meta["val"])))


@lowering(aten.diagonal.default, kind=VIEW)
def _diagonal(graph: GraphLowering, node: torch.fx.Node, x: Value, shift: int = 0, dim1: int = 0,
              dim2: int = 1) -> Value:
    a, b = dim1 % len(x.size), dim2 % len(x.size)
    others = [d for d in range(len(x.size)) if d not in (a, b)]

    def reindex(index: Index) -> Index:
        result = [ZERO] * len(x.size)
        for i, d in zip(index, others):
            result[d] = i
        result[a], result[b] = index[-1] + max(-shift, 0), index[-1] + max(shift, 0)
        return tuple(result)

    return x.through(shape_of(node), reindex)


@lowering(aten.unfold.default, kind=VIEW)
def _unfold(graph: GraphLowering, node: torch.fx.Node, x: Value, dim: int, length: Size, step: Size) -> Value:
    at = dim % len(x.size) if x.size else 0
    if not x.size:
        return x.through(shape_of(node), lambda index: ())
    return x.through(shape_of(node), lambda index: index[:at] + (index[at] * step + index[-1],) + index[at + 1:-1])


# ---- repetition and fresh copies
@lowering(aten.repeat.default, kind=GATHER)
def _repeat(graph: GraphLowering, node: torch.fx.Node, x: Value, repeats: Sequence[Size]) -> Value:
    extra = len(repeats) - len(x.size)
    if 0 in x.size:
        return fresh(graph, node, x.through(shape_of(node), lambda index: (ZERO,) * len(x.size)))
    view = x.through(shape_of(node), lambda index: tuple([i % s for i, s in zip(index[extra:], x.size)]))
    return fresh(graph, node, view)


@lowering(aten.clone.default, aten.lift_fresh_copy.default, kind=POINTWISE)
def _clone(graph: GraphLowering, node: torch.fx.Node, x: Value, memory_format: Any = None) -> Value:
    return fresh(graph, node, x)


def fresh(graph: GraphLowering, node: torch.fx.Node, view: Value) -> Value:
    """A new tensor with the elements of a view: a copy, unless its consumers read through it."""
    return graph.pointwise(node, node.meta["val"], (view,), lambda e, index: view.load(e, index))


# ---- windows on memory
@lowering(aten.as_strided.default, kind=VIEW)
def _as_strided(graph: GraphLowering, node: torch.fx.Node, x: Value, shape: Sequence[Size], stride: Sequence[Size],
                start: Any = None) -> Value:
    """A window on the memory of an intermediate that fills its memory: offsets there are indices of it.

    Memory around an input belongs to the caller: there ATen is called.
    """
    root = viewed(node)
    memory = root.meta["val"]
    layout = sizes(memory.stride())
    static = all(type(s) is int for s in (*sizes(memory.shape), *layout))
    if root.op != "call_function" or not static or not is_dense(memory) or memory.dtype is not x.dtype:
        raise NoLowering("as_strided on memory other than that of a dense intermediate")
    source: Value = graph.values[root]
    begin = size(node.args[0].meta["val"].storage_offset() if start is None else start)  # type: ignore[union-attr]
    order = [d for d in sorted(range(memory.dim()), key=lambda d: layout[d], reverse=True) if memory.shape[d] != 1]

    def reindex(index: Index) -> Index:
        place = offset(index, stride) + begin
        result: list[Linear] = [ZERO] * memory.dim()
        for position, d in enumerate(order):
            digit = place // layout[d]
            result[d] = digit if position == 0 else digit % memory.shape[d]
        return tuple(result)

    return source.through(tuple(shape), reindex)
