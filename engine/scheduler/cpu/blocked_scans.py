"""Cumulative sums and products in blocks: vectors of eight elements with an in-register scan of three steps.

A sequential scan in double waits four cycles for each addition; here only one addition of each vector depends on the
vector before. That reorders the additions, which is invisible where doubles accumulate floats; scans that accumulate in
their own precision keep eager's order. Integer scans are not blocked: an addition takes one cycle, and they wait for
memory.
"""
from __future__ import annotations

from dataclasses import replace

import torch

from ...ir.loop_nest import Accumulate, Band, Loop, Piece, RunningScan, ScanBlocks, Widened, rewritten, walk
from .nest_facts import NestFacts

BLOCK = 64  # elements of a block: stores of one vector width retire before loads of another read them
LEAST = 16  # points of a row
OPTIONS = ("blocked", "sequential")


def block_scans(band: Band, facts: NestFacts) -> Band:
    """The innermost loop in blocks, if it is a scan that may be reassociated (a decision)."""
    scan = _scan(facts)
    if scan is None or any(isinstance(node, Widened) for node in walk(band.body)):
        return band
    axis = facts.axes[-1]
    if axis.extent.is_Integer and axis.extent < LEAST:
        return band
    subject = f"{facts.kernel}:{scan.part.body.name}"
    why = f"reassociating a {scan.statement.mode} of {scan.operand} does not change the result"
    if facts.context.decide("scan-algorithm", subject, OPTIONS, OPTIONS[0], why) != OPTIONS[0]:
        return band
    return replace(band, body=rewritten(
        band.body, axis, lambda loop: (ScanBlocks(axis, scan, BLOCK, loop.body),), (Accumulate, Piece, Loop)))


def _scan(facts: NestFacts) -> RunningScan | None:
    """The scan of a nest, if it may be blocked and nothing else in the nest prevents it."""
    if not facts.axes or len(facts.scans) != 1 or facts.reductions or facts.lane is not None or facts.scatters:
        return None
    scan = facts.scans[0]
    made, s = {x.name: x for x in scan.part.body.statements}, scan.statement
    source = made[s.args[0]]
    floats = scan.operand is torch.float64 and source.op == "cast" and made[source.args[0]].dtype is not torch.float64
    plain = not any(x.op == "indirect" for _, x in facts.statements)
    fits = s.mode in ("sum", "prod") and s.dtype is torch.float64
    return scan if floats and plain and fits else None
