"""float16 converted a block of a row at a time: memory holds 16 bits, the loop works on float scratch arrays.

Processors convert whole vectors of float16 with one instruction, which gcc does not emit in a vectorized loop: its
bit-twiddling takes 8 instructions for a load, and 15 for a store. So a contiguous loop runs over blocks: the float16
values it reads are converted into an array in L1, the loop itself is float32, and its results are converted at the end.
What is not read contiguously is converted bit by bit, in the loop.

Measured on a Zen 5, one thread, against conversion by bits: a sum of two takes a quarter of the time, a layer norm
before a softmax two thirds, a cumulative sum a quarter.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import sympy
import torch

from ...ir.affine import without
from ...ir.body_affine import static
from ...ir.ir import Axis, Statement
from ...ir.loop_nest import (
    Accumulate,
    Band,
    Blocks,
    Chunks,
    Interleave,
    Loop,
    Node,
    Nodes,
    Parallel,
    Part,
    Piece,
    PrefetchNext,
    SumBlocks,
    Widened,
    WidenRow,
    rewritten,
    walk,
)
from .bitwise_copies import Moves
from .distribution import Nest
from .nest_facts import NestFacts, Site

BLOCK = 512  # elements of a block
LEAST = 64  # elements of a row: fewer are not worth the calls
LONGEST = 4096  # elements of a row that several loops share: its floats fit L1
MOST = 12  # arrays of a loop
OPTIONS = ("blocked", "elementwise")


def widen_blocks(band: Band, facts: NestFacts, fetch: PrefetchNext | None) -> Band:
    """The innermost loop in blocks whose float16 operands are converted around it (a decision)."""
    if not facts.axes or any(isinstance(node, Piece) for node in walk(band.body)):
        return band
    loop = facts.axes[-1]
    found = _accesses(facts, loop)
    if not 0 < len(found) <= MOST or not _decided(facts, found):
        return band
    narrowed = any(isinstance(n, (SumBlocks, Chunks)) and n.axis is loop and not getattr(n, "one", False)
                   for n in walk(band.body))
    one = not narrowed and bool(loop.extent.is_Integer and loop.extent <= BLOCK)
    width = int(loop.extent) if one else BLOCK

    def blocks(inner: Loop) -> Nodes:
        widened = Widened(loop, width, tuple(found.values()), facts.site.streamed, (inner,))
        made: Node = Blocks(loop, width, (*([fetch] if fetch is not None else []), widened))
        if facts.shares and len(facts.axes) == 1:
            made = Parallel((made,), facts.site.shape.threads, fence=bool(facts.site.streamed))
        return (made,)

    return replace(band, body=rewritten(
        band.body, loop, blocks, (Accumulate, Chunks, SumBlocks, Interleave, Loop)))


def widened_rows(nests: Sequence[Nest], site: Site) -> list[WidenRow]:
    """The float16 rows that are converted once, before the nests of a row, since several of them read them."""
    looped = [n for n in nests if n.loops]
    outer = {a.symbol.name for a in site.outer}
    if not outer or site.lane is not None or any(n.inside or len(n.loops) != 1 for n in looped):
        return []
    stored = {s.buffer for n in looped for p in n.all_parts for s in p.stores}
    found: dict[tuple[str, sympy.Expr, sympy.Expr], list[Statement]] = {}
    for nest in looped:
        loop, length = nest.loops[0], static(nest.loops[0].extent) or 0
        reads: dict[tuple[str, sympy.Expr, sympy.Expr], Statement] = {}
        for part in nest.parts:
            moves: Moves | None = None
            for s in part.loads:
                if s.dtype is torch.float16 and not s.mask and s.buffer not in stored and s.buffer not in site.local:
                    rest = _rest(s, loop)
                    known = {x.name for x in rest.free_symbols} <= outer
                    moves = moves or Moves(part)
                    if known and s.name not in moves.loads and LEAST <= length <= LONGEST:
                        reads[s.buffer, rest, loop.extent] = s
        for place, s in reads.items():
            found.setdefault(place, []).append(s)
    rows, axes = [], tuple([n.loops[0] for n in looped])
    for (buffer, rest, extent), loads in found.items():
        subject = f"{site.group.kernel}:{buffer}"
        why = f"{len(loads)} loops read a row of {buffer}, in float16: it is converted once"
        if len(loads) < 2 or site.context.decide("half-conversion", subject, OPTIONS, OPTIONS[0], why) != OPTIONS[0]:
            continue
        rows.append(WidenRow(buffer, rest, extent, axes))
    return rows


def _rest(s: Statement, loop: Axis) -> sympy.Expr:
    """The start of a contiguous load; for a strided one, the loop's variable is left in it."""
    assert s.index is not None
    return without(s.index, loop.symbol)


def _accesses(facts: NestFacts, loop: Axis) -> dict[tuple[object, ...], tuple[Part, Statement]]:
    """The contiguous float16 loads and stores, each address once, that are not bitwise copies."""
    site, extent = facts.site, static(loop.extent)
    if site.tile is not None or facts.lane is not None or (extent is not None and extent < LEAST):
        return {}
    if facts.shares and facts.checked_at:  # each thread would need a flag of its own
        return {}
    stored = {s.buffer: s.index for p in facts.nest.parts for s in p.stores}
    found: dict[tuple[object, ...], tuple[Part, Statement]] = {}
    for part, depths in zip(facts.nest.parts, facts.depths):
        moves: Moves | None = None
        for s in part.statements:
            if s.dtype is not torch.float16 or s.op not in ("load", "store") or s.mode or s.mask:
                continue
            changed = stored.get(s.buffer, s.index) != s.index
            if s.buffer in site.local or changed or not _along(s, loop, facts, depths):
                continue
            row = s.op == "load" and (s.buffer, sympy.expand(s.index)) in site.widened
            moves = moves or Moves(part)
            if not row and not moves.moved(s):
                found.setdefault((s.op, s.buffer, s.index), (part, s))
    return found


def _along(s: Statement, loop: Axis, facts: NestFacts, depths: Mapping[str, int]) -> bool:
    """Whether an access is contiguous in the loop, from an address known before it."""
    rest = _rest(s, loop)
    return loop.symbol not in rest.free_symbols and all(
        depths.get(x.name, 0) < len(facts.axes) for x in rest.free_symbols)


def _decided(facts: NestFacts, found: Mapping[tuple[object, ...], tuple[Part, Statement]]) -> bool:
    names = dict.fromkeys(s.buffer for _, s in found.values())
    why = f"{', '.join(names)}, in float16, contiguous along {facts.axes[-1].symbol}: converted by vector instructions"
    return facts.context.decide("half-conversion", facts.subject, OPTIONS, OPTIONS[0], why) == OPTIONS[0]
