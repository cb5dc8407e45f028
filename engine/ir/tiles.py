"""Tiles of loop nests: blocks of rows whose operands are transposed into arrays that stay in cache."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy

from .affine import Linear, axis_symbol, renamed
from .body_affine import form_or_none, static
from .ir import Axis, Statement


@dataclass(frozen=True)
class Tile:
    """Blocks of `rows` of the loop `row` times `columns` of the innermost loop `column`; `arrays` names the copies of
    operands, by buffer and index."""

    row: Axis
    column: Axis
    rows: int
    columns: int
    arrays: Mapping[tuple[str, sympy.Expr], str]
    loads: tuple[Statement, ...]

    def array(self, s: Statement) -> str:
        """The array that holds what `s` loads; "" if none does."""
        assert s.index is not None
        return self.arrays.get((s.buffer, s.index), "") if s.op == "load" and not s.mask else ""


ALONG = axis_symbol("along")  # what the loops along a row are called where they are compared
RowPlace = tuple[str, sympy.Expr, int]
"""What a loop along a row accesses: a buffer, the index in terms of an axis `along`, and the extent."""


def row_place(buffer: str, form: Linear, loop: Axis) -> RowPlace:
    """What `loop` accesses of a buffer by an index of that form."""
    return buffer, renamed(form.expr, {loop.symbol: ALONG}), static(loop.extent) or 0


@dataclass(frozen=True)
class RowOperand:
    """What a tile of rows holds of a buffer: `read` before its rows run, `written` to memory after them."""

    array: str
    load: Statement
    place: RowPlace
    wide: int  # elements from one row to the next in the array
    read: bool
    written: bool


@dataclass(frozen=True)
class RowTile:
    """Blocks of `rows` of the loop `row`, with all loops of the body inside; an alternative to `Tile`."""

    row: Axis
    rows: int
    operands: Mapping[RowPlace, RowOperand]
    axes: tuple[Axis, ...]  # of the group

    def operand(self, s: Statement, loops: Sequence[Axis]) -> RowOperand | None:
        """What holds the elements that `s`, inside of `loops`, loads or stores."""
        form = form_or_none(s.index, self.axes, loops) if loops and not s.mask else None
        return None if form is None else self.operands.get(row_place(s.buffer, form, loops[-1]))
