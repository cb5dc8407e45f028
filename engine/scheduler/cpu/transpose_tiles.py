"""Loop tiling for transposed operands of pointwise kernels.

The vectorized loop of a kernel runs along the memory of its output. An operand that is contiguous along another loop
(the t() in `x.t() + y`) contributes one element of each cache line. Where the lines of a row are many, or map to the
same cache sets, they are evicted before the next row uses their other elements. In tiles of some rows and columns, each
line is read once, and transposed into a small array.
"""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import sympy
import torch

from ....artifacts.context import CompileContext
from ...ir.body_affine import coefficient, index_forms, static
from ...ir.ir import Axis, Group, LoopBody, Statement
from ...ir.tiles import Tile

LINE = 64  # bytes
COLUMNS = 64  # elements of a tile along the vector loop
LEAST = 16  # rows and columns that make a tile worth it
FIRST = (4096, 8)  # bytes after which addresses map to the same L1 set again, and its associativity
SECOND = (65536, 12)  # the same of L2, with some ways left to others
MANY = 4  # blocks of rows beside which the rows of a part of one are few
WORTH_VECTORS = 1 << 16  # elements of a kernel
PAGE, PAGES = 4096, 1024  # bytes of a page, and entries of the TLB


def find_tile(
    group: Group, bodies: Sequence[LoopBody], written: set[str], local: set[str], context: CompileContext
) -> Tile | None:
    """The tile of a pointwise kernel (a decision), None where no operand is transposed."""
    if len(group.axes) < 2 or any(b.axes != group.axes or b.reduction_axes or b.scans for b in bodies):
        return None
    if any(s.op == "indirect" or (s.op == "store" and s.mode) for b in bodies for s in b.statements):
        return None
    column = group.axes[-1]
    if not _long(column):
        return None
    found = [load for b in bodies for load in _transposed(b, group.axes) if load[1].buffer not in written | local]
    if not found:
        return None
    row = Counter(a for a, _, _ in found).most_common(1)[0][0]
    loads = {(s.buffer, s.index): s for a, s, _ in found if a == row and s.index is not None}
    names = ", ".join(dict.fromkeys(s.buffer for s in loads.values()))
    lost = [s.buffer for a, s, step in found if a == row and _lines_are_lost(step, column)]
    vectors = _in_vectors(group, row, list(loads.values()))
    why = f"{names} is contiguous along {row.symbol}, the results along {column.symbol}; its cache lines " + (
        "are evicted before the next row" if lost else "stay in cache until the next row") + (
        ", and blocks are transposed in vector registers" if vectors else "")
    if context.decide("tile", group.kernel, ("tiles", "rows"), "tiles" if lost or vectors else "rows", why) == "rows":
        return None
    rows = max(LEAST, LINE // min(s.dtype.itemsize for s in loads.values()))
    return Tile(row, column, rows, COLUMNS, {key: f"tile{k}" for k, key in enumerate(loads)}, tuple(loads.values()))


def _in_vectors(group: Group, row: Axis, loads: Sequence[Statement]) -> bool:
    """Whether `transposed` works on whole vectors but for a few rows, and on enough of them to pay for compiling it. Of
    sizes that vary, some will be large."""
    rows, elements = static(row.extent), static(sympy.Mul(*[a.extent for a in group.axes]))
    sides = [block_side(s.dtype) for s in loads]
    fit = 0 not in sides and (rows is None or all(rows % side == 0 or rows >= MANY * side for side in sides))
    return fit and (elements is None or elements >= WORTH_VECTORS)


def block_side(dtype: torch.dtype) -> int:
    """The rows and columns of a block that is transposed as vectors; 0 for a dtype whose elements go one by one."""
    return {1: 16, 2: 8, 4: 8, 8: 4}.get(dtype.itemsize, 0)


def _lines_are_lost(step: int | None, column: Axis) -> bool:
    """Whether the lines that a row touches, `step` bytes apart, do not stay in the cache; False where not known."""
    lines = static(column.extent)
    if step is None or lines is None or lines <= room(step, *FIRST):
        return False
    return lines * min(step, PAGE) > PAGE * PAGES or lines > room(step, *SECOND)


def room(step: int, period: int, ways: int) -> int:
    """How many lines that are `step` bytes apart a cache holds."""
    return ways * (period // max(math.gcd(step, period), LINE))


def _long(a: Axis) -> bool:
    extent = static(a.extent)
    return extent is None or extent >= LEAST


def _transposed(body: LoopBody, axes: tuple[Axis, ...]) -> list[tuple[Axis, Statement, int | None]]:
    """Loads that are contiguous in another loop than the innermost, with that loop and the bytes from one
    iteration of the innermost to the next (None: not known)."""
    found = []
    for position, form in index_forms(body).items():
        s = body.statements[position]
        if s.op != "load" or s.mask or form is None:
            continue
        step = coefficient(form, axes[-1].symbol)
        along = next((a for a in axes[:-1] if coefficient(form, a.symbol) == 1 and _long(a)), None)
        if step is None or step == 0 or along is None or step == 1:
            continue
        found.append((along, s, abs(step) * s.dtype.itemsize if isinstance(step, int) else None))
    return found
