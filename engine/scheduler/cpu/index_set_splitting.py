"""Index-set splitting of the innermost loop: split where a comparison of its variable, or a quotient of it, changes.

A reflection padding compares each element with both borders and reads each side under a mask. In a split loop the
comparison is constant and one plain load remains. That pays where a masked load is not contiguous; contiguous ones (of
a cat) are masked as whole vectors, unless one mask covers several of them (a stencil inside of a border), there are
several masks (neighbours on a ring, a cat of many), or elements are narrow: eight vectors of indices are compared for
one of bytes. A repetition, or circular padding, indexes with a remainder, for
which there is no vector load: in a split loop it is the index minus a constant. Vectors need 16 elements, so short
loops stay whole, and so do bodies so long that their copies would cost more compile time than they save.
"""
from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import sympy
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from ...ir.ir import Axis, Statement
from ...ir.loop_nest import Accumulate, Band, Known, Loop, Nodes, Part, Piece, rewritten
from ...ir.tiles import Tile
from .distribution import dependent
from .nest_facts import NestFacts
from .plain_loops import masked_starts

LONG = 16  # elements of the longest piece, at least
MOST = 5  # pieces
NARROW = 2  # bytes of an element
SEVERAL = 3  # loads under one mask; more masks than that are several, too
STATEMENTS = 200  # of all pieces together
COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}


@dataclass(frozen=True)
class Comparison:
    """A statement that compares step * (the loop's variable) + start with a number."""

    part: Part
    statement: Statement
    step: int
    start: int
    bound: int

    def holds(self, place: int) -> bool:
        """Its value for one element."""
        return COMPARISONS[self.statement.op](self.step * place + self.start, self.bound)

    def changes(self) -> Iterator[int]:
        """The index at which the comparison changes."""
        around = (self.bound - self.start) // self.step
        return (at for at in range(around - 1, around + 3) if self.holds(at - 1) != self.holds(at))


