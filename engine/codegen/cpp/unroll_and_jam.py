"""Unroll-and-jam of column reductions: the accumulators of a vector of columns are loaded and stored once for several
rows.

A sum over the rows of a matrix has one accumulator for each column, which do not fit in registers: each row would load
and store all of them. Here a vector of columns takes `ROWS` rows before its sums are stored, in the same order as row
by row, so that the result is the same. (ATen walks down narrow blocks of columns instead, whose sums stay in registers,
`vectorized_outer_sum` in aten/src/ATen/native/cpu/SumKernel.cpp; each of its rows is in another page.)
"""
from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.ir import Axis
from .indices import c_expression
from .operators import EXPENSIVE

if TYPE_CHECKING:
    from .nest_writer import NestWriter

ROWS = 4
FEW_ROWS = 15  # that are all unrolled: fewer elements than a vector has
MOST_STATEMENTS = 8  # of a row: the compiler sees them `ROWS` times, or more often


def unrolls(nest: NestWriter, depth: int) -> bool:
    """Whether the loop at `depth` of a nest in lane mode is over rows of little work each."""
    if nest.lane is None or depth != len(nest.loops) - 2 or not nest.reductions or nest.scans:
        return False
    if nest.in_order or nest.scatters or nest.checks:
        return False
    statements = [s for p in nest.nest.parts for s in p.statements]
    few = sum(s.op != "constant" for s in statements) <= MOST_STATEMENTS
    return few and not any(s.mask or s.op in EXPENSIVE or s.op == "indirect" for s in statements)


def unrolls_all(nest: NestWriter) -> bool:
    """Whether the only loop of a nest in lane mode has so few rows that all are unrolled."""
    return len(nest.nest.loops) == 1 and not (nest.threads or nest.wide) and _few(nest.nest.loops[0]) and (
        unrolls(nest, 0))


def _few(a: Axis) -> bool:
    return a.extent.is_Integer and 1 < a.extent <= FEW_ROWS


def write_unrolled_rows(nest: NestWriter, a: Axis, depth: int, first: str, last: str) -> str:
    """Write the loop over `a` unrolled by `ROWS`; returns where the remainder starts, "" if there is none."""
    lane, writer, scopes = nest.lane, nest.writer, nest.scopes
    assert lane is not None
    end, at = last or c_expression(a.extent), scopes.name(f"{a.symbol}_at")
    shared = nest.threads and depth == 0  # a chunk of rows starts and ends anywhere
    rows = int(a.extent) if _few(a) and not shared else ROWS
    writer.line(f"int64 {at} = {first};")
    with scopes.open(), writer.block(f"for (; {at} + {rows} <= {end}; {at} += {rows})"):
        nest.pragma(depth + 1, innermost=True)
        g = lane.symbol
        with scopes.open(), writer.block(f"for (int64 {g} = {g}_0; {g} < {g}_1; {g}++)"):
            with nest.in_registers():
                writer.line(f"#pragma GCC unroll {rows}")
                with scopes.open(), writer.block(f"for (int64 k = 0; k < {rows}; k++)"):
                    writer.line(f"const int64 {a.symbol} = {at} + k;")
                    nest.row()
    return at if shared or not (a.extent.is_Integer and a.extent % rows == 0) else ""
