"""Headers of loops, and the end of a block of lanes."""
from __future__ import annotations

from ...ir.ir import Axis
from .indices import c_expression


def loop_header(a: Axis, first: str = "0", last: str = "") -> str:
    """The loop over an axis."""
    return f"for (int64 {a.symbol} = {first}; {a.symbol} < {last or c_expression(a.extent)}; {a.symbol}++)"


def lane_header(a: Axis, width: str) -> str:
    """The loop over blocks of lanes of an axis."""
    return f"for (int64 {a.symbol}_0 = 0; {a.symbol}_0 < {c_expression(a.extent)}; {a.symbol}_0 += {width})"


def lane_end(a: Axis, width: str) -> str:
    """Where the block of lanes ends."""
    g, extent = a.symbol, c_expression(a.extent)
    return f"const int64 {g}_1 = {g}_0 + {width} < {extent} ? {g}_0 + {width} : {extent};"
