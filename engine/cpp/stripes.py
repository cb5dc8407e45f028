"""The position of a maximum as a vector loop: each lane of a vector keeps the best of its own stripe of the row.

A row is read in blocks of `WIDTH` elements. Stripe k sees elements k, k + WIDTH, ... and remembers the start of the
block where its best stood, a narrow number that selects as fast as the values do. At the end the stripes are joined:
the greater value wins, of equal ones the first, and NaN before all.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sympy

from ..ir import Axis
from .dtypes import ctype
from .indices import c_expression
from .reductions import Field, Place

if TYPE_CHECKING:
    from .nest_writer import NestWriter, Reduction

WIDTH = 16


@dataclass
class Stripes:
    """The stripes of all reductions of a nest, which has one or more loops."""

    nest: NestWriter

    def __post_init__(self) -> None:
        self.writer, self.axis = self.nest.writer, self.nest.loops[-1]

    @property
    def block(self) -> str:
        """The variable that holds where the current block starts."""
        return f"{self.axis.symbol}_block"

    def declare(self) -> None:
        """The arrays with one element for each stripe."""
        for r in self.nest.reductions:
            for f in r.accumulator.fields:
                name = f"{r.name}{f.suffix}_stripe"
                self.writer.line(f"{self._type(r, f)} {name}[{WIDTH}];")
                self.writer.line(f"for (int64 k = 0; k < {WIDTH}; k++) {name}[k] = {f.start};")

    def _type(self, r: Reduction, f: Field) -> str:
        points = sympy.Mul(*[a.extent for a in self.nest.loops])
        narrow = points.is_Integer and int(points) < 1 << 31 and ctype(r.accumulator.operand).bytes <= 4
        return "int32" if f.suffix == "_at" and narrow else f.type

    def place(self, r: Reduction) -> Place:
        """Where the current stripe keeps a field."""
        return lambda suffix: f"{r.name}{suffix}_stripe[{self.axis.symbol} - {self.block}]"

    def position(self, position: sympy.Expr) -> sympy.Expr:
        """Where the block starts, counted as `position` is."""
        return position.xreplace({self.axis.symbol: sympy.Symbol(self.block, integer=True)})

    def loops(self, a: Axis, first: str, last: str) -> None:
        """Whole blocks as vectors, then what is left of the row."""
        end, block = last or c_expression(a.extent), self.block
        self.writer.line(f"int64 {block} = {first};")
        with self.nest.scopes.open(), self.writer.block(
            f"for (; {block} + {WIDTH} <= {end}; {block} += {WIDTH})"
        ):
            self.nest.pragma(len(self.nest.loops) - 1, innermost=True)
            self._loop(f"{block} + {WIDTH}")
        if not (a.extent.is_Integer and a.extent % WIDTH == 0 and not last):
            self._loop(end)

    def _loop(self, end: str) -> None:
        g = self.axis.symbol
        with self.nest.scopes.open(), self.writer.block(f"for (int64 {g} = {self.block}; {g} < {end}; {g}++)"):
            self.nest.innermost()

    def join(self) -> None:
        """Make one result of the stripes."""
        with self.writer.block(f"for (int64 k = 0; k < {WIDTH}; k++)"):
            for r in self.nest.reductions:
                stripe: Place = lambda suffix, r=r: f"{r.name}{suffix}_stripe[k]"  # type: ignore[misc]
                mine: Place = lambda suffix, r=r: f"{r.name}{suffix}"  # type: ignore[misc]
                for line in r.accumulator.combine_stripe(mine, stripe, f"(int64){stripe('_at')} + k"):
                    self.writer.line(line)
