"""Tiling of kernels that pass several times over strided rows: a few rows at once, transposed.

A layer norm makes three passes over a row. Where the elements of a row are strided and neighbouring rows are contiguous
(channels of an image), each pass reads one element of each cache line, and with strides of a page the lines are evicted
before the next row. So a tile of as many rows as a line has elements is transposed (`transpose_tiles.py`) into an array
that stays in cache, and all passes run on that. Outputs in such a layout are computed in an array too, and written to
memory when the rows of the tile are complete.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import sympy

from ....artifacts.context import CompileContext
from ...ir.affine import Linear, axis_symbol
from ...ir.body_affine import coefficient, form_or_none, mentions, static
from ...ir.ir import Axis, Group, LoopBody, Statement
from ...ir.tiles import RowOperand, RowPlace, RowTile, row_place
from .distribution import Nest, nests_of
from .transpose_tiles import FIRST, LINE, block_side, room

LEAST = 8  # rows, and elements of a row, of a block that is transposed as vectors
SHORT = 32  # elements of a row, below which lanes of rows are faster: they need no horizontal sums
MOST_BYTES = 512 * 1024  # of all arrays of a tile: a part of L2
LONG = 64  # elements of a row of which a part of a block may be transposed one by one
LANES = 64  # rows that are a block of lanes, about
LOST = 3  # transpositions that cost less than a pass of lanes over lines that are evicted


@dataclass(frozen=True)
class Access:
    """A load or store of a buffer in memory, inside the loops of a nest."""

    nest: Nest
    loops: tuple[Axis, ...]
    statement: Statement
    form: Linear | None  # of its index; None where it is data-dependent or masked

    @property
    def place(self) -> RowPlace:
        """What its innermost loop accesses."""
        assert self.form is not None
        return row_place(self.statement.buffer, self.form, self.loops[-1])

    def across(self, row: Axis) -> bool:
        """Whether it is contiguous along `row`, and strided in its innermost loop."""
        if self.form is None or not self.loops or (static(self.loops[-1].extent) or 0) < LEAST:
            return False
        step = coefficient(self.form, self.loops[-1].symbol)
        return coefficient(self.form, row.symbol) == 1 and step not in (None, 0, 1) and not any(
            mentions(self.form, a.symbol) for a in self.loops[:-1])

    def along(self, row: Axis) -> bool:
        """Whether it is contiguous in its innermost loop, with another address for each row."""
        found = self.form is not None and bool(self.loops) and coefficient(self.form, self.loops[-1].symbol) == 1
        return found and self.form is not None and mentions(self.form, row.symbol)

    def scatters(self, row: Axis) -> bool:
        """Whether the lines that a block of lanes touches, one for each row, do not stay in the first-level cache."""
        step = 0 if self.form is None else coefficient(self.form, row.symbol)
        return isinstance(step, int) and 0 < room(abs(step) * self.statement.dtype.itemsize, *FIRST) < LANES


def find_row_tile(
    group: Group, bodies: Sequence[LoopBody], local: Collection[str], lanes: bool, fewest: int, context: CompileContext
) -> tuple[RowTile | None, bool]:
    """The tile of a kernel that reduces rows, and whether the vector loops run over lanes (a decision).

    There is none where all rows are contiguous, nor where there would be less than `fewest`; then the kernel has
    `lanes`, if these are better than rows one by one.
    """
    accesses = [a for a in _accesses(nests_of(bodies, len(group.axes)), group) if a.statement.buffer not in local]
    rows = Counter(r for r in group.axes if _long(r.extent) for a in accesses if a.across(r))
    if not rows:
        return None, lanes
    row = rows.most_common(1)[0][0]
    passes = _passes(accesses, row)
    if not passes:
        return None, lanes
    lines, operands = _sized(passes)
    tiles = static(sympy.ceiling(row.extent / lines) * sympy.Mul(*[r.extent for r in group.axes if r != row]))
    if not operands or (tiles is not None and tiles < fewest):
        return None, lanes
    lengths = {place[2] for place in operands}
    sides = {block_side(x.load.dtype) for x in operands.values()}
    vectors = 0 not in sides and all(n % max(sides) == 0 or n >= LONG for n in lengths)
    others = {(id(a.nest), a.place): a for a in accesses if a.along(row)}
    lost = any(a.scatters(row) for a in others.values())
    worth = vectors and (not lanes or (min(lengths) >= SHORT and len(operands) <= len(others) * (LOST if lost else 1)))
    options = ("tiles", "lanes", "rows") if lanes else ("tiles", "rows")
    names = ", ".join(place[0] for place in operands)
    why = (f"{names} is strided along the rows, contiguous along {row.symbol}; other passes: {len(others)}" + (
        ", whose cache lines lanes would evict; " if lost else "; ") + (
        "transposed in vector registers" if vectors else "transposed element by element"))
    chosen = context.decide("tile", group.kernel, options, options[0 if worth else 1], why)
    return RowTile(row, lines, operands, group.axes) if chosen == "tiles" else None, chosen == "lanes"


def _sized(passes: dict[RowPlace, list[Access]]) -> tuple[int, dict[RowPlace, RowOperand]]:
    """How many rows a tile has (as many as a line has elements, or as fit) and what it holds; nothing where none
    fit."""
    lines = max(LEAST, LINE // min(found[0].statement.dtype.itemsize for found in passes.values()))
    while lines >= LEAST:
        operands = {place: _operand(k, found, lines) for k, (place, found) in enumerate(passes.items())}
        if sum(lines * x.wide * x.load.dtype.itemsize for x in operands.values()) <= MOST_BYTES:
            return lines, operands
        lines //= 2
    return LEAST, {}


def _operand(number: int, found: Sequence[Access], rows: int) -> RowOperand:
    first, place = found[0].statement, found[0].place
    line = LINE // first.dtype.itemsize
    width = -(-place[2] // line) * line
    if room(width // line * LINE, *FIRST) < 2 * rows:  # the lines of a column would map to few cache sets
        width += line
    stored = any(a.statement.op == "store" for a in found)
    return RowOperand(f"tile{number}", first, place, width, first.op == "load", stored)


def _passes(accesses: Sequence[Access], row: Axis) -> dict[RowPlace, list[Access]]:
    """The strided buffers, with all accesses to them; of buffers stored here, only if these agree in their elements."""
    passes: dict[RowPlace, list[Access]] = {}
    for a in accesses:
        if a.across(row):
            passes.setdefault(a.place, []).append(a)
    uses = Counter(a.statement.buffer for a in accesses)
    written = {a.statement.buffer for a in accesses if a.statement.op == "store"}
    return {place: found for place, found in passes.items()
            if place[0] not in written or len(found) == uses[place[0]]}


def _accesses(nests: Sequence[Nest], group: Group, around: tuple[Axis, ...] = ()) -> Iterator[Access]:
    for nest in nests:
        loops = around + nest.loops
        for p in nest.parts:
            data = {axis_symbol(s.name) for s in p.body.statements if s.op == "indirect"}
            for s in p.statements:
                if s.op in ("load", "store") and s.index is not None:
                    told = bool(s.mask) or not data.isdisjoint(s.index.free_symbols)
                    yield Access(nest, loops, s, None if told else form_or_none(s.index, group.axes, loops))
        yield from _accesses(nest.inside, group, loops)


def _long(extent: sympy.Expr) -> bool:
    known = static(extent)
    return known is None or known >= LEAST
