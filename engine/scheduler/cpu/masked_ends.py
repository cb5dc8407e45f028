"""The end of a short row as a vector under a mask.

Of a row of 31 elements g++ makes a vector of 16, one of 8 and 7 single ones, each of which takes as long as the vector
does where something is computed. Under a mask the end is one vector more. That pays where rows are short and are no
whole vectors; rows whose elements follow each other without a break have become one long loop before.
"""
from __future__ import annotations

from dataclasses import replace

import torch

from ...ir.loop_nest import VECTOR, Band, Compute, Interleave, InterleavedLoop, Loop, Nodes, rewritten, walk
from ...toolchain.cpp_build import cpu_features
from .multiple_accumulators import FEW, VECTOR_BYTES, can_mask
from .nest_facts import NestFacts

LONGEST = 256  # elements of a row


def mask_ends(band: Band, facts: NestFacts) -> Band:
    """The innermost loop as whole vectors and one under a mask, where nothing is reduced in it."""
    rows = len(facts.axes) > 1 or facts.site.outer or facts.site.around
    if not facts.axes or not rows or facts.lane is not None or facts.threads or facts.site.tile is not None:
        return band
    if facts.reductions or facts.scans or facts.scatters or facts.site.streamed or facts.checks_points:
        return band
    axis = facts.axes[-1]
    if not (axis.extent.is_Integer and FEW < axis.extent <= LONGEST) or axis.extent % 16 == 0:
        return band
    plain = all(isinstance(node, (Loop, Compute)) for node in walk(band.body))
    if not plain or "avx512bw" not in cpu_features().split() or not can_mask(facts):
        return band
    moved = {s.dtype.itemsize for _, s in facts.statements if s.op in ("load", "store")}
    if any(s.dtype is torch.float16 for _, s in facts.statements) or not moved:
        return band
    count = VECTOR_BYTES // max(2, min(4, *moved))

    def ended(loop: Loop) -> Nodes:
        inside = InterleavedLoop(axis, count, loop.body, VECTOR, "masked", loop.checks)
        return (Interleave(axis, count, (), False, (inside,)),)

    return replace(band, body=rewritten(band.body, axis, ended, (Loop,)))