@dataclass(frozen=True)
class Quotient:
    """A quotient, or the remainder, of step * (the loop's variable) + start by a number, as it appears in an index."""

    found: sympy.Basic
    step: int
    start: int
    divisor: int

    def at(self, place: int) -> int:
        """The quotient for one element."""
        return (self.step * place + self.start) // self.divisor

    def changes(self, extent: int) -> Iterator[int]:
        """The indices at which the quotient changes; none if they are too many to split at."""
        if abs(self.step) * extent > MOST * self.divisor:
            return
        first, last = self.at(0), self.at(extent - 1)
        for quotient in range(first + 1, last + 1):  # where it is reached, as it grows
            yield -((self.start - quotient * self.divisor) // self.step)
        for quotient in range(first, last, -1):  # where it is left, as it shrinks
            yield (self.start - quotient * self.divisor) // -self.step + 1

    def value(self, place: int, loop: Axis) -> sympy.Expr:
        """What replaces it in the piece that starts at `place`."""
        if isinstance(self.found, FloorDiv):
            return sympy.Integer(self.at(place))
        return self.step * loop.symbol + (self.start - self.divisor * self.at(place))


def split_index_set(band: Band, facts: NestFacts) -> Band:
    """The innermost loop in pieces (a decision, where there is a choice)."""
    if not facts.axes or facts.reductions or facts.lane is not None or isinstance(facts.site.tile, Tile):
        return band
    ranges = _ranges(facts, facts.axes[-1], len(facts.axes) == 1 and not facts.site.outer)
    if not ranges:
        return band

    def split(loop: Loop) -> Nodes:
        return tuple([_piece(facts, loop, found) for found in ranges])

    return replace(band, body=rewritten(band.body, facts.axes[-1], split, (Accumulate, Loop)))


@dataclass(frozen=True)
class Range:
    """The elements from `first` up to `last` of a loop; `known`: comparisons that are constant there, by body and name;
    `places`: quotients and remainders in indices."""

    first: int
    last: int
    known: Mapping[tuple[int, str], bool]
    places: Mapping[sympy.Basic, sympy.Expr]


def _piece(facts: NestFacts, loop: Loop, found: Range) -> Piece:
    known: list[Known] = []
    for part, depths in zip(facts.nest.parts, facts.depths):
        values = folded(part, found.known)
        kept = {n: v for n, v in values.items() if isinstance(v, bool) or depths[v] < len(facts.axes)}
        masked = [s for s in part.statements if s.op == "load" and isinstance(kept.get(s.mask), str)]
        known.append(Known(part, kept, tuple(masked_starts(facts, part, masked, loop.axis))))
    return Piece(loop.axis, found.first, found.last, tuple(known), found.places, (loop,))


def _ranges(facts: NestFacts, loop: Axis, alone: bool) -> list[Range]:
    """The pieces of the innermost loop; [] where it stays whole.

    `alone`: there is no other loop, so lanes that a mask hides may be outside of the tensor's memory, where masked
    loads are slow.
    """
    parts = facts.nest.parts
    loads = [s for p in parts for s in p.statements if s.op == "load" and s.mask and s.index is not None]
    masked = [s.index for s in loads if s.index is not None]
    masks = Counter((p.key, s.mask) for p in parts for s in p.statements if s.op == "load" and s.mask)
    if not loop.extent.is_Integer:
        return []
    extent = int(loop.extent)
    quotients = [q for q in _quotients(parts, loop) if any(True for _ in q.changes(extent))]
    comparisons: list[Comparison] = []
    several = max(masks.values(), default=0) >= SEVERAL or len(masks) > SEVERAL
    several |= any(s.dtype.itemsize <= NARROW for s in loads)
    if alone or several or not all(index.coeff(loop.symbol) == 1 for index in masked):
        comparisons = [c for p in parts for s in p.statements if (c := _comparison(p, s, loop)) is not None]
    cuts = sorted({at for c in comparisons for at in c.changes() if 0 < at < extent}.union(
        *[q.changes(extent) for q in quotients]))
    ends = [0, *cuts, extent]
    if not cuts or max(b - a for a, b in pairwise(ends)) < LONG:
        return []
    pieces = [Range(first, last, {(c.part.key, c.statement.name): c.holds(first) for c in comparisons},
                    {q.found: q.value(first, loop) for q in quotients})
              for first, last in pairwise(ends)]
    statements = sum(_left(part, loop, piece.known) for piece in pieces for part in parts)
    few = len(cuts) < MOST and statements <= STATEMENTS
    chosen = facts.context.decide(
        "split-loop", facts.subject, ("split", "whole"), "split" if few else "whole",
        f"masks or remainders along {loop.symbol} change at {', '.join(map(str, cuts))}"
        + ("" if few else f": {len(cuts) + 1} loops of {statements} statements"))
    return pieces if chosen == "split" else []


def _left(part: Part, loop: Axis, known: Mapping[tuple[int, str], bool]) -> int:
    """How many statements of `part` are left in a piece after masks that are False there; invariants are hoisted."""
    values, made = folded(part, known), {s.name: s for s in part.statements if s.name}
    wanted = [s for s in part.statements if not s.name or s.op == "reduce"]
    seen: set[str] = set()
    while wanted:
        s = wanted.pop()
        used = [*s.args, *([s.mask] if s.mask else []), *[x.name for x in (s.index.free_symbols if s.index else ())]]
        if s.mask and values.get(s.mask) is False:
            used = []
        elif s.op == "where" and isinstance(values.get(s.args[0]), bool):
            used = [s.args[1 if values[s.args[0]] else 2]]
        new = {name for name in used if name in made and name not in values} - seen
        seen |= new
        wanted += [made[name] for name in new]
    return len(seen & dependent(part.body, frozenset((loop.symbol,)))) + len(part.stores)


def _quotients(parts: Sequence[Part], loop: Axis) -> list[Quotient]:
    """The quotients and remainders in indices that depend on the loop's variable alone."""
    indices = dict.fromkeys(s.index for p in parts for s in p.statements if s.index is not None)
    found = dict.fromkeys(x for index in indices for x in index.atoms(FloorDiv, Mod, PythonMod))
    quotients = []
    for x in found:
        inner, divisor = x.args
        step = inner.coeff(loop.symbol)
        start = sympy.expand(inner - step * loop.symbol)
        if divisor.is_Integer and divisor > 0 and step.is_Integer and step != 0 and start.is_Integer:
            quotients.append(Quotient(x, int(step), int(start), int(divisor)))
    return quotients


def _comparison(part: Part, s: Statement, loop: Axis) -> Comparison | None:
    if s.op not in COMPARISONS:
        return None
    made = {x.name: x for x in part.statements}
    left, right = (made.get(a) for a in s.args)
    if left is None or left.op != "index" or left.index is None or right is None or right.op != "constant":
        return None
    step = left.index.coeff(loop.symbol)
    start = left.index - step * loop.symbol
    if not (step.is_Integer and step != 0 and sympy.expand(start).is_Integer and type(right.value) is int):
        return None
    return Comparison(part, s, int(step), int(sympy.expand(start)), right.value)


def folded(part: Part, known: Mapping[tuple[int, str], bool]) -> dict[str, bool | str]:
    """What the booleans of `part` are in a piece: true, false, or the name of another that they equal."""
    found: dict[str, bool | str] = {name: value for (key, name), value in known.items() if key == part.key}
    for s in part.statements:
        if s.op not in ("logical_and", "logical_or") or not any(a in found for a in s.args):
            continue
        first, second = (found.get(a, a) for a in s.args)
        neutral = s.op == "logical_and"  # true changes nothing, false decides
        if first is (not neutral) or second is (not neutral):
            found[s.name] = not neutral
        elif first is neutral:
            found[s.name] = second
        elif second is neutral:
            found[s.name] = first
    return found
