"""Lowerings of searches in sorted sequences: bucketize and searchsorted.

Among few boundaries, those below a value are counted: comparisons vectorize, where a binary search is one lookup after
the other. Many boundaries are left to ATen's binary search.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ..unsupported import NoLowering
from .body import LOW_PRECISION, BodyBuilder
from .lazy_tensors import Index, Value, offset
from .registry import COMPOSITE, lowering

if TYPE_CHECKING:
    from .graph import GraphLowering

aten = torch.ops.aten

COUNTED = 128  # boundaries; with more, a binary search is faster


@lowering(aten.bucketize.Tensor, kind=COMPOSITE)
def _bucketize(graph: GraphLowering, node: torch.fx.Node, x: Value, boundaries: Value, *, out_int32: bool = False,
               right: bool = False) -> Value:
    return _counted(graph, node, boundaries, x, right)


@lowering(aten.searchsorted.Tensor, kind=COMPOSITE)
def _searchsorted(graph: GraphLowering, node: torch.fx.Node, boundaries: Value, x: Value, *, out_int32: bool = False,
                  right: bool = False, side: str | None = None, sorter: Any = None) -> Value:
    if sorter is not None:
        raise NoLowering("a search through a permutation")
    return _counted(graph, node, boundaries, x, right or side == "right")


def _counted(graph: GraphLowering, node: torch.fx.Node, boundaries: Value, x: Value, right: bool) -> Value:
    """For each element of `x`, how many boundaries are below it (or equal, with `right`); all of them for NaN."""
    count = boundaries.size[-1] if boundaries.size else 0
    own_rows = len(boundaries.size) > 1  # the sequence of each row, else one for all
    if type(count) is not int or not 0 < count <= COUNTED:
        raise NoLowering("a search among many boundaries")
    if x.dtype is not boundaries.dtype or x.dtype in LOW_PRECISION or x.dtype is torch.bool:
        raise NoLowering("a search among values of another dtype")
    if own_rows and (len(x.size) != len(boundaries.size) or x.size[:-1] != boundaries.size[:-1]):
        raise NoLowering("a search in rows of another shape")
    if x.device != boundaries.device or x.device.type != "cpu":
        raise NoLowering("a search on a GPU")
    base = graph.base_of(node.meta["val"], node.name)
    name = graph.new_buffer(base)
    if not x.base.buffer and x.base.heavy:
        graph.decide_stored(x.base, "it is compared with each boundary")

    def body(e: BodyBuilder, index: Index, inner: Index) -> None:
        e.origin = node.name
        boundary = boundaries.load(e, (*index[:-1], *inner) if own_rows else inner)
        above = e("gt" if right else "ge", boundary, x.load(e, index))
        below = e.cast(e("logical_not", above), torch.int32)
        e.store(name, offset(index, base.stride), e.reduce("sum", below, torch.int32), base.dtype)

    graph.loops(base.size, base.stride, (count,), body)
    base.buffer = name
    return Value(base, base.size)
