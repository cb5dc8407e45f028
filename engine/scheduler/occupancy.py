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
ENOUGH = 1 << 19  # elements: fewer are read before another kernel would start


def idle(
    writers: Sequence[LoopBody], readers: Sequence[LoopBody], shared: Sequence[Axis], program: Program
) -> Unprofitable | None:
    """What speaks against one GPU kernel of both, in which inner loops wait for reductions."""
    waiting = _waiting((*writers, *readers), len(shared))
    rows = iterations(shared)
    if not waiting or rows is None:
        return None
    length = max(hinted(sympy.Mul(*[a.extent for a in (*b.axes[len(shared):], *b.reduction_axes)])) for b in waiting)
    columns = _by_columns((*writers, *readers), shared, program)
    programs = -(-rows // SECTOR) if columns else rows
    if programs >= 2 * PROCESSORS or rows * length < ENOUGH:
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


def _by_columns(bodies: Sequence[LoopBody], shared: Sequence[Axis], program: Program) -> bool:
    """Whether more bytes are read and written along the shared loops than along the inner ones."""
    outer = inner = 0
    for body in bodies:
        own = (*body.axes[len(shared):], *body.reduction_axes)
        found = accesses(body)
        for name, group in (*found.loads.items(), *found.stores.items()) if own else ():
            buffer = program.buffers[name]
            size = buffer.dtype.itemsize * hinted(sympy.Mul(*buffer.size))
            forms = [a.form for a in group if a.form is not None]
            outer += size * any(coefficient(f, a.symbol) == 1 for f in forms for a in shared)
            inner += size * any(coefficient(f, a.symbol) == 1 for f in forms for a in own)
    return outer > inner
