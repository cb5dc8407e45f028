"""When a kernel of reductions would leave most of a GPU idle.

Loops that wait for a reduction run after it in the same program, so that programs cannot share a row. With few rows,
or few columns of which a program takes 32 at a time to read whole pieces of memory, separate kernels use all of the
GPU: programs share the rows of the reduction, and what waits for it runs over all elements at once.
"""
from __future__ import annotations

from collections.abc import Sequence

import sympy

from ..ir.body_affine import coefficient
from ..ir.ir import Axis, LoopBody, Program
from .legality import Unprofitable, accesses, iterations
from .steps import hinted

PROCESSORS = 132  # streaming multiprocessors of an H100 or H200
SECTOR = 32  # neighbouring elements that one access of a column tile should cover: 64 bytes of 2, 128 of 4
MEMORY = 2.5e12  # bytes that all programs together read or write in a second
LAUNCH = 3e-6  # seconds of one more kernel


def are_few(rows: int, columns: bool, traffic: float) -> bool:
    """Whether `traffic` bytes take longer in one kernel with a program for each of `rows` (or for some columns) than in
    separate ones, which read half of it once more."""
    programs = -(-rows // SECTOR) if columns else rows
    busy = min(1.0, programs / (2 * PROCESSORS))
    return traffic / busy > 1.5 * traffic + 2 * LAUNCH * MEMORY


def idle(
    writers: Sequence[LoopBody], readers: Sequence[LoopBody], shared: Sequence[Axis], program: Program
) -> Unprofitable | None:
    """What speaks against one GPU kernel of both, in which inner loops wait for reductions."""
    waiting = _waiting((*writers, *readers), len(shared))
    rows = iterations(shared)
    if not waiting or rows is None:
        return None
    length = max(hinted(sympy.Mul(*[a.extent for a in (*b.axes[len(shared):], *b.reduction_axes)])) for b in waiting)
    outer, inner = _bytes((*writers, *readers), shared, program)
    columns = outer > inner
    if not are_few(max(1, rows), columns, max(outer, inner)):
        return None
    what = "columns" if columns else "rows"
    why = f"{rows} {what} of {length} elements, of which one reduction needs all before others go on, are too few to " \
          "keep a GPU busy"
    return Unprofitable(why, f"more {what}")


def _waiting(bodies: Sequence[LoopBody], shared: int) -> list[LoopBody]:
    """The bodies with inner loops that read a reduction's result, or what follows from it."""
    results: set[str] = set()
    waiting = []
    for body in bodies:
        awaits = not results.isdisjoint(body.reads)
        if len(body.axes) > shared or (body.reduction_axes and awaits):
            waiting += [body] if awaits else []
        elif body.reduction_axes or awaits:
            results.update(body.writes)
    return waiting


def _bytes(bodies: Sequence[LoopBody], shared: Sequence[Axis], program: Program) -> tuple[int, int]:
    """The bytes that are contiguous along the shared loops, and along the inner ones, of what inner loops touch."""
    outer: dict[str, int] = {}
    inner: dict[str, int] = {}
    for body in bodies:
        own = (*body.axes[len(shared):], *body.reduction_axes)
        found = accesses(body)
        for name, group in (*found.loads.items(), *found.stores.items()) if own else ():
            buffer = program.buffers[name]
            size = buffer.dtype.itemsize * hinted(sympy.Mul(*buffer.size))
            forms = [a.form for a in group if a.form is not None]
            for axes, sizes in ((shared, outer), (own, inner)):
                if any(coefficient(f, a.symbol) == 1 for f in forms for a in axes):
                    sizes[name] = size
    return sum(outer.values()), sum(inner.values())
