"""Which loops of a nest threads share, and which one runs as vectors."""
from __future__ import annotations

from dataclasses import replace

from ...ir.loop_nest import (
    VECTOR,
    Accumulate,
    Band,
    Blocks,
    Chunks,
    Interleave,
    Loop,
    Nodes,
    Parallel,
    Piece,
    Streamed,
    SumBlocks,
    Widened,
    rewritten,
    walk,
)
from .multiple_accumulators import VECTOR_BYTES
from .nest_facts import NestFacts

WORTH_THREADS = 8192  # elements of a piece of a loop
EVERYWHERE = (Accumulate, Chunks, SumBlocks, Interleave, Loop, Piece, Blocks, Widened, Streamed, Parallel)


def chunk_reductions(band: Band, facts: NestFacts) -> Band:
    """A reduction that threads share, in chunks of its outermost loop."""
    if not (facts.threads and facts.reductions):
        return band
    (around,) = band.body
    assert isinstance(around, Accumulate)
    *before, loop = around.body
    axis = facts.axes[0]
    blocked = any(isinstance(node, SumBlocks) for node in walk(band.body))
    side_by_side = facts.lane is None and not ((facts.in_order or facts.checks_points) and facts.vectorizes)
    aligned = VECTOR_BYTES if len(facts.axes) == 1 and (blocked or side_by_side) else 0
    chunks = Chunks(axis, facts.site.shape.chunks, facts.reductions, facts.site.shape.threads, (loop,), aligned,
                    facts.checks_inside(0))
    return replace(band, body=(replace(around, body=(*before, chunks)),))


def vectorize(band: Band, facts: NestFacts) -> Band:
    """The innermost loop as vectors, unless it must run in order; with what they carry."""
    if not facts.axes or facts.in_order:
        return band
    carried = facts.reductions if facts.lane is None else ()
    return replace(band, body=rewritten(
        band.body, facts.axes[-1], lambda loop: (replace(loop, kind=VECTOR, reductions=carried),), EVERYWHERE))


def share(band: Band, facts: NestFacts) -> Band:
    """The outermost loop is shared by threads, where they share nothing around it; of pieces, long ones."""
    if not facts.shares:
        return band
    threads, axis = facts.site.shape.threads, facts.axes[0]

    def shared(loop: Loop) -> Nodes:
        return (replace(loop, threads=threads),)

    def piece(node: Piece) -> Piece:
        worth = node.last - node.first >= WORTH_THREADS
        return replace(node, body=rewritten(node.body, axis, shared, ())) if worth else node

    body = rewritten(band.body, axis, shared, (Accumulate,))
    if len(facts.axes) == 1:
        body = tuple([piece(node) if isinstance(node, Piece) else node for node in body])
    return replace(band, body=body)


__all__ = ["chunk_reductions", "share", "vectorize"]
