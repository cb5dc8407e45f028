"""Lowerings of scans: the reduction axis runs in order, and the body stores at each of its points."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ..unsupported import NoLowering
from .body import LOW_PRECISION, BodyBuilder
from .lazy_tensors import Index, Value, offset
from .reductions import as_stored, full_index
from .registry import REDUCTION, lowering

if TYPE_CHECKING:
    from .graph import GraphLowering

aten = torch.ops.aten

Emit = Callable[[BodyBuilder, str], Sequence[str]]


def scan(graph: GraphLowering, fakes: Sequence[torch.Tensor], x: Value, dim: int, emit: Emit) -> list[Value]:
    """One body that scans dimension `dim` of `x`: `emit(builder, element)` gives a statement for each result.

    The results, of the shape of `x`, are stored to buffers with the metadata of `fakes`.
    """
    if x.device.type != "cpu":
        raise NoLowering("a scan on a GPU")
    node, rank = graph.node, len(x.size)
    at = dim % max(rank, 1)
    count = x.size[at] if rank else 1
    if not x.base.buffer and x.base.heavy:
        graph.decide_stored(x.base, "it fills vectors in a loop of its own, which the scan's cannot")
    bases = [graph.base_of(fake, node.name) for fake in fakes]
    names = [graph.new_buffer(base) for base in bases]

    def body(e: BodyBuilder, index: Index, inner: Index) -> None:
        e.origin = node.name
        place = full_index(rank, (at,), index, inner, False)
        for name, base, result in zip(names, bases, emit(e, x.load(e, place))):
            e.store(name, offset(place, base.stride), result, base.dtype)

    outer, stride = [d for d in range(rank) if d != at], bases[0].stride
    if count != 0:
        graph.loops([x.size[d] for d in outer], [stride[d] for d in outer], (count,), body)
    for name, base in zip(names, bases):
        base.buffer = name
    return [Value(base, base.size) for base in bases]


def kept_in(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which eager's kernel accumulates a cumulative sum of `dtype` (at::acc_type on the CPU)."""
    if dtype in LOW_PRECISION:
        return torch.float32
    return torch.float64 if dtype.is_floating_point else torch.int64


def _running(kind: str) -> None:
    def lower(graph: GraphLowering, node: torch.fx.Node, x: Value, dim: int, *, dtype: Any = None) -> Value:
        fake = node.meta["val"]
        if fake.dtype is torch.bool:
            raise NoLowering("a cumulative sum of bools, as bools")
        wide = torch.float64 if kind == "logsumexp" else kept_in(fake.dtype)

        def emit(e: BodyBuilder, element: str) -> list[str]:
            element = e.rounded(as_stored(e, node, element, x.dtype), fake.dtype)
            return [e.scan(kind, e.cast(element, wide), wide)]

        return scan(graph, [fake], x, dim, emit)[0]

    target = {"sum": aten.cumsum.default, "prod": aten.cumprod.default, "logsumexp": aten.logcumsumexp.default}[kind]
    lowering(target, kind=REDUCTION)(lower)


for _kind in ("sum", "prod", "logsumexp"):
    _running(_kind)


def _extreme(target: Any, kind: str) -> None:
    def lower(graph: GraphLowering, node: torch.fx.Node, x: Value, dim: int) -> tuple[Value, ...]:
        def emit(e: BodyBuilder, element: str) -> list[str]:
            return [e.scan(kind, element, e.dtypes[element]), e.scan(f"arg{kind}", element, torch.int64)]

        return tuple(scan(graph, list(node.meta["val"]), x, dim, emit))

    lowering(target, kind=REDUCTION)(lower)


_extreme(aten.cummax.default, "max")
_extreme(aten.cummin.default, "min")
