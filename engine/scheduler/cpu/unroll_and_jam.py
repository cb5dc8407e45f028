"""Unroll-and-jam of column reductions: the accumulators of a vector of columns are loaded and stored once for several
rows.

A sum over the rows of a matrix has one accumulator for each column, which do not fit in registers: each row would load
and store all of them. Here a vector of columns takes `ROWS` rows before its sums are stored, in the same order as row
by row, so that the result is the same. (ATen walks down narrow blocks of columns instead, whose sums stay in registers,
`vectorized_outer_sum` in aten/src/ATen/native/cpu/SumKernel.cpp; each of its rows is in another page.)
"""
from __future__ import annotations

from dataclasses import replace

from ...ir.ir import Axis
from ...ir.loop_nest import Accumulate, Band, Chunks, JammedRows, Loop, Nodes, SumBlocks, rewritten
from .cost import EXPENSIVE, FEW_ROWS
from .nest_facts import NestFacts

ROWS = 4
MOST_STATEMENTS = 8  # of a row: the compiler sees them `ROWS` times, or more often


def jam_rows(band: Band, facts: NestFacts) -> Band:
    """The loop over rows around the loop over lanes, several rows at a time, where there is little work in each."""
    if not _unrolls(facts):
        return band
    through = (Accumulate, Chunks, SumBlocks, Loop)
    body = rewritten(band.body, facts.axes[-2], lambda loop: _jammed(loop, facts), through)
    (around,) = body
    assert isinstance(around, Accumulate)
    return replace(band, body=(replace(around, once=_at_once(facts)),))


def _unrolls(facts: NestFacts) -> bool:
    """Whether a nest along lanes has rows of little work each."""
    if facts.lane is None or len(facts.axes) < 2 or not facts.reductions or facts.scans:
        return False
    if facts.in_order or facts.scatters or facts.checks_points:
        return False
    few = sum(s.op != "constant" for _, s in facts.statements) <= MOST_STATEMENTS
    return few and not any(s.mask or s.op in EXPENSIVE or s.op == "indirect" for _, s in facts.statements)


def _at_once(facts: NestFacts) -> bool:
    """Whether the only loop over rows has so few that all are unrolled: a lane goes from the start to the result."""
    return len(facts.nest.loops) == 1 and not (facts.threads or facts.wide_sums) and _few(facts.nest.loops[0])


def _few(a: Axis) -> bool:
    return bool(a.extent.is_Integer and 1 < a.extent <= FEW_ROWS)


def _jammed(loop: Loop, facts: NestFacts) -> Nodes:
    a, lane = loop.axis, facts.lane
    assert lane is not None
    chunk = facts.threads and a is facts.axes[0]  # it starts and ends anywhere
    rows = int(a.extent) if _few(a) and not chunk else ROWS
    rest = chunk or not (a.extent.is_Integer and a.extent % rows == 0)
    *before, inner = loop.body
    assert isinstance(inner, Loop)
    wide = facts.wide_sums
    kept = (*wide, *[r for r in facts.reductions if r not in wide])
    return (JammedRows(a, lane, rows, kept, _at_once(facts), (*before, *inner.body), (loop,) if rest else ()),)
