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

from collections.abc import Iterator, Mapping

import sympy

from ...ir.body_affine import static
from ...ir.ir import Statement
from ...ir.loop_nest import GatheredRow, Nodes, Part, PrefetchGathered
from .nest_facts import NestFacts
from .prefetch import LINE, LONGEST, MEMORY, OPTIONS

AHEAD = 4096  # bytes of rows between the one that is processed and the one that is prefetched


def prefetched_gathers(facts: NestFacts, seen: set[tuple[object, ...]]) -> Nodes:
    """Prefetches of a nest's gathered rows, from tables larger than the caches of a core (a decision).

    `seen` are the rows of the kernel's earlier nests, to which those of this one are added.
    """
    if not facts.axes:
        return ()
    found = [row for part, depths in zip(facts.nest.parts, facts.depths) for row in _of_part(facts, part, depths)]
    unlike = {row.key: row for row in found if row.key not in seen}
    if not unlike or facts.site.owner is not None:
        return ()
    seen.update(unlike)
    tables = ", ".join(dict.fromkeys(row.load.buffer for row in unlike.values()))
    why = f"rows of {tables} are gathered: hardware prefetchers cannot predict the next one"
    chosen = facts.context.decide("prefetch", f"{facts.kernel}:gathered", OPTIONS, OPTIONS[0], why)
    return tuple([_fetch(facts, row) for row in unlike.values()]) if chosen == OPTIONS[0] else ()


def _fetch(facts: NestFacts, row: GatheredRow) -> PrefetchGathered:
    inner = facts.axes[-1]
    lanes = inner is facts.lane
    bytes_ = (facts.site.width if lanes else int(inner.extent)) * row.size
    return PrefetchGathered(row, -(-AHEAD // bytes_), inner, lanes)


def _of_part(facts: NestFacts, part: Part, depths: Mapping[str, int]) -> Iterator[GatheredRow]:
    inner, site = facts.axes[-1], facts.site
    around = [*site.outer, *site.around, *facts.axes[:-1]]
    statements = {s.name: s for s in part.body.statements}
    for s in part.loads:
        rows = [x.name for x in s.index.free_symbols if x.name in statements] if s.index is not None else []
        if s.mask or len(rows) != 1 or depths.get(rows[0], 0) != len(facts.axes) - 1:
            continue
        index = _index(statements, rows[0])
        if index is None or index.index is None or not {s.buffer, index.buffer}.isdisjoint(site.local):
            continue
        axes = [a for a in around if a.symbol in index.index.free_symbols]
        size = s.dtype.itemsize
        if axes and _is_along(s.index, inner.symbol) and _is_large(facts, s.buffer, size):
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


def _is_large(facts: NestFacts, buffer: str, size: int) -> bool:
    """Whether the table is more than a core's caches hold, in rows of a length that is worth it."""
    elements = static(sympy.Mul(*facts.site.buffers[buffer].size))
    row = static(facts.axes[-1].extent)
    return elements is not None and row is not None and elements * size >= MEMORY and LINE <= row * size <= LONGEST
