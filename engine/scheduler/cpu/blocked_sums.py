"""Blocked summation: long sums are float within a block of elements, and double over the blocks.

Vectors hold twice as many floats as doubles, and a block is too short for their errors to add up.
"""
from __future__ import annotations

from dataclasses import replace

import sympy

from ...ir.ir import Axis
from ...ir.loop_nest import Accumulate, Band, Loop, Node, Nodes, Reduction, SumBlocks, rewritten
from .multiple_accumulators import accumulators_of, interleave
from .nest_facts import BLOCK, LANE_BLOCK, NestFacts

ACCUMULATORS_BLOCK = 1024  # elements of a block of sums with multiple accumulators, at least
PER_ACCUMULATOR = 32  # elements of a block for each accumulator, where there are many
SHORT = 256  # elements of a row below which there are no blocks, where a nest has several rows


def block_sums(band: Band, facts: NestFacts) -> Band:
    """The loop that sums run over, in blocks, where that makes vectors of floats."""
    sums = blocked(facts)
    if not sums or not facts.nest.loops:
        return band
    axis = facts.axes[-1] if facts.lane is None else facts.axes[0]
    body = rewritten(band.body, axis, lambda loop: _in_blocks(loop, sums, facts), (Accumulate, Loop))
    return replace(band, body=body)


def blocked(facts: NestFacts) -> tuple[Reduction, ...]:
    """The sums that are blocked."""
    if facts.lane is not None or not (facts.nest.loops and facts.reductions):
        return facts.wide_sums
    row = facts.axes[-1].extent
    short = len(facts.axes) > 1 and row.is_Integer and row < SHORT
    multiple = len(facts.wide_sums) == len(facts.reductions) and not short
    worth = multiple or facts.in_order or facts.checks_points
    return facts.wide_sums if facts.vectorizes and worth else ()


def _in_blocks(loop: Loop, sums: tuple[Reduction, ...], facts: NestFacts) -> Nodes:
    axis: Axis = loop.axis
    inside: Node = loop
    width = BLOCK
    if facts.lane is not None:
        inner = sympy.Mul(*[a.extent for a in facts.axes[1:-1]])
        width = max(1, LANE_BLOCK // int(inner)) if inner.is_Integer and inner > 0 else 1
    elif not (facts.checks_points or facts.in_order):
        count = accumulators_of(facts, sums)
        width = max(ACCUMULATORS_BLOCK, count * PER_ACCUMULATOR)
        inside = interleave((loop,), sums, count, facts)
    chunk = facts.threads and axis is facts.axes[0]  # a part of the loop, of any length
    one = axis.extent.is_Integer and axis.extent <= width and not chunk
    return (SumBlocks(axis, width, sums, (inside,), bool(one)),)
