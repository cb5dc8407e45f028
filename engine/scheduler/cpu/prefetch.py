"""Software prefetch of the next row, while the current one is read for the last time.

A kernel that reduces a row and then reads it again stalls only in its first loop. Hardware prefetchers stop at page
boundaries, which is the end of a row of 1024 floats; and the first loads of a row are delayed by stores to the row
before at the same page offset ("4K aliasing" in Intel's Optimization Reference Manual). So the last loop prefetches the
lines of the next row, in time for both. The instruction cannot fault: after the last row it does nothing, or fetches in
vain.

Measured on an EPYC with AVX-512, a normalization of 16 MB in rows of 4 KB, beside other processes: 0.75 to 0.95 of the
time (medians). The fastest of 25 runs, with the result at each of six page offsets: 0.82 to 0.94 where stores alias,
1.05 to 1.13 where they do not.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import sympy

from ....artifacts.context import CompileContext
from ...ir.affine import axis, size as size_of
from ...ir.body_affine import coefficient, form_or_none, linear, static
from ...ir.ir import Axis, Buffer, Group, Statement
from ...ir.loop_nest import Accumulate, Band, Blocks, Loop, PrefetchNext, rewritten
from .distribution import Nest
from .nest_facts import NestFacts

LINE = 64  # bytes that one instruction fetches
BLOCK = 32  # elements of the last loop between two fetches, at least
SHORTEST, LONGEST = 8 * LINE, 16 << 10  # bytes of a row: more are evicted from L1 before they are read
MEMORY = 4 << 20  # bytes that are read, at least: more than L2 has
STREAMS = 4  # rows, of as many buffers, that are fetched at once
OPTIONS = ("next-row", "none")


@dataclass(frozen=True)
class Prefetch:
    """What the last nest of a kernel prefetches: (buffer, index in its next row, bytes of an element) for each read."""

    nest: Nest
    reads: tuple[tuple[str, sympy.Expr, int], ...]
    block: int


def prefetched_rows(
    group: Group, nests: Sequence[Nest], outer: Sequence[Axis], memory: Mapping[str, Buffer], written: set[str],
    context: CompileContext,
) -> Prefetch | None:
    """What to prefetch (a decision, where there is something); `memory` are the buffers that are not scratch.

    None for kernels without rows, and where the rows are not of a length that fits.
    """
    inner = [n for n in nests if n.loops]
    if not outer or len(inner) < 2 or any(n.inside or len(n.loops) != 1 for n in inner) or not _plain(inner[-1]):
        return None
    loop = inner[-1].loops[0]
    length, rows = static(loop.extent), static(sympy.Mul(*[a.extent for a in outer]))
    if length is None or rows is None:
        return None
    reads: dict[tuple[str, sympy.Expr], int] = {}
    for nest in [n for n in inner if n.loops[0].extent == loop.extent]:
        for s in [s for p in nest.parts for s in p.loads if s.buffer in memory and s.buffer not in written]:
            index = _next(s, nest.loops[0], loop, outer)
            if index is not None:
                reads[s.buffer, index] = s.dtype.itemsize
    block = max([BLOCK, *[LINE // size for size in reads.values()]])
    total = sum(length * rows * size for size in reads.values())
    fits = all(SHORTEST <= length * size <= LONGEST for size in reads.values()) and length % block == 0
    if not (reads and fits and len(reads) <= STREAMS and total >= MEMORY):
        return None
    why = f"rows of {', '.join(dict.fromkeys(b for b, _ in reads))} are read from memory, {total >> 20} MB in all"
    if context.decide("prefetch", group.kernel, OPTIONS, OPTIONS[0], why) != OPTIONS[0]:
        return None
    return Prefetch(inner[-1], tuple([(buffer, index, size) for (buffer, index), size in reads.items()]), block)


def prefetch_rows(band: Band, facts: NestFacts, prefetch: Prefetch | None) -> Band:
    """The innermost loop in blocks, each of which first prefetches a part of the next row, if decided."""
    if prefetch is None or facts.nest is not prefetch.nest:
        return band
    loop, size = facts.axes[-1], prefetch.block
    fetch = PrefetchNext(loop, prefetch.reads, size)
    return replace(band, body=rewritten(
        band.body, loop, lambda inner: (Blocks(loop, size, (fetch, inner), even=True),), (Accumulate, Loop)))


def _plain(nest: Nest) -> bool:
    """Whether the loop may be split anywhere: nothing is reduced or checked in it, and stores do not conflict."""
    statements = [s for p in nest.parts for s in p.statements]
    return not any(
        s.op in ("reduce", "scan", "indirect") or (s.op == "store" and s.mode) for s in statements)


def _next(s: Statement, own: Axis, loop: Axis, outer: Sequence[Axis]) -> sympy.Expr | None:
    """The index in the next iteration of the outer loop, of a load that is contiguous in `loop` (`own` in its nest) and
    reads another row in each iteration."""
    assert s.index is not None
    form = form_or_none(s.index, (own,), outer)
    if s.mask or form is None or not s.index.free_symbols <= {own.symbol, *[a.symbol for a in outer]}:
        return None
    step = coefficient(form, outer[-1].symbol)
    if coefficient(form, own.symbol) != 1 or type(step) is not int or step == 0:
        return None
    places = {a.symbol: axis(a.symbol.name, size_of(a.extent)) for a in (*outer, loop)}
    last = outer[-1].symbol
    return linear(s.index, {**places, own.symbol: places[loop.symbol], last: places[last] + 1}).expr
