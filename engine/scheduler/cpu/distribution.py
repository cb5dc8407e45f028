"""Loop distribution inside a group's outer loops: inner nests, in order, each shared by as many bodies as possible.

A body is divided into *parts*: the statements of its inner loops (up to its reductions), and those that follow them.
Each part goes into the first nest with the same loops that comes after everything it depends on; so the exponential of
a softmax and the sum over it share a loop, while the division waits for the sum. A value that one part stores and
another part of the same nest loads at the same index stays in a register. A nest accesses a limited number of memory
streams: beyond what hardware prefetchers follow, a second loop over a row in cache is cheaper.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import sympy

from ...ir.affine import axis, size
from ...ir.body_affine import NotLinear, environment, rewrite_statements
from ...ir.ir import Axis, LoopBody, Statement
from ...ir.loop_nest import Part

MAX_STREAMS = 32  # memory streams of one loop; more than the prefetchers of a core follow
LONGEST_ROW = 4096  # elements of a loop that is distributed over several: values between them fill an array


@dataclass(frozen=True, eq=False)
class Nest:
    """Loops (none: straight code) around parts. With `inside`, the loops hold nests instead of parts."""

    loops: tuple[Axis, ...]
    parts: tuple[Part, ...] = ()
    inside: tuple[Nest, ...] = ()

    @property
    def scans(self) -> bool:
        """Whether its loops run in order (scans), so that no other body should join it."""
        return any(p.body.scans for p in self.parts)

    @property
    def all_parts(self) -> tuple[Part, ...]:
        """The parts of the nest and of the nests inside it."""
        return self.parts + tuple([p for n in self.inside for p in n.all_parts])


def dependent(body: LoopBody, symbols: frozenset[sympy.Symbol]) -> set[str]:
    """Names of the statements of `body` that depend on one of `symbols` without a reduction between."""
    names: set[str] = set()
    for s in body.statements:
        if any(a in names for a in s.args) or s.mask in names:
            varying = True
        elif s.index is not None:
            free = s.index.free_symbols
            varying = not free.isdisjoint(symbols) or any(x.name in names for x in free)
        else:
            varying = False
        if varying and s.op not in ("reduce", "part", "store"):
            names.add(s.name)
    return names


def nests_of(bodies: Sequence[LoopBody], outer: int) -> list[Nest]:
    """The nests of `bodies`, in order, inside loops over their first `outer` axes."""
    nests: list[Nest] = []
    crowded = outer > 0 and all(_is_row(b, outer) for b in bodies) and len(_streams(b.statements for b in bodies)) > (
        MAX_STREAMS)
    for body in bodies:
        inner = body.axes[outer:]
        if not body.reduction_axes:
            _place(nests, Part(body, body.statements), inner, crowded)
        elif body.scans and not inner:
            nests.append(Nest(body.reduction_axes, (Part(body, body.statements),)))
        elif not inner:
            over, after = cut(body)
            _place(nests, over, body.reduction_axes)
            _place(nests, after, ())
        else:
            nests.append(Nest(inner, inside=tuple(nests_of([body], len(body.axes)))))
    return nests if crowded else _drawn_together(nests)


def _is_row(body: LoopBody, outer: int) -> bool:
    """True for a body with one short loop inside the outer ones, and nothing to reduce or scatter in it."""
    inner = body.axes[outer:]
    short = len(inner) == 1 and inner[0].extent.is_Integer and inner[0].extent <= LONGEST_ROW
    return bool(short) and not body.reduction_axes and not any(s.op == "store" and s.mode for s in body.statements)


def _streams(bodies: Iterable[Sequence[Statement]]) -> set[tuple[str, sympy.Expr | None]]:
    """The memory streams of statements."""
    return {(s.buffer, s.index) for statements in bodies for s in statements if s.buffer}


def cut(body: LoopBody) -> tuple[Part, Part]:
    """The part of a reduction that runs over its reduction axes, and the part that follows."""
    varying = dependent(body, frozenset(a.symbol for a in body.reduction_axes))
    over: set[str] = {s.name for s in body.statements if s.op == "reduce" or (_is_check(s) and s.name in varying)}
    for s in reversed(body.statements):
        if s.name in over and s.name:
            over.update(a for a in (*s.args, s.mask) if a)
            if s.index is not None:
                over.update(x.name for x in s.index.free_symbols)
    during = tuple([s for s in body.statements if s.name in over and s.name])
    after = tuple([s for s in body.statements if s.name not in varying and s.op != "reduce"])
    return Part(body, during), Part(body, after, after=True)


def _is_check(s: Statement) -> bool:
    """Whether a statement runs for its check, even if nothing uses its value."""
    return s.op == "indirect" and s.mode != "unchecked"


def _place(nests: list[Nest], part: Part, loops: tuple[Axis, ...], crowded: bool = False) -> None:
    """Put `part` into the first nest that has its loops and comes late enough, or into a new one at the end.

    Where there are many streams (`crowded`), the nest that shares most of those of `part` comes first.
    """
    extents = tuple(a.extent for a in loops)
    positions = list(range(_earliest(nests, part), len(nests)))
    if crowded:
        own = _streams([part.statements])
        known = {at: _streams(p.statements for p in nests[at].parts) for at in positions}
        fit = [at for at in positions if len(known[at] | own) <= MAX_STREAMS]
        positions = sorted(fit, key=lambda at: len(own - known[at]))
    for position in positions:
        nest = nests[position]
        if nest.inside or nest.scans or tuple(a.extent for a in nest.loops) != extents:
            continue
        if not loops or _related(nest, part):
            renamed = _renamed(part, loops, nest.loops)
            if renamed is not None and _compatible(nest, renamed):
                nests[position] = replace(nest, parts=(*nest.parts, renamed))
                return
    nests.append(Nest(loops, (part,)))


def _drawn_together(nests: list[Nest]) -> list[Nest]:
    """`nests`, with producers moved into a later nest that reads what they store, which then stays in registers."""
    for late in range(1, len(nests)):
        for early in reversed(range(late)):
            moved = _waiting(nests, early, late)
            if moved:
                joined = Nest(nests[late].loops, (*moved, *nests[late].parts))
                return _drawn_together([*nests[:early], *nests[early + 1:late], joined, *nests[late + 1:]])
    return nests


def _waiting(nests: Sequence[Nest], early: int, late: int) -> list[Part]:
    """The parts of the nest `early` as parts of the nest `late`, which reads from it; [] where they cannot be."""
    first, second = nests[early], nests[late]
    if first.inside or not first.loops or any(p.body.reduction_axes for p in first.parts):
        return []
    if second.inside or second.scans or [a.extent for a in first.loops] != [a.extent for a in second.loops]:
        return []
    stored = {s.buffer for p in first.parts for s in p.stores}
    touched = {s.buffer for p in first.parts for s in p.loads} | stored
    if not any(s.buffer in stored for p in second.parts for s in p.loads):
        return []
    between = [p for nest in nests[early + 1:late] for p in nest.all_parts]
    if any(s.buffer in stored for p in between for s in p.loads) or any(s.buffer in touched for p in between
                                                                        for s in p.stores):
        return []
    renamed = [_renamed(p, first.loops, second.loops) for p in first.parts]
    parts = [p for p in renamed if p is not None]
    fits = len(parts) == len(renamed) and all(_compatible(Nest(second.loops, tuple(parts)), p) for p in second.parts)
    return parts if fits else []


def _earliest(nests: list[Nest], part: Part) -> int:
    """The first position where `part` may stand, not counting what a shared loop could forward in registers."""
    touched = {s.buffer for s in part.statements if s.buffer}
    earliest = 0
    for position, nest in enumerate(nests):
        for other in nest.all_parts:
            if other.body is part.body:
                earliest = max(earliest, position + bool(nest.loops))
            elif any(s.buffer in touched for s in other.stores):
                earliest = max(earliest, position)
            elif any(s.buffer in {x.buffer for x in part.stores} for s in other.loads):
                earliest = max(earliest, position)
    return earliest


def _related(nest: Nest, part: Part) -> bool:
    """True when they touch a common buffer: loops of unrelated work gain nothing from being one."""
    buffers = {s.buffer for s in part.statements if s.buffer}
    return not buffers or any(s.buffer in buffers for p in nest.parts for s in p.statements)


def _compatible(nest: Nest, part: Part) -> bool:
    """True when every element that `part` takes from the nest is the one the same iteration stores.

    Two parts that store the same buffer store disjoint pieces: the scheduler fuses no others.
    """
    stored = {s.buffer: s.index for p in nest.parts for s in p.stores if s.mode == ""}
    if any(s.mode for p in nest.parts for s in p.stores if s.buffer in {x.buffer for x in part.loads + part.stores}):
        return False
    loaded: dict[str, set[sympy.Expr | None]] = {}
    for s in (s for p in nest.parts for s in p.loads):
        loaded.setdefault(s.buffer, set()).add(s.index)
    if any(loaded.get(s.buffer, {s.index}) != {s.index} for s in part.stores):  # in place: loaded, then stored
        return not nest.loops
    return not nest.loops or all(stored[s.buffer] == s.index for s in part.loads if s.buffer in stored)


def _renamed(part: Part, loops: tuple[Axis, ...], target: tuple[Axis, ...]) -> Part | None:
    """`part` with its loops called as those of the nest that it joins; None where an index cannot be rewritten."""
    mapping = {a.symbol: axis(b.symbol.name, size(b.extent)) for a, b in zip(loops, target) if a.symbol != b.symbol}
    if not mapping:
        return part
    try:
        return Part(part.body, rewrite_statements(part.statements, environment(part.body), mapping), part.after)
    except NotLinear:
        return None


def position_of(part: Part, s: Statement) -> Statement | None:
    """The reduction of `part` that finds where the maximum (or minimum) `s` stands, and so what it is."""
    if s.op != "reduce" or s.mode not in ("max", "min"):
        return None
    wanted = ("reduce", f"arg{s.mode}", s.args)
    return next((x for x in part.statements if (x.op, x.mode, x.args) == wanted), None)
