"""Lowerings whose indices are themselves read from tensors: index, gather, embedding, index_select."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ...operators.unbacked import is_unbacked
from ..ir.affine import Linear, Size, less
from ..unsupported import NoLowering
from .body import BodyBuilder
from .lazy_tensors import Index, Value
from .registry import GATHER, lowering

if TYPE_CHECKING:
    from .graph import GraphLowering

aten = torch.ops.aten


def in_bounds_of(extents: Iterable[Size]) -> None:
    """Raise NoLowering where a dimension of which elements are looked up or written may have none: where data decide
    its size (inputs' sizes that vary are never 0). A kernel touches element 0 before it reports a wrong index."""
    for extent in extents:
        if type(extent) is not int and any(map(is_unbacked, extent.free_symbols)) and not less(0, extent):
            raise NoLowering("an index into a dimension that may have no elements")


def _looks_up(x: Value, dims: Iterable[int]) -> None:
    if 0 in x.size:
        raise NoLowering("an empty lookup: which indices raise is left to ATen's kernel")
    in_bounds_of([x.size[dim] for dim in dims])


@lowering(aten.index.Tensor, aten._unsafe_index.Tensor, kind=GATHER)
def _index(graph: GraphLowering, node: torch.fx.Node, x: Value, indices: Sequence[Value | None]) -> Value:
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    _looks_up(x, [d for d, _ in given])
    if any(i.dtype in (torch.bool, torch.uint8) for _, i in given):
        raise NoLowering("a boolean index has a data-dependent number of results")
    if any(i.device != x.device for _, i in given):
        raise NoLowering("operands on two devices")
    dims = [d for d, _ in given]
    block = max((len(i.size) for _, i in given), default=0)
    # Adjacent indexed dimensions are replaced in place; scattered ones move to the front (NumPy's rule).
    first = dims[0] if dims and dims == list(range(dims[0], dims[-1] + 1)) else 0
    sources = dict(given)
    unchecked = node.target is aten._unsafe_index.Tensor

    def compute(e: BodyBuilder, index: Index) -> str:
        looked_up = index[first:first + block]
        others = iter(index[:first] + index[first + block:])
        place: list[Linear] = []
        for d, extent in enumerate(x.size):
            if d in sources:
                place.append(e.indirect(sources[d].broadcast(e, looked_up), extent, unchecked=unchecked))
            else:
                place.append(next(others))
        return x.load(e, tuple(place))

    return graph.gather(node, (x, *[i for _, i in given]), compute)


@lowering(aten.index_select.default, kind=GATHER)
def _index_select(graph: GraphLowering, node: torch.fx.Node, x: Value, dim: int, positions: Value) -> Value:
    if not x.size:
        raise NoLowering("index_select of a 0-d tensor")
    at = dim % len(x.size)
    _looks_up(x, [at])

    def compute(e: BodyBuilder, index: Index) -> str:
        place = e.indirect(positions.load(e, (index[at],) if positions.size else ()), x.size[at], strict=True)
        return x.load(e, index[:at] + (place,) + index[at + 1:])

    return graph.gather(node, (x, positions), compute)


@lowering(aten.gather.default, kind=GATHER)
def _gather(graph: GraphLowering, node: torch.fx.Node, x: Value, dim: int, positions: Value, sparse_grad: bool = False,
            ) -> Value:
    if not x.size or not positions.size:
        raise NoLowering("gather of a 0-d tensor")
    at = dim % len(x.size)
    _looks_up(x, [at])

    def compute(e: BodyBuilder, index: Index) -> str:
        place = e.indirect(positions.load(e, index), x.size[at], strict=True)
        return x.load(e, index[:at] + (place,) + index[at + 1:])

    return graph.gather(node, (x, positions), compute)


@lowering(aten.embedding.default, kind=GATHER)
def _embedding(graph: GraphLowering, node: torch.fx.Node, weight: Value, positions: Value, *_: Any, **__: Any) -> Value:
    _looks_up(weight, [0])
    rank = len(positions.size)

    def compute(e: BodyBuilder, index: Index) -> str:
        row = e.indirect(positions.load(e, index[:rank]), weight.size[0], strict=True)
        return weight.load(e, (row, index[-1]))

    return graph.gather(node, (weight, positions), compute)
