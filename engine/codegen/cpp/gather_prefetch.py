"""Software prefetch of gathered rows.

Rows of an embedding, or of the nodes of a graph, are read in an order that no hardware prefetcher predicts: each row
stalls at its start. The next index is in memory already, so a row's cache lines are prefetched while the row before it
is processed; short rows are prefetched further ahead. A wrong address is harmless: prefetch instructions do not fault,
and the next iteration reports an index that is out of bounds.

Measured on an EPYC with AVX-512, one thread, a table of 40 MB in rows of 2 KB: embeddings with a layer norm 3.4 to 1.7
ms; of 20 MB in rows of 512 bytes, in bfloat16: 0.122 to 0.078; differences of the rows at both ends of 100,000 edges,
256 bytes each: 0.61 to 0.47. Prefetching only the very next row is too late for short rows, and competes with the loads
of the current one.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sympy

from ...ir.body_affine import static
from ...ir.ir import Axis, Statement
from .dtypes import ctype
from .indices import c_expression
from .prefetch import LINE, LONGEST, MEMORY, OPTIONS
from .scope import buffer_name

if TYPE_CHECKING:
    from .nest_writer import NestWriter
    from .nests import Part

AHEAD = 4096


@dataclass(frozen=True)
class GatheredRow:
    """A contiguous load of a row of a table. The row is a load of an index in each iteration of the loop `around`."""

    part: Part
    load: Statement
    row: str  # the name of the index in the load's
    index: Statement
    around: Axis
    size: int  # bytes of an element

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for loads of one row: the table, and the address of the index."""
        return self.load.buffer, self.index.buffer, self.index.index


def gathered_rows(nest: NestWriter) -> list[GatheredRow]:
    """Gathered rows of a nest, from tables larger than the caches of a core."""
    if not nest.loops:
        return []
    kernel = nest.kernel
    found = [row for part, depths in zip(nest.nest.parts, nest.depths) for row in _of_part(nest, part, depths)]
    unlike = {row.key: row for row in found if row.key not in kernel.prefetched}
    if not unlike or kernel.owner is not None:
        return []
    kernel.prefetched |= unlike.keys()
    tables = ", ".join(dict.fromkeys(row.load.buffer for row in unlike.values()))
    why = f"rows of {tables} are gathered: hardware prefetchers cannot predict the next one"
    chosen = kernel.context.decide("prefetch", f"{kernel.group.kernel}:gathered", OPTIONS, OPTIONS[0], why)
    return list(unlike.values()) if chosen == OPTIONS[0] else []


def write_gathered(nest: NestWriter, row: GatheredRow) -> None:
    """Prefetch the row that a later iteration of the outer loop reads."""
    writer, inner, around = nest.writer, nest.loops[-1], row.around.symbol
    assert row.index.index is not None and row.load.index is not None
    g, lanes = inner.symbol, inner is nest.lane
    first, last = (f"{g}_0", f"{g}_1") if lanes else ("0", c_expression(inner.extent))
    bytes_ = (nest.kernel.width if lanes else int(inner.extent)) * row.size
    ahead = -(-AHEAD // bytes_)
    there = buffer_name(row.index.buffer) + f"[{c_expression(row.index.index.xreplace({around: around + ahead}))}]"
    name = nest.scopes.name(f"{row.load.buffer}_next")
    with nest.scopes.open(), writer.block(f"if ({around} + {ahead} < {c_expression(row.around.extent)})"):
        writer.line(f"const int64 {name} = {there};")
        place = c_expression(row.load.index, {row.row: name, g.name: "k"})
        with writer.block(f"for (int64 k = {first}; k < {last}; k += {LINE // row.size})"):
            writer.line(f"__builtin_prefetch({buffer_name(row.load.buffer)} + {place});")


def _of_part(nest: NestWriter, part: Part, depths: dict[str, int]) -> Iterator[GatheredRow]:
    inner, kernel = nest.loops[-1], nest.kernel
    around = [*kernel.group.axes[: kernel.shape.outer], *nest.around, *nest.loops[:-1]]
    statements = {s.name: s for s in part.body.statements}
    for s in part.loads:
        rows = [x.name for x in s.index.free_symbols if x.name in statements] if s.index is not None else []
        if s.mask or len(rows) != 1 or depths.get(rows[0], 0) != len(nest.loops) - 1:
            continue
        index = _index(statements, rows[0])
        if index is None or index.index is None or not {s.buffer, index.buffer}.isdisjoint(kernel.local):
            continue
        axes = [a for a in around if a.symbol in index.index.free_symbols]
        size = ctype(s.dtype).bytes
        if axes and _is_along(s.index, inner.symbol) and _is_large(nest, s.buffer, size):
            yield GatheredRow(part, s, rows[0], index, axes[-1], size)


def _index(statements: dict[str, Statement], name: str) -> Statement | None:
    """The load of the index that selects a row, through checks and conversions."""
    s = statements[name]
    while s.op in ("indirect", "cast"):
        s = statements[s.args[0]]
    if s.op != "load" or s.mask or s.index is None or any(x.name in statements for x in s.index.free_symbols):
        return None
    return s


def _is_along(index: sympy.Expr, g: sympy.Symbol) -> bool:
    return sympy.expand(index).coeff(g) == 1


def _is_large(nest: NestWriter, buffer: str, size: int) -> bool:
    """Whether the table is more than a core's caches hold, in rows of a length that is worth it."""
    elements = static(sympy.Mul(*nest.kernel.program.buffers[buffer].size))
    row = static(nest.loops[-1].extent)
    return elements is not None and row is not None and elements * size >= MEMORY and LINE <= row * size <= LONGEST
