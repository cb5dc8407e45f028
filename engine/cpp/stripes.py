"""Reductions in stripes: a row is read in blocks of `width` elements, and stripe k sees elements k, k + width, ...

The stripes of a block are lanes of vectors. So the position of a maximum becomes a vector loop: each stripe remembers
where the block of its best started, a narrow number that selects as fast as the values do; at the end the greater value
wins, of equal ones the first, and NaN before all. And sums get two vectors, so that one addition need not wait for the
one before, and shorter chains of additions, which round less.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sympy

from ..ir import Axis
from .dtypes import ctype
from .indices import c_expression
from .reductions import Field, Place

if TYPE_CHECKING:
    from .nest_writer import NestWriter, Reduction

POSITIONS, SUMS = 16, 32  # stripes of a row


@dataclass
class Stripes:
    """The stripes of `reductions` of a nest, which has one or more loops."""

    nest: NestWriter
    reductions: Sequence[Reduction]
    width: int

    def __post_init__(self) -> None:
        self.writer, self.axis = self.nest.writer, self.nest.loops[-1]

    @property
    def block(self) -> str:
        """The variable that holds where the current block starts."""
        return f"{self.axis.symbol}_at"

    def declare(self) -> None:
        """The arrays with one element for each stripe."""
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
        """Where the current stripe keeps a field of the reduction with the statement of `r`."""
        name = next(x.name for x in self.reductions if x.statement is r.statement and x.part is r.part)
        return lambda suffix: f"{name}{suffix}_stripe[{self.axis.symbol} - {self.block}]"

    def position(self, position: sympy.Expr) -> sympy.Expr:
        """Where the block starts, counted as `position` is."""
        return position.xreplace({self.axis.symbol: sympy.Symbol(self.block, integer=True)})

    def loops(self, a: Axis, first: str, last: str) -> None:
        """Whole blocks as vectors, then what is left of the row."""
        end, block = last or c_expression(a.extent), self.block
        self.writer.line(f"int64 {block} = {first};")
        with self.nest.scopes.open(), self.writer.block(
            f"for (; {block} + {self.width} <= {end}; {block} += {self.width})"
        ):
            self._loop(f"{block} + {self.width}")
        if not (a.extent.is_Integer and a.extent % self.width == 0 and first != "first"):
            self._loop(end)

    def _loop(self, end: str) -> None:
        g = self.axis.symbol
        self.nest.pragma(len(self.nest.loops) - 1, innermost=True)
        with self.nest.scopes.open(), self.writer.block(f"for (int64 {g} = {self.block}; {g} < {end}; {g}++)"):
            self.nest.innermost()

    def join(self) -> None:
        """Make one result of the stripes."""
        if all(r.accumulator.vectorizes for r in self.reductions):
            fields = [(f, f"{r.name}{f.suffix}") for r in self.reductions for f in r.accumulator.fields]
            self.writer.line(f"#pragma omp simd {' '.join(f'reduction({f.clause}:{name})' for f, name in fields)}")
        with self.writer.block(f"for (int64 k = 0; k < {self.width}; k++)"):
            for r in self.reductions:
                stripe: Place = lambda suffix, r=r: f"{r.name}{suffix}_stripe[k]"  # type: ignore[misc]
                mine: Place = lambda suffix, r=r: f"{r.name}{suffix}"  # type: ignore[misc]
                for line in r.accumulator.combine_stripe(mine, stripe, f"(int64){stripe('_at')} + k"):
                    self.writer.line(line)
