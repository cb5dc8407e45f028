"""What is known while a kernel is being printed: names, and the ranges and arrays of the nodes around."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import sympy

from ...ir.ir import Axis
from ...ir.loop_nest import Band, LoopNest, Nodes, Reduction, RunningScan, Threads
from ...ir.tiles import RowTile, Tile
from .indices import c_expression
from .scope import Scopes
from .source_writer import Writer

Printers = Mapping[type, Callable[[Any, Any], None]]
"""How each type of node is printed."""


@dataclass
class Interleaving:
    """The multiple accumulators around: of what, and how the elements of a block are counted from its start."""

    reductions: tuple[Reduction, ...]
    count: int
    start: str  # of the block; "" where one block is the whole loop
    axis: Axis

    @property
    def element(self) -> str:
        """The number of the accumulator."""
        return "k" if self.start else self.axis.symbol.name


@dataclass
class Emission:
    """The state of printing one kernel: what the nodes around say about what is printed inside of them."""

    nest: LoopNest
    writer: Writer
    printers: Printers
    scopes: Scopes = field(default_factory=Scopes)
    bounds: list[str] = field(default_factory=list)  # the checks of indices
    changes: dict[str, int] = field(default_factory=dict)  # buffer -> stores so far, after which loads are stale
    spans: dict[sympy.Symbol, tuple[str, str]] = field(default_factory=dict)  # the current ranges of axes
    places: Mapping[sympy.Basic, sympy.Expr] = field(default_factory=dict)  # quotients and remainders in a piece
    sizes: frozenset[sympy.Symbol] = frozenset()  # the symbols that the kernel is given
    remainders: dict[sympy.Basic, sympy.Expr] = field(default_factory=dict)  # those that have names here
    blocks: dict[str, str] = field(default_factory=dict)  # buffer -> array that collects a block of it
    floats: dict[tuple[object, ...], str] = field(default_factory=dict)  # converted float16, by (op, buffer, index)
    rows: dict[tuple[str, sympy.Expr], str] = field(default_factory=dict)  # the same of rows that all nests share
    tile: Tile | RowTile | None = None
    lane: Axis | None = None
    width: int = 0  # lanes that a block has room for
    step: str = ""  # and how many it has
    band: Band | None = None
    outside: str = ""  # the band's flag
    names: dict[Reduction | RunningScan, str] = field(default_factory=dict)
    partial: frozenset[Reduction] = frozenset()  # those that are summed in a block
    interleaving: Interleaving | None = None
    branched: bool = False  # whether the loop around is in order, and checks indices by branches
    present: str = ""  # which elements of a block are there, where it may be a part of one
    alone: bool = False  # whether the loop around, the innermost one, runs in order
    in_variables: bool = False  # whether a lane's accumulators are in variables

    def nodes(self, nodes: Nodes) -> None:
        """Print `nodes`."""
        for node in nodes:
            self.printers[type(node)](self, node)

    @property
    def loops_around(self) -> tuple[Axis, ...]:
        """The loops around a statement of the band, but for those around everything and over lanes."""
        assert self.band is not None
        return (*self.band.around, *self.band.loops)

    # ---- ranges ------------------------------------------------------------------------------------------------------
    def span(self, axis: Axis) -> tuple[str, str]:
        """Where the current range of an axis starts, and where it ends ("": with the axis)."""
        return self.spans.get(axis.symbol, ("0", ""))

    def ends(self, axis: Axis) -> tuple[str, str]:
        """The same, with an end in any case."""
        first, last = self.span(axis)
        return first, last or c_expression(axis.extent)

    @contextmanager
    def within(self, axis: Axis, first: str, last: str) -> Iterator[None]:
        """Around what sees a narrower range of an axis."""
        before = self.spans.get(axis.symbol)
        self.spans[axis.symbol] = first, last
        yield
        if before is None:
            del self.spans[axis.symbol]
        else:
            self.spans[axis.symbol] = before

    @contextmanager
    def loop(self, header: str) -> Iterator[None]:
        """A loop, in a scope of names of its own."""
        with self.scopes.open(), self.writer.block(header):
            yield


def header(axis: Axis, first: str, last: str) -> str:
    """The loop over an axis, one by one; without `last`, to its end."""
    a = axis.symbol
    return f"for (int64 {a} = {first}; {a} < {last or c_expression(axis.extent)}; {a}++)"


def block_header(axis: Axis, step: int | str) -> str:
    """The loop over blocks of an axis."""
    a = axis.symbol
    return f"for (int64 {a}_0 = 0; {a}_0 < {c_expression(axis.extent)}; {a}_0 += {step})"


def block_end(axis: Axis, step: int | str) -> str:
    """Where the block ends."""
    a, extent = axis.symbol, c_expression(axis.extent)
    return f"const int64 {a}_1 = {a}_0 + {step} < {extent} ? {a}_0 + {step} : {extent};"


def condition(threads: Threads) -> str:
    """The clause by which threads share a loop only if it is worth it."""
    return "" if threads.work is None else f" if({c_expression(threads.work)} > {threads.least})"
