"""Lowerings that write to data-dependent indices: index_put, scatter, scatter_add, and the backward of embedding.

Each is two bodies that store to one buffer: the first copies `self`, the second stores or adds at indirect indices.
Where nothing else needs the copied buffer, scheduler/in_place.py elides the copy.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ..ir.affine import Linear, Size, contiguous_strides, sizes
from ..unsupported import NoLowering
from .body import LOW_PRECISION, BodyBuilder
from .indexing import in_bounds_of
from .lazy_tensors import Index, Value, offset
from .registry import COMPOSITE, lowering

if TYPE_CHECKING:
    from .graph import GraphLowering

aten = torch.ops.aten

Place = Callable[[BodyBuilder, Index], tuple[Linear, ...]]


def scattered_into(graph: GraphLowering, node: torch.fx.Node, start: Callable[[BodyBuilder, Index], str],
                   shape: Sequence[Size], place: Place, source: Callable[[BodyBuilder, Index], str],
                   accumulate: bool) -> Value:
    """A tensor that starts as `start` and receives `source(index)` at `place(index)` for each index of `shape`, in
    order.

    With `accumulate` it is added, else the last one stays.
    """
    fake = node.meta["val"]
    if fake.device.type != "cpu":
        raise NoLowering("scatters on a GPU are left to ATen")
    if accumulate and fake.dtype in LOW_PRECISION:
        raise NoLowering(f"accumulating in {fake.dtype} needs a wider accumulator")
    if 0 in sizes(fake.shape):
        raise NoLowering("an empty destination: which indices raise is left to ATen's kernel")
    base = graph.base_of(fake, node.name)
    name = graph.new_buffer(base)

    def begin(e: BodyBuilder, index: Index, _: Index) -> None:
        e.origin = node.name
        e.store(name, offset(index, base.stride), start(e, index), base.dtype)

    def scatter(e: BodyBuilder, index: Index, _: Index) -> None:
        e.origin = node.name
        at = offset(place(e, index), base.stride)
        e.store(name, at, source(e, index), base.dtype, "add" if accumulate else "put")

    graph.loops(base.size, base.stride, (), begin)
    graph.loops(shape, contiguous_strides(shape), (), scatter)
    base.buffer = name
    return Value(base, base.size)


def _same_device(*values: Value) -> None:
    if len({v.device for v in values}) > 1:
        raise NoLowering("operands on two devices")


@lowering(aten.index_put.default, aten._unsafe_index_put.default, kind=COMPOSITE)
def _index_put(graph: GraphLowering, node: torch.fx.Node, x: Value, indices: Sequence[Value | None], values: Value,
               accumulate: bool = False) -> Value:
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    if not given or any(i.dtype in (torch.bool, torch.uint8) for _, i in given):
        raise NoLowering("a boolean index selects a data-dependent number of elements")
    _same_device(x, values, *[i for _, i in given])
    block = _shape_together([tuple(i.size) for _, i in given])
    if block is None or 0 in block:
        raise NoLowering("index_put with indices of several symbolic shapes, or of none")
    dims = [d for d, _ in given]
    in_bounds_of([x.size[d] for d in dims])
    first = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0  # NumPy's rule, as in `index`
    others = [extent for d, extent in enumerate(x.size) if d not in dims]
    sources = dict(given)
    _realize_for_many(graph, values)

    def place(e: BodyBuilder, index: Index) -> tuple[Linear, ...]:
        looked_up = index[first:first + len(block)]
        rest = iter(index[:first] + index[first + len(block):])
        return tuple([
            e.indirect(sources[d].broadcast(e, looked_up), extent) if d in sources else next(rest)
            for d, extent in enumerate(x.size)
        ])

    shape = (*others[:first], *block, *others[first:])
    return scattered_into(graph, node, x.load, shape, place, values.broadcast, accumulate)


def _shape_together(shapes: Sequence[tuple[Size, ...]]) -> tuple[Size, ...] | None:
    """The shape of indices that are broadcast; None where that is not known before sizes are."""
    if len(set(shapes)) == 1:
        return shapes[0]
    return torch.broadcast_shapes(*shapes) if all(type(n) is int for shape in shapes for n in shape) else None


def _realize_for_many(graph: GraphLowering, value: Value) -> None:
    """Every thread reads every index, so what is scattered should not be computed by each of them."""
    if not value.base.buffer and value.base.heavy and not value.size:
        graph.decide_stored(value.base, "every thread reads it at each of its iterations")


def _along(dim: int, positions: Value, extent: Size) -> Place:
    in_bounds_of([extent])

    def place(e: BodyBuilder, index: Index) -> tuple[Linear, ...]:
        return (*index[:dim], e.indirect(positions.load(e, index), extent, strict=True), *index[dim + 1:])

    return place


def _scatter(accumulate: bool) -> Callable[..., Value]:
    def lower(graph: GraphLowering, node: torch.fx.Node, x: Value, dim: int, positions: Value, source: Any) -> Value:
        if not x.size or not positions.size:
            raise NoLowering("a scatter into a 0-d tensor")
        at = dim % len(x.size)
        tensor = source if isinstance(source, Value) else None
        _same_device(x, positions, *([tensor] if tensor is not None else []))

        def value(e: BodyBuilder, index: Index) -> str:
            return e.constant(source, x.dtype) if tensor is None else tensor.load(e, index)

        return scattered_into(graph, node, x.load, positions.size, _along(at, positions, x.size[at]), value, accumulate)

    return lower


lowering(aten.scatter.src, aten.scatter.value, kind=COMPOSITE)(_scatter(False))
lowering(aten.scatter_add.default, kind=COMPOSITE)(_scatter(True))


@lowering(aten.embedding_dense_backward.default, kind=COMPOSITE)
def _embedding_backward(graph: GraphLowering, node: torch.fx.Node, gradient: Value, positions: Value, rows: Size,
                        padding: Any, by_frequency: bool) -> Value:
    """Row i of the result is the sum of the gradients of the lookups of row i, in their order."""
    if by_frequency or type(padding) is not int:
        raise NoLowering("scale_grad_by_freq is left to ATen")
    _same_device(gradient, positions)
    in_bounds_of([rows])
    rank = len(positions.size)

    def place(e: BodyBuilder, index: Index) -> tuple[Linear, ...]:
        return e.indirect(positions.load(e, index[:rank]), rows, strict=True), index[-1]

    def value(e: BodyBuilder, index: Index) -> str:
        name = gradient.load(e, index)
        if padding < 0:
            return name
        is_padding = e("eq", e.cast(positions.load(e, index[:rank]), torch.int64), padding)
        return e("where", is_padding, e.constant(0, gradient.dtype), name)

    def zero(e: BodyBuilder, index: Index) -> str:
        return e.constant(0, gradient.dtype)

    return scattered_into(graph, node, zero, gradient.size, place, value, accumulate=True)
