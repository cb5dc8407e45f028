"""The innermost loop in pieces: cut where a comparison of its variable changes, so that within a piece all are known.

A padding that reflects asks at each element on which side it is, and reads each side under a mask. In a piece the
answer is one for all elements: what remains is one plain load. That pays where a masked load does not run forwards
along memory; those that do (of a cat) are masked as whole vectors. Vectors run from 16 elements on, so that short
loops, and bodies so long that their copies would cost the compiler more than they save, stay whole.
"""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import sympy

from ...artifacts.context import CompileContext
from ..ir import Axis, Statement
from .nests import Part

LONG = 16  # elements of the longest piece, at least
MOST = 5  # pieces
STATEMENTS = 200  # of all pieces together
COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}


@dataclass(frozen=True)
class Piece:
    """The elements from `first` up to `last` of a loop; `known`: what is true or false there, by body and name."""

    first: int
    last: int
    known: Mapping[tuple[int, str], bool]


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
        """The one place whose value differs from the one before."""
        around = (self.bound - self.start) // self.step
        return (at for at in range(around - 1, around + 3) if self.holds(at - 1) != self.holds(at))


def pieces_of(parts: Sequence[Part], loop: Axis, kernel: str, context: CompileContext) -> list[Piece]:
    """The pieces of the innermost loop over `parts`; [] where it stays whole (a decision, where there is a choice)."""
    masked = [s.index for p in parts for s in p.statements if s.op == "load" and s.mask and s.index is not None]
    if not loop.extent.is_Integer or all(index.coeff(loop.symbol) == 1 for index in masked):
        return []
    extent = int(loop.extent)
    comparisons = [c for p in parts for s in p.statements if (c := _comparison(p, s, loop)) is not None]
    cuts = sorted({at for c in comparisons for at in c.changes() if 0 < at < extent})
    ends = [0, *cuts, extent]
    if not cuts or max(b - a for a, b in pairwise(ends)) < LONG:
        return []
    statements = (len(cuts) + 1) * sum(len(p.statements) for p in parts)
    few = len(cuts) < MOST and statements <= STATEMENTS
    chosen = context.decide(
        "pieces", f"{kernel}:{parts[0].body.name}", ("pieces", "whole"), "pieces" if few else "whole",
        f"masks along {loop.symbol} change at {', '.join(map(str, cuts))}"
        + ("" if few else f": {len(cuts) + 1} loops of {statements} statements"))
    if chosen == "whole":
        return []
    return [Piece(first, last, {(c.part.key, c.statement.name): c.holds(first) for c in comparisons})
            for first, last in pairwise(ends)]


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
