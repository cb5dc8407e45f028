"""Loops that gather single elements and do little else: one element after the other, not as vectors.

A vector gather loads element by element all the same, and where there is none (of elements of 1 or 2 bytes) each lane
is taken out of the vector of indices and put into that of values. In order, an index out of bounds is a branch that is
never taken (g++ makes two conditional moves of it unless told otherwise, which take twice as long), where a vector
needs a comparison and a choice in each lane.

Measured on an EPYC (Zen 5), one thread, ns for an element of a row of 1024, as vectors and in order: int8 0.50 and
0.23, int16 0.51 and 0.24, int32 0.32 and 0.25, int64 0.33 and 0.27. Wide elements that come from far (a column of a
table of 4 MB), or that something is computed of, are 1.2 to 4 times faster in vectors; narrow ones never are.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ...ir.body_affine import static
from ...ir.ir import Statement
from ...ir.loop_nest import BRANCHED, Band, Loop, Nodes, Part, rewritten
from .nest_facts import NestFacts
from .threads_and_vectors import EVERYWHERE

OPTIONS = ("in-order", "vectors")
FREE = frozenset({"load", "store", "index", "indirect", "cast", "constant", "part", "bitcast"})
NARROW = 2  # bytes of an element that no instruction gathers
NEAR = 32768  # bytes of a row that the first cache holds


def gather_in_order(band: Band, facts: NestFacts) -> Band:
    """The innermost loop in order, where it gathers narrow elements, or does nothing else (a decision)."""
    if not facts.axes or facts.in_order or facts.reductions or facts.scans or facts.lane is not None:
        return band
    pairs = list(zip(facts.nest.parts, facts.depths))
    found = [pair for part, depths in pairs for pair in _gathers(part, depths, len(facts.axes))]
    if not found or facts.site.widened or facts.scatters:
        return band
    computed = sum(s.op not in FREE and depths.get(s.name, 0) == len(facts.axes)
                   for part, depths in pairs for s in part.statements)
    size = max(load.dtype.itemsize for load, _ in found)
    near = all(_is_near(load, index) for load, index in found)
    default = OPTIONS[0] if size <= NARROW or (near and not computed) else OPTIONS[1]
    why = f"{size} bytes, from {'a short row' if near else 'far away'}, and {computed} operations for each element"
    if facts.context.decide("gather-loop", facts.subject, OPTIONS, default, why) == OPTIONS[1]:
        return band

    def branched(loop: Loop) -> Nodes:
        return (replace(loop, kind=BRANCHED),)

    return replace(band, body=rewritten(band.body, facts.axes[-1], branched, EVERYWHERE))


def _gathers(part: Part, depths: Mapping[str, int], inside: int) -> Iterator[tuple[Statement, Statement]]:
    """The loads from an index that is checked at each point of the loop, with that index."""
    checked = {s.name: s for s in part.statements
               if s.op == "indirect" and s.mode != "unchecked" and depths[s.name] == inside}
    for s in part.loads:
        for symbol in s.index.free_symbols if s.index is not None and not s.mask else ():
            if symbol.name in checked:
                yield s, checked[symbol.name]


def _is_near(load: Statement, index: Statement) -> bool:
    """Whether elements come from one row that the first cache holds."""
    assert load.index is not None and index.bound is not None
    row = static(index.bound)
    step = next(load.index.coeff(symbol) for symbol in load.index.free_symbols if symbol.name == index.name)
    return step == 1 and row is not None and row * load.dtype.itemsize <= NEAR
