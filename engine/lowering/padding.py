"""Reflection and replication padding (ATen's PaddingKernel.cpp).

Along the contiguous dimension there are three masked reads, before, inside and after, each of them contiguous; for the
other dimensions the source index is computed, once for each row.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ..ir.affine import Linear, Size, constant, size
from ..unsupported import NoLowering
from .body import BodyBuilder
from .concat import inside
from .lazy_tensors import Index, Value
from .registry import GATHER, lowering

if TYPE_CHECKING:
    from .graph import GraphLowering

aten = torch.ops.aten

Edge = Callable[[Linear, int], Linear]  # (an index outside, the size) -> the index inside that is repeated there


def _reflected() -> tuple[Edge, Edge]:
    return lambda at, n: at * -1, lambda at, n: at * -1 + size(2 * n - 2)


def _outermost() -> tuple[Edge, Edge]:
    return lambda at, n: constant(0), lambda at, n: constant(size(n - 1))


def _padding(edges: tuple[Edge, Edge]) -> Any:
    def lower(graph: GraphLowering, node: torch.fx.Node, x: Value, pad: Sequence[Size]) -> Value:
        rank = len(x.size)
        before = {rank - 1 - i // 2: pad[i] for i in range(0, len(pad), 2)}
        if not all(type(n) is int for n in (*pad, *[x.size[d] for d in before])) or 0 in x.size or min(pad) < 0:
            raise NoLowering("repeated edges of symbolic sizes, of nothing, or cut off")
        if not x.base.buffer and (x.base.heavy or x.base.depth > 1):
            graph.decide_stored(x.base, "elements at the edges are read several times")
        along = next((d for d in before if x.reindex is None and x.base.stride[d] == 1), None)

        def compute(e: BodyBuilder, index: Index) -> str:
            moved = [i - before[d] if d in before else i for d, i in enumerate(index)]
            for d in before:
                if d != along:
                    moved[d] = _place(e, moved[d], x.size[d], edges)
            if along is None:
                return x.load(e, tuple(moved))

            def read(at: Linear) -> str:
                return x.load(e, (*moved[:along], at, *moved[along + 1:]))

            at, n = moved[along], x.size[along]
            value = e.masked(inside(e, (at,), (n,)), lambda: read(at), 0)
            for outside, place in _outside(e, at, n, edges):
                value = e.masked(outside, lambda place=place: read(place), value)  # type: ignore[misc]
            return value

        return graph.gather(node, (x,), compute)

    return lower


def _place(e: BodyBuilder, at: Linear, n: int, edges: tuple[Edge, Edge]) -> Linear:
    """The source index of an index that may be outside."""
    value = e.index_value(at)
    for outside, place in _outside(e, at, n, edges):
        value = e("where", outside, e.index_value(place), value)
    return e.indirect(value, n, unchecked=True)


def _outside(e: BodyBuilder, at: Linear, n: int, edges: tuple[Edge, Edge]) -> list[tuple[str, Linear]]:
    """(whether an index is outside on one side, its source then), for each side on which it can be."""
    low, high = at.bounds
    sides = []
    if not (type(low) is int and low >= 0):
        sides.append((e("lt", e.index_value(at), 0), edges[0](at, n)))
    if not (type(high) is int and high < n):
        sides.append((e("ge", e.index_value(at), n), edges[1](at, n)))
    return sides


for _rank in (1, 2, 3):
    lowering(getattr(aten, f"reflection_pad{_rank}d").default, kind=GATHER)(_padding(_reflected()))
    lowering(getattr(aten, f"replication_pad{_rank}d").default, kind=GATHER)(_padding(_outermost()))
