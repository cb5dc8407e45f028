"""Reductions over a tile: initial values, how a tile of values is accumulated, and the final combine. One table, one
entry for each.

Every reduction keeps a tuple of accumulators with the shape of a whole tile, so that a loop over tiles is elementwise
and threads exchange values only once, at its end.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ...ir.ir import DOTS
from ...unsupported import TritonUnsupported
from .dtypes import highest, literal, lowest, value_type


@dataclass(frozen=True)
class Reduction:
    """`parts` are accumulators: (suffix of the name, dtype, initial value). The other fields print code.

    `take(accumulators, value, position)` gives the new accumulators; `finish(accumulators, axis)` the results, which
    are then converted to the dtype of the statement.
    `identity` replaces lanes that are out of range. All values have dtype `dtype` when they are taken in.
    `counts`: the last part is a count. While a loop runs it is one number, of the tiles that were taken in.
    """

    parts: tuple[tuple[str, torch.dtype, bool | int | float], ...]
    identity: str
    dtype: torch.dtype
    take: Callable[[list[str], str, str], list[str]]
    finish: Callable[[list[str], int], str]
    counts: bool = False


def reduction(mode: str, dtype: torch.dtype, position_dtype: torch.dtype = torch.int64) -> Reduction:
    """The reduction `mode` of values of `dtype`. Raises TritonUnsupported for one that the table lacks."""
    if mode not in _TABLE:
        raise TritonUnsupported(f"reduction {mode} has no Triton form")
    return _TABLE[mode](dtype, position_dtype)


def _sum(dtype: torch.dtype, position: torch.dtype) -> Reduction:
    zero = literal(0, dtype)
    return Reduction(
        (("", dtype, 0),), zero, dtype,
        lambda acc, value, at: [f"{acc[0]} + {value}"],
        lambda acc, axis: f"tl.sum({acc[0]}, {axis}){_narrowed(dtype)}",
    )


def _narrowed(dtype: torch.dtype) -> str:
    """Triton's own reductions give 32 bits for integers of fewer: back to those, which wrap around."""
    return f".to({value_type(dtype)})" if not dtype.is_floating_point and dtype.itemsize < 4 else ""


def _prod(dtype: torch.dtype, position: torch.dtype) -> Reduction:
    return Reduction(
        (("", dtype, 1),), literal(1, dtype), dtype,
        lambda acc, value, at: [f"{acc[0]} * {value}"],
        lambda acc, axis: f"tl.reduce({acc[0]}, {axis}, product)",
    )


def _extreme(name: str) -> Callable[[torch.dtype, torch.dtype], Reduction]:
    def make(dtype: torch.dtype, position: torch.dtype) -> Reduction:
        dtype = torch.int32 if dtype == torch.bool else dtype
        start = (lowest if name == "max" else highest)(dtype)
        floating = dtype.is_floating_point
        return Reduction(
            (("", dtype, start),), literal(start, dtype), dtype,
            lambda acc, value, at: [
                f"nan_{name}({acc[0]}, {value})" if floating else f"tl.{name}imum({acc[0]}, {value})"
            ],
            lambda acc, axis: (
                f"tl.reduce({acc[0]}, {axis}, nan_{name})" if floating
                else f"tl.{name}({acc[0]}, {axis}){_narrowed(dtype)}"
            ),
        )

    return make


def _arg(name: str) -> Callable[[torch.dtype, torch.dtype], Reduction]:
    def make(dtype: torch.dtype, position: torch.dtype) -> Reduction:
        dtype = torch.int32 if dtype == torch.bool else dtype
        start = (lowest if name == "max" else highest)(dtype)
        parts = (("", dtype, start), ("_index", position, torch.iinfo(position).max))
        return Reduction(
            parts, literal(start, dtype), dtype,
            lambda acc, value, at: [f"arg_{name}({acc[0]}, {acc[1]}, {value}, {at})"],
            lambda acc, axis: f"tl.reduce(({acc[0]}, {acc[1]}), {axis}, arg_{name})",
        )

    return make


def _boolean(name: str) -> Callable[[torch.dtype, torch.dtype], Reduction]:
    symbol, start, end = ("|", 0, "max") if name == "any" else ("&", 1, "min")

    def make(dtype: torch.dtype, position: torch.dtype) -> Reduction:
        return Reduction(
            (("", torch.int32, start),), str(start), torch.int32,
            lambda acc, value, at: [f"{acc[0]} {symbol} {value}"],
            lambda acc, axis: f"tl.{end}({acc[0]}, {axis})",
        )

    return make


def _welford(dtype: torch.dtype, position: torch.dtype) -> Reduction:
    parts = (("_mean", dtype, 0), ("_m2", dtype, 0), ("_count", dtype, 0))
    return Reduction(
        parts, "0.0", dtype,
        lambda acc, value, at: [f"welford_next({', '.join(acc)}, {value}, {at})"],
        lambda acc, axis: f"tl.reduce(({', '.join(acc)}), {axis}, welford)", counts=True,
    )


_TABLE: dict[str, Callable[[torch.dtype, torch.dtype], Reduction]] = {
    "sum": _sum,
    "prod": _prod,
    "max": _extreme("max"),
    "min": _extreme("min"),
    "argmax": _arg("max"),
    "argmin": _arg("min"),
    "any": _boolean("any"),
    "all": _boolean("all"),
    "welford": _welford,
    **dict.fromkeys(DOTS, _sum),  # where no tile is a matrix product's
}
