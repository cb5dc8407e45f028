"""Reductions with multiple accumulators: a row is read in blocks of `width` elements, and accumulator k sees elements
k, k + width, ...

The accumulators of a block are vector lanes, combined by a tree reduction at the end: gcc's own reductions add lane
after lane, and a row of 64 elements spent four fifths of its time there. Long sums get two vectors, so that consecutive
additions do not depend on each other. An argmax is a vector loop as well: each accumulator remembers where the block of
its best started, in a narrow integer that is selected as fast as the values; at the end the greater value wins, of
equal ones the first, and NaN before all. A short row (a pooling window) has one accumulator for each element, shared by
all rows. What remains of a row behind its last whole block is a block under a mask: gcc's own code for it takes half a
vector and then single elements, which wait for each other in memory. Rows of 31 floats are summed in a ninth of the
time, of 100 in two fifths.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sympy
import torch

from ...ir.loop_nest import (
    SERIAL,
    VECTOR,
    Accumulate,
    Band,
    Blocks,
    Chunks,
    Interleave,
    InterleavedLoop,
    Loop,
    Nodes,
    Parallel,
    Reduction,
    SumBlocks,
    Widened,
    rewritten,
    walk,
)
from ...toolchain.cpp_build import cpu_features
from .nest_facts import NestFacts

VECTOR_BYTES = 64  # a row gets as many accumulators as a vector has of its narrowest loaded elements
MOST = 32  # accumulators, but for elements of one byte
FEW = 8  # elements of a row, at most, that are no part of a larger block
MASKED = 4  # bytes, at least, of an element that AVX2 loads under a mask; AVX-512 masks bytes
LONG = 512  # elements of a row for which a second vector pays for combining it
INSIDE = (Accumulate, Chunks, Interleave, SumBlocks, Loop, Parallel, Blocks, Widened)


def accumulate_side_by_side(band: Band, facts: NestFacts) -> Band:
    """All reductions of a nest with multiple accumulators, where their sums are not blocked."""
    if facts.lane is not None or not (facts.axes and facts.reductions):
        return band
    if any(isinstance(node, SumBlocks) for node in walk(band.body)):
        return band
    if (facts.in_order or facts.checks_points) and facts.vectorizes:
        return band
    count = accumulators_of(facts, facts.reductions)
    (around,) = band.body
    assert isinstance(around, Accumulate)
    *before, last = around.body
    if isinstance(last, Chunks):
        inside = replace(last, body=(interleave(last.body, facts.reductions, count, facts),))
        return replace(band, body=(replace(around, body=(*before, inside)),))
    return replace(band, body=(replace(around, body=(interleave(around.body, facts.reductions, count, facts),)),))


def interleave(body: Nodes, reductions: Sequence[Reduction], count: int, facts: NestFacts) -> Interleave:
    """Multiple accumulators around `body`."""
    points = sympy.Mul(*[a.extent for a in facts.axes])
    narrow = bool(points.is_Integer and int(points) < 1 << 31)
    return Interleave(facts.axes[-1], count, tuple(reductions), narrow, body)


def interleave_loops(band: Band, facts: NestFacts) -> Band:
    """The innermost loop takes as many elements at a time as there are accumulators."""
    counts = [node.count for node in walk(band.body) if isinstance(node, Interleave)]
    if not counts:
        return band
    (count,) = counts
    axis = facts.axes[-1]
    chunk = any(isinstance(node, Chunks) and node.axis is axis for node in walk(band.body))
    blocks = any(isinstance(node, (Blocks, SumBlocks)) and not getattr(node, "one", False) for node in walk(band.body))
    whole = axis.extent.is_Integer and axis.extent % count == 0 and not (chunk and not blocks)
    rest = "" if whole else "masked" if can_mask(facts) else "singly"

    def interleaved(loop: Loop) -> Nodes:
        kind = SERIAL if facts.in_order else VECTOR
        return (InterleavedLoop(axis, count, loop.body, kind, rest, loop.checks),)

    return replace(band, body=rewritten(band.body, axis, interleaved, INSIDE))


def accumulators_of(facts: NestFacts, reductions: Sequence[Reduction]) -> int:
    """How many accumulators the reductions along the innermost loop of a nest get.

    gcc takes as many lanes as there are of the narrowest type, and half of a vector where there are fewer elements.
    """
    row = facts.axes[-1].extent
    extent = int(row) if row.is_Integer else 0
    loaded = {s.dtype for p in facts.nest.parts for s in p.loads if s.dtype is not torch.float16}  # become floats
    one = VECTOR_BYTES // min([4, *[dtype.itemsize for dtype in loaded]])
    vectorize = all(r.vectorizes for r in reductions)
    block = extent > FEW and extent % 16 and can_mask(facts)  # of which the row is a part
    if 1 < extent <= MOST and not block:
        return extent
    plain = all(r.is_plain for r in reductions)  # cheap to combine
    two = len(reductions) <= 2 and vectorize
    chosen = max(one, MOST) if two and plain and extent and extent % MOST == 0 else one
    if two and extent >= LONG:
        chosen = max(one, MOST, min(2 * one, 2 * MOST))
    return _decided(facts, chosen, one) if facts.context.asked else chosen


def can_mask(facts: NestFacts) -> bool:
    """Whether the innermost loop loads contiguously, in elements that have masks, and stores so, where that is fast
    (with AVX2 a store under a mask takes some processors dozens of operations)."""
    axis, inside = facts.axes[-1].symbol, len(facts.axes)
    wide = "avx512bw" in cpu_features().split()
    least = 1 if wide else MASKED
    for part, depths in zip(facts.nest.parts, facts.depths):
        for s in part.statements:
            if s.op == "scan" or (s.op == "indirect" and depths[s.name] == inside):
                return False
            if s.op == "store" and (s.mode or not wide):
                return False
            if s.op == "store" or (s.op == "load" and depths[s.name] == inside):
                assert s.index is not None
                if s.mask or s.dtype.itemsize < least or sympy.expand(s.index).coeff(axis) != 1:
                    return False
    return not facts.in_order


def _decided(facts: NestFacts, default: int, one: int) -> int:
    """The same as a decision: one vector, a second one, or more."""
    body = facts.nest.parts[0].body.name
    options = [str(n) for n in sorted({one, max(one, MOST), 2 * max(one, MOST), default})]
    why = f"elements of a row that are reduced side by side, of which a vector has {one}: the next one need not wait"
    chosen = facts.context.decide("accumulators", facts.subject, options, str(default), why,
                                  origins=(f"loop_ir:{body}",))
    return int(chosen)
