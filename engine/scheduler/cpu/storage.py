"""Where internal buffers are kept: in a register, or in a scratch array of the kernel.

A value stays in a register when every load is in the nest that stores it. Otherwise the kernel keeps one row of it
(what the inner loops make), compact, whatever the strides of the buffer; in lane mode, one for each lane. The scheduler
marks a buffer internal only when `row_terms` of all its loads fit those of its store.
"""
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...ir.affine import Size
from ...ir.ir import Axis, Statement
from ...ir.loop_nest import Scratch
from .distribution import Nest


def layout(terms: Mapping[Size, int]) -> Scratch:
    """A compact row-major array for what inner loops with these terms (factor -> extent) write."""
    strides: dict[Size, int] = {}
    running = 1
    for factor in sorted(terms, key=lambda f: f if isinstance(f, int) else 1 << 62):
        strides[factor] = running
        running *= terms[factor]
    return Scratch(running, strides)


def needing_arrays(nests: Sequence[Nest], internal: Collection[str], lanes: bool) -> set[str]:
    """Those of `internal` that need an array: some load is in another nest than the store."""
    needed: set[str] = set()
    for name in internal:
        homes = [n for n in nests if any(s.buffer == name for p in n.all_parts for s in p.stores)]
        readers = [n for n in nests if any(s.buffer == name for p in n.all_parts for s in p.loads)]
        straight = len(homes) == 1 and not homes[0].loops and not lanes
        together = len(homes) == 1 and not homes[0].inside and all(n is homes[0] for n in readers)
        if not (straight or together):
            needed.add(name)
    return needed


def stores_of(nests: Sequence[Nest], name: str) -> list[tuple[tuple[Axis, ...], Statement]]:
    """The statements that store a buffer, with the loops of their nests."""
    found = [(n.loops, s) for n in nests for p in n.parts for s in p.stores if s.buffer == name]
    return found + [((*n.loops, *loops), s) for n in nests for loops, s in stores_of(n.inside, name)]
