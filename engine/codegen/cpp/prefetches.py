"""Prints software prefetches. The instruction cannot fault: past the end it does nothing, or fetches in vain."""
from __future__ import annotations

import sympy

from ...ir.affine import renamed, shifted
from ...ir.loop_nest import PrefetchGathered, PrefetchNext
from .emission import Emission
from .indices import c_expression
from .scope import buffer_name

LINE = 64  # bytes that one instruction fetches


def prefetch_next(p: Emission, node: PrefetchNext) -> None:
    """The lines of a block of the next row: one by one, or in a loop."""
    start, stop = p.span(node.axis)
    at = "" if node.size else p.scopes.name("ahead")
    for buffer, index, size in node.reads:
        if not node.size:
            place = c_expression(renamed(index, {node.axis.symbol: sympy.Symbol(at, integer=True)}))
            header = f"for (int64 {at} = {start}; {at} < {stop}; {at} += {LINE // size})"
            p.writer.line(f"{header} __builtin_prefetch({buffer_name(buffer)} + {place});")
        for k in range(0, node.size, LINE // size):
            first = renamed(index, {node.axis.symbol: sympy.Symbol(start, integer=True)})
            place = c_expression(shifted(first, k))
            p.writer.line(f"__builtin_prefetch({buffer_name(buffer)} + {place});")


def prefetch_gathered(p: Emission, node: PrefetchGathered) -> None:
    """The row that a later iteration of an outer loop reads."""
    row, inner, around, ahead = node.row, node.inner, node.row.around.symbol, node.ahead
    assert row.index.index is not None and row.load.index is not None
    first, last = p.span(inner) if node.lanes else ("0", c_expression(inner.extent))
    there = buffer_name(row.index.buffer) + f"[{c_expression(row.index.index.xreplace({around: around + ahead}))}]"
    name = p.scopes.name(f"{row.load.buffer}_next")
    with p.loop(f"if ({around} + {ahead} < {c_expression(row.around.extent)})"):
        p.writer.line(f"const int64 {name} = {there};")
        place = c_expression(row.load.index, {row.row: name, inner.symbol.name: "k"})
        with p.writer.block(f"for (int64 k = {first}; k < {last}; k += {LINE // row.size})"):
            p.writer.line(f"__builtin_prefetch({buffer_name(row.load.buffer)} + {place});")
