"""Short rows in blocks: each loop of a row runs for all rows of a block before the next one does.

A softmax of a short row is one long chain: the maximum waits for its lanes, the exponentials for the maximum, the
quotients for their sum. Rows do not wait for each other, but a processor sees only two or three of them at a time, and
stands still. So the outer loop runs over blocks of rows, and what was done for one row is done for all of a block, with
the results of reductions in arrays; what follows a reduction (a logarithm, a root) is then a vector loop over rows.

Measured on a Zen 5, one thread, in microseconds for a quarter of a million floats: log_softmax of rows of 16 from 384
to 139 (eager 161), of 31 from 294 to 125 (132), of 128 from 118 to 85 (90).
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv

from ....artifacts.context import CompileContext
from ...ir.affine import axis, axis_symbol, size
from ...ir.body_affine import NotLinear, rewrite, static
from ...ir.ir import Axis, Group, LoopBody, Statement
from .cost import EXPENSIVE
from .distribution import Nest, cut, nests_of
from .loop_shape import Shape

SHORT = 128  # elements of a row
ROWS = 32  # of a block, at most; its arrays stay in the first-level cache
LEAST = 8  # rows of a block, and blocks
OPTIONS = ("blocks", "one-by-one")


@dataclass(frozen=True)
class RowBlocks:
    """A group whose last common loop is in blocks of so many `rows`: its axes, that of the rows of a block, its bodies
    and nests, and the dtypes of its new buffers."""

    axes: tuple[Axis, ...]
    row: Axis
    rows: int
    bodies: tuple[LoopBody, ...]
    nests: tuple[Nest, ...]
    local: dict[str, torch.dtype]


def row_blocks(
    group: Group, bodies: Sequence[LoopBody], shape: Shape, context: CompileContext
) -> RowBlocks | None:
    """The blocks of a kernel that passes several times over short rows (a decision); None where there are none."""
    count = len(group.axes)
    if not count or shape.lanes or shape.tile is not None or shape.outer != count:
        return None
    if shape.parallel not in ("outer", ""):
        return None
    if not any(b.reduction_axes for b in bodies) or not all(_is_simple(b, count) for b in bodies):
        return None
    number, length = static(group.axes[-1].extent), _longest(bodies, count)
    if length is None or not 1 < length <= SHORT:
        return None
    rows = _rows(number)
    made = _blocked(group, bodies, rows) if rows else None
    if made is None:
        return None
    passes = sum(bool(n.inside) or len(n.loops) > 1 for n in made.nests)
    if passes < 2:
        return None
    why = f"{passes} passes over rows of {length}, each waiting for the one before: {rows} rows at a time"
    chosen = context.decide("row-blocks", group.kernel, OPTIONS, OPTIONS[0], why, origins=group.origins)
    return made if chosen == OPTIONS[0] else None


def _rows(number: int | None) -> int:
    """How many rows a block has: if it can be, so many that no block is a part of one; 0 where there are too few."""
    if number is None:
        return ROWS
    most = min(ROWS, number // LEAST)
    if most < LEAST:
        return 0
    return next((n for n in reversed(range(LEAST, most + 1)) if number % n == 0), most)


def _is_simple(body: LoopBody, count: int) -> bool:
    """Whether a body reduces rows, or has one loop along them, or none."""
    if body.scans or (body.reduction_axes and len(body.axes) > count) or len(body.axes) > count + 1:
        return False
    return not any(s.op == "indirect" or (s.mode and s.op == "store") or (
        s.dtype is torch.float16 and s.buffer) for s in body.statements)


def _longest(bodies: Sequence[LoopBody], count: int) -> int | None:
    lengths = [sympy.Mul(*[a.extent for a in (*b.axes[count:], *b.reduction_axes)]) for b in bodies]
    return max(int(n) for n in lengths) if all(n.is_Integer for n in lengths) else None


def _blocked(group: Group, bodies: Sequence[LoopBody], rows: int) -> RowBlocks | None:
    row = group.axes[-1]
    local: dict[str, torch.dtype] = {}
    parted: list[LoopBody] = []
    for body in bodies:
        parted += _parted(body, local) if body.reduction_axes else [body]
    whole = row.extent.is_Integer and row.extent % rows == 0
    blocks = Axis(axis_symbol(f"{row.symbol.name}_blocks"), FloorDiv(row.extent + rows - 1, rows))
    left = sympy.Min(rows, row.extent - rows * blocks.symbol)
    inner = Axis(axis_symbol(f"{row.symbol.name}_row"), sympy.Integer(rows) if whole else left)
    place = axis(blocks.symbol.name, size(blocks.extent)) * rows + axis(inner.symbol.name, rows)
    axes = (*group.axes[:-1], blocks)
    try:
        made = tuple([rewrite(b, {row.symbol: place}, (*axes, inner, *b.axes[len(group.axes):]), b.reduction_axes)
                      for b in parted])
    except NotLinear:
        return None
    nests = _around_rows(nests_of(made, len(group.axes) + 1), inner)
    return None if nests is None else RowBlocks(axes, inner, rows, made, nests, local)


def _parted(body: LoopBody, local: dict[str, torch.dtype]) -> list[LoopBody]:
    """A reduction, and what follows it, which loads the results from arrays."""
    over, after = cut(body)
    found = [s for s in over.statements if s.op == "reduce"]
    if not any(s.op in EXPENSIVE for s in after.statements) and not any(s.op == "load" for s in after.statements):
        return [body]
    place = sympy.S.Zero
    for a in body.axes:
        place = sympy.expand(place * a.extent + a.symbol)
    loads, stores = [], []
    for s in found:
        name = f"{body.name}_{s.name}_rows"
        local[name] = s.dtype
        stores.append(Statement("", "store", (s.name,), s.dtype, name, place, origins=s.origins))
        loads.append(Statement(s.name, "load", (), s.dtype, name, place, origins=s.origins))
    reduces = replace(body, name=stores[0].buffer, statements=(*over.statements, *stores))
    return [reduces, replace(body, reduction_axes=(), statements=(*loads, *after.statements))]


def _around_rows(nests: Sequence[Nest], row: Axis) -> tuple[Nest, ...] | None:
    """The nests of a row, each in a loop over rows; what ends a reduction stays in that of the reduction."""
    made: list[Nest] = []
    for nest in nests:
        if nest.inside:
            return None
        if nest.loops:
            reduces = any(p.body.reduction_axes for p in nest.parts)
            made.append(Nest((row,), inside=(nest,)) if reduces else Nest((row, *nest.loops), nest.parts))
            continue
        ends = tuple([p for p in nest.parts if p.after])
        if ends:
            before = made[-1] if made else Nest(())
            known = {p.key for n in before.inside for p in n.parts}
            if not all(p.key in known for p in ends):
                return None
            made[-1] = replace(before, inside=(*before.inside, Nest((), ends)))
        rest = tuple([p for p in nest.parts if not p.after])
        if rest:
            made.append(Nest((row,), rest))
    return tuple(made)
