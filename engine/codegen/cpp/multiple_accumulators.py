"""Reductions with multiple accumulators: a row is read in blocks of `width` elements, and accumulator k sees elements
k, k + width, ...

The accumulators of a block are vector lanes, combined by a tree reduction at the end: gcc's own reductions add lane
after lane, and a row of 64 elements spent four fifths of its time there. Long sums get two vectors, so that consecutive
additions do not depend on each other. An argmax is a vector loop as well: each accumulator remembers where the block of
its best started, in a narrow integer that is selected as fast as the values; at the end the greater value wins, of
equal ones the first, and NaN before all. A short row (a pooling window) has one accumulator for each element, shared by
all rows.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sympy
import torch

from ...ir.ir import Axis
from .dtypes import ctype
from .indices import c_expression
from .reductions import Field, Place

if TYPE_CHECKING:
    from .nest_writer import NestWriter, Reduction

VECTOR = 64  # bytes: a row gets as many accumulators as a vector has of its narrowest loaded elements
MOST = 32  # accumulators, but for elements of one byte
LONG = 512  # elements of a row for which a second vector pays for combining it


def accumulators_of(nest: NestWriter, reductions: Sequence[Reduction]) -> int:
    """How many accumulators the reductions along the innermost loop of a nest get.

    gcc takes as many lanes as there are of the narrowest type, and half of a vector where there are fewer elements.
    """
    row = nest.loops[-1].extent
    extent = int(row) if row.is_Integer else 0
    loaded = {s.dtype for p in nest.nest.parts for s in p.loads if s.dtype is not torch.float16}  # halves become floats
    one = VECTOR // min([4, *[ctype(dtype).bytes for dtype in loaded]])
    if 1 < extent <= MOST:
        return extent
    plain = all(len(r.accumulator.fields) == 1 for r in reductions)  # cheap to combine
    two = len(reductions) <= 2 and all(r.accumulator.vectorizes for r in reductions)
    chosen = max(one, MOST) if two and plain and extent and extent % MOST == 0 else one
    if two and extent >= LONG:
        chosen = max(one, MOST, min(2 * one, 2 * MOST))
    return _decided(nest, chosen, one) if nest.kernel.context.asked else chosen


def _decided(nest: NestWriter, default: int, one: int) -> int:
    """The same as a decision: one vector, a second one, or more."""
    group, body = nest.kernel.group, nest.nest.parts[0].body.name
    options = [str(n) for n in sorted({one, max(one, MOST), 2 * max(one, MOST), default})]
    why = f"elements of a row that are reduced side by side, of which a vector has {one}: the next one need not wait"
    chosen = nest.kernel.context.decide("accumulators", f"{group.kernel}:{body}", options, str(default), why,
                                        origins=(f"loop_ir:{body}",))
    return int(chosen)


@dataclass
class MultipleAccumulators:
    """The multiple accumulators of `reductions` of a nest, which has one or more loops."""

    nest: NestWriter
    reductions: Sequence[Reduction]
    width: int

    def __post_init__(self) -> None:
        self.writer, self.axis = self.nest.writer, self.nest.loops[-1]
        self.whole = self.axis.extent == self.width  # a block is a row, with one accumulator for each element
        self.block = "0" if self.whole else self.nest.scopes.name(f"{self.axis.symbol}_at")  # where it starts

    def declare(self) -> None:
        """The arrays of accumulators."""
        for r in self.reductions:
            for f in r.accumulator.fields:
                name = f"{r.name}{f.suffix}_stripe"
                self.writer.line(f"{self._type(r, f)} {name}[{self.width}];")
                self.writer.line(f"for (int64 k = 0; k < {self.width}; k++) {name}[k] = {f.start};")

    def _type(self, r: Reduction, f: Field) -> str:
        points = sympy.Mul(*[a.extent for a in self.nest.loops])
        narrow = points.is_Integer and int(points) < 1 << 31 and ctype(r.accumulator.operand).bytes <= 4
        return "int32" if f.suffix == "_at" and narrow else f.type

    def place(self, r: Reduction) -> Place:
        """The current accumulator's field of the reduction `r`."""
        name = next(x.name for x in self.reductions if x.statement is r.statement and x.part is r.part)
        accumulator = self.axis.symbol if self.whole else "k"
        return lambda suffix: f"{name}{suffix}_stripe[{accumulator}]"

    def position(self, position: sympy.Expr) -> sympy.Expr:
        """Where the block starts, counted as `position` is."""
        start = sympy.S.Zero if self.whole else sympy.Symbol(self.block, integer=True)
        return position.xreplace({self.axis.symbol: start})

    def loops(self, a: Axis, first: str, last: str) -> None:
        """Whole blocks as vectors, then the rest of the row; `first` and `last` are the ends of a thread's chunk.

        gcc keeps the accumulators in registers only if the trip count of the loop over a block is constant.
        """
        if self.whole:
            g = a.symbol
            with self._vector_loop(f"for (int64 {g} = {first}; {g} < {last or self.width}; {g}++)"):
                self.nest.innermost()
            return
        end, block = last or c_expression(a.extent), self.block
        self.writer.line(f"int64 {block} = {first};")
        with self.nest.scopes.open(), self.writer.block(
            f"for (; {block} + {self.width} <= {end}; {block} += {self.width})"
        ):
            self._part_of_block(str(self.width))
        if not (a.extent.is_Integer and a.extent % self.width == 0 and first != "first"):
            self._part_of_block(f"{end} - {block}")

    def _part_of_block(self, elements: str) -> None:
        with self._vector_loop(f"for (int64 k = 0; k < {elements}; k++)"):
            self.writer.line(f"const int64 {self.axis.symbol} = {self.block} + k;")
            self.nest.innermost()

    @contextmanager
    def _vector_loop(self, header: str) -> Iterator[None]:
        self.nest.pragma(len(self.nest.loops) - 1, innermost=True)
        with self.nest.scopes.open(), self.writer.block(header):
            yield

    def join(self) -> None:
        """Combine the accumulators into one."""
        for r in self.reductions:
            if r.accumulator.vectorizes:
                self._join_halves(r)
            else:
                self._join_in_order(r)

    def _join_halves(self, r: Reduction) -> None:
        """Tree reduction: one half of the accumulators onto the other, until one is left."""
        accumulator, other = self._accumulator(r, "k"), self._accumulator(r, "other")
        with self.writer.block(f"by_halves<{self.width}>([&](int64 k, int64 other)", end="});"):
            for line in r.accumulator.combine(accumulator, other):
                self.writer.line(line)
        for line in r.accumulator.combine(lambda suffix: f"{r.name}{suffix}", self._accumulator(r, "0")):
            self.writer.line(line)

    def _join_in_order(self, r: Reduction) -> None:
        accumulator = self._accumulator(r, "k")
        with self.writer.block(f"for (int64 k = 0; k < {self.width}; k++)"):
            for line in r.accumulator.combine_interleaved(
                lambda suffix: f"{r.name}{suffix}", accumulator, f"(int64){accumulator('_at')} + k"
            ):
                self.writer.line(line)

    def _accumulator(self, r: Reduction, number: str) -> Place:
        return lambda suffix: f"{r.name}{suffix}_stripe[{number}]"
