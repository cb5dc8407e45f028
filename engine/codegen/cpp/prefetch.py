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
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sympy

from ....artifacts.context import CompileContext
from ...ir.body_affine import static
from ...ir.ir import Axis, Buffer, Group, Statement
from .dtypes import ctype
from .indices import c_expression
from .nests import Nest
from .scope import buffer_name

if TYPE_CHECKING:
    from .nest_writer import NestWriter

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
    loop, following = inner[-1].loops[0], {outer[-1].symbol: outer[-1].symbol + 1}
    length, rows = static(loop.extent), static(sympy.Mul(*[a.extent for a in outer]))
    if length is None or rows is None:
        return None
    reads: dict[tuple[str, sympy.Expr], int] = {}
    for nest in [n for n in inner if n.loops[0].extent == loop.extent]:
        for s in [s for p in nest.parts for s in p.loads if s.buffer in memory and s.buffer not in written]:
            index = _along(s, nest.loops[0], loop, outer)
            if index is not None:
                reads[s.buffer, index.xreplace(following)] = ctype(s.dtype).bytes
    block = max([BLOCK, *[LINE // size for size in reads.values()]])
    total = sum(length * rows * size for size in reads.values())
    fits = all(SHORTEST <= length * size <= LONGEST for size in reads.values()) and length % block == 0
    if not (reads and fits and len(reads) <= STREAMS and total >= MEMORY):
        return None
    why = f"rows of {', '.join(dict.fromkeys(b for b, _ in reads))} are read from memory, {total >> 20} MB in all"
    if context.decide("prefetch", group.kernel, OPTIONS, OPTIONS[0], why) != OPTIONS[0]:
        return None
    return Prefetch(inner[-1], tuple([(buffer, index, size) for (buffer, index), size in reads.items()]), block)


def write_prefetching(nest: NestWriter, loop: Axis, depth: int) -> bool:
    """Write the innermost loop in blocks, each of which first prefetches a part of the next row, if decided."""
    prefetch, writer, g = nest.kernel.prefetch, nest.writer, loop.symbol
    if prefetch is None or nest.nest is not prefetch.nest:
        return False
    with nest.scopes.open(), writer.block(
        f"for (int64 {g}_0 = 0; {g}_0 < {c_expression(loop.extent)}; {g}_0 += {prefetch.block})"
    ):
        for buffer, index, size in prefetch.reads:
            for k in range(0, prefetch.block, LINE // size):
                place = c_expression(index.xreplace({g: sympy.Symbol(f"{g}_0", integer=True) + k}))
                writer.line(f"__builtin_prefetch({buffer_name(buffer)} + {place});")
        nest.pragma(depth, True)
        with nest.scopes.open(), writer.block(f"for (int64 {g} = {g}_0; {g} < {g}_0 + {prefetch.block}; {g}++)"):
            nest.innermost()
    return True


def prefetch_block(nest: NestWriter, start: str, stop: str) -> None:
    """Write the fetches of a block of the next row, if the last loop is written in blocks for another reason."""
    prefetch = nest.kernel.prefetch
    if prefetch is None or nest.nest is not prefetch.nest:
        return
    at = nest.scopes.name("ahead")
    for buffer, index, size in prefetch.reads:
        place = c_expression(index.xreplace({nest.loops[-1].symbol: sympy.Symbol(at, integer=True)}))
        header = f"for (int64 {at} = {start}; {at} < {stop}; {at} += {LINE // size})"
        nest.writer.line(f"{header} __builtin_prefetch({buffer_name(buffer)} + {place});")


def _plain(nest: Nest) -> bool:
    """Whether the loop may be split anywhere: nothing is reduced or checked in it, and stores do not conflict."""
    statements = [s for p in nest.parts for s in p.statements]
    return not any(
        s.op in ("reduce", "scan", "indirect") or (s.op == "store" and s.mode) for s in statements)


def _along(s: Statement, own: Axis, loop: Axis, outer: Sequence[Axis]) -> sympy.Expr | None:
    """The index of a load that is contiguous in `loop`, with another row in each iteration of the outer loop."""
    assert s.index is not None
    rest = sympy.expand(s.index - own.symbol)
    step = sympy.expand(rest.xreplace({outer[-1].symbol: outer[-1].symbol + 1}) - rest)
    if s.mask or not rest.free_symbols <= {a.symbol for a in outer} or not step.is_Integer or step == 0:
        return None
    return rest + loop.symbol
