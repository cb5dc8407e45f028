"""The states of reductions as the interpreter of loop nests keeps them: how they start, and how two are joined."""
from __future__ import annotations

from typing import Any

import torch

from .loop_nest import Reduction

State = tuple[torch.Tensor, torch.Tensor]
"""Of a reduction: the value so far and, for one that finds a position, where it is."""


def started(r: Reduction, count: int | None, partial: bool) -> State:
    """The start of a reduction, of one accumulator or of `count`; `partial`: of a float sum in a block."""
    dtype = r.statement.dtype if r.kind in ("sum", "prod") else r.operand
    if r.wide and r.kind in ("sum", "prod"):
        dtype = r.operand if partial else torch.float64
    start: Any = {"sum": 0, "prod": 1, "any": False, "all": True}.get(r.kind)
    if start is None:
        start = _extreme(r.operand, r.kind.endswith("max"))
    shape = () if count is None else (count,)
    return torch.full(shape, start, dtype=dtype), torch.zeros(shape, dtype=torch.int64)


def joined(r: Reduction, mine: State, other: State) -> State:
    """Two states, the first of elements that come before those of the second."""
    (a, at), (b, there) = mine, other
    if r.kind in ("sum", "prod"):
        return (a + b if r.kind == "sum" else a * b), at
    if r.kind in ("any", "all"):
        return (a | b.bool() if r.kind == "any" else a & b.bool()), at
    if r.kind in ("max", "min"):
        return (torch.maximum if r.kind == "max" else torch.minimum)(a, b), at
    better = b > a if r.kind == "argmax" else b < a
    same = a == b
    if a.is_floating_point():
        better, same = better | (b.isnan() & ~a.isnan()), same | (a.isnan() & b.isnan())
    better = better | (same & (there < at))
    return torch.where(better, b, a), torch.where(better, there, at)


def _extreme(dtype: torch.dtype, lowest: bool) -> Any:
    """Where a maximum (or minimum) starts."""
    if dtype is torch.bool:
        return not lowest
    if dtype.is_floating_point:
        return float("-inf") if lowest else float("inf")
    return torch.iinfo(dtype).min if lowest else torch.iinfo(dtype).max
