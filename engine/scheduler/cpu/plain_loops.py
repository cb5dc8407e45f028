"""A nest as plain loops: each statement in the outermost loop that it can run in, reductions around all loops."""
from __future__ import annotations

from collections.abc import Sequence

import sympy

from ...ir.ir import Axis, Statement
from ...ir.loop_nest import (
    Accumulate,
    Band,
    Compute,
    Loop,
    MaskedStart,
    MaskedStarts,
    Node,
    Nodes,
    OwnIteration,
    Part,
    Reduction,
)
from .distribution import position_of
from .nest_facts import NestFacts


def plain(facts: NestFacts, fetches: Nodes) -> Band:
    """The nest with loops that run in order; `fetches` go before the innermost one."""
    nest = facts.nest
    chunked = facts.threads and bool(facts.reductions)
    checks = any(s.op == "indirect" and s.mode != "unchecked" for _, s in facts.statements)
    flag = checks and (not chunked or 0 in facts.checked_at)
    body: Nodes
    if not facts.axes:
        body = tuple([Compute(p, p.statements) for p in nest.parts])
    else:
        body = _loops(facts, fetches, 0)
        if facts.reductions or facts.scans:
            body = (Accumulate(facts.reductions, facts.scans, _positions(facts), body),)
    return Band(nest.parts, nest.loops, facts.lane, facts.site.around, checks, flag, body)


def _loops(facts: NestFacts, fetches: Nodes, depth: int) -> Nodes:
    here = _at(facts, fetches, depth)
    if depth == len(facts.axes):
        return here
    return (*here, Loop(facts.axes[depth], _loops(facts, fetches, depth + 1), checks=facts.checks_inside(depth)))


def _at(facts: NestFacts, fetches: Nodes, depth: int) -> Nodes:
    """What is done at a depth, before the loop there."""
    made: list[Node] = []
    last = depth == len(facts.axes) - 1
    if last:
        made += fetches
    if facts.site.owner is not None and depth == 0:
        made.append(OwnIteration(facts.nest.parts[0], facts.site.owner.name))
    for part, depths in zip(facts.nest.parts, facts.depths):
        found = tuple([s for s in part.statements if depth == (
            len(facts.axes) if s.op in ("store", "reduce") else depths[s.name]) and position_of(part, s) is None])
        if found:
            made.append(Compute(part, found))
        if last:
            masked = [s for s in part.statements if s.op == "load" and s.mask and depths[s.mask] <= depth]
            made += masked_starts(facts, part, masked, facts.axes[-1])
    return tuple(made)


def _positions(facts: NestFacts) -> tuple[tuple[Part, Statement, Reduction], ...]:
    found = []
    for part, s in facts.statements:
        other = position_of(part, s)
        if other is not None:
            found.append((part, s, next(r for r in facts.reductions if r.part is part and r.statement is other)))
    return tuple(found)


# ---- loads under masks that do not change ----------------------------------------------------------------------------
def masked_starts(facts: NestFacts, part: Part, loads: Sequence[Statement], inner: Axis) -> list[MaskedStarts]:
    """Where masked loads whose mask is invariant in the loop over `inner` start.

    Without its mask a load starts at 0, if as many elements are there. So nothing is loaded under a mask in the loop:
    gcc has no vector code for a mask that is the same in all lanes. Loads of neighbours start together, so that gcc
    sees that they are.
    """
    places = {s.name: s.index.subs(inner.symbol, 0).as_coeff_Add() for s in loads if s.index is not None}
    together: dict[tuple[str, str, sympy.Expr], list[int]] = {}
    for s in loads:
        if s.name in places:
            together.setdefault((s.buffer, s.mask, places[s.name][1]), []).append(int(places[s.name][0]))
    starts = []
    for s in loads:
        if s.index is None:
            continue
        own, rest = places[s.name]
        first = min(together[s.buffer, s.mask, rest])
        if _is_there(facts, part, s, inner, int(own) - first):
            starts.append(MaskedStart(s, rest + first, s.index - rest - first))
    return [MaskedStarts(part, tuple(starts))] if starts else []


def _is_there(facts: NestFacts, part: Part, s: Statement, inner: Axis, first: int) -> bool:
    """Whether a load, without its mask, could start at the element `first` of its buffer."""
    assert s.index is not None
    step, from_data = s.index.coeff(inner.symbol), {x.name for x in part.body.statements if x.op == "indirect"}
    if s.buffer in facts.site.written or s.buffer in facts.site.local:
        return False
    if any(x.name in from_data for x in s.index.free_symbols):
        return False
    buffer = facts.site.buffers[s.buffer]
    if not all(n.is_Integer for n in (step, inner.extent, *buffer.size, *buffer.stride)) or 0 in buffer.size:
        return False
    last = sum((n - 1) * stride for n, stride in zip(buffer.size, buffer.stride))
    linear = s.index.subs(inner.symbol, 0) + step * inner.symbol == s.index
    return linear and 0 < step and first + step * (inner.extent - 1) <= last
