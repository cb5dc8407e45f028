"""Vector width of memory-bound kernels: where little is computed, 256-bit vectors stream faster than 512-bit ones.

Measured on a Xeon with AVX-512, 4 MB in and 4 MB out: copies, sums and comparisons of floats are 6 to 20 % faster by
half cache lines. Not so in the second-level cache, in place, under masks, or where narrow types are widened.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import sympy
import torch

from ....artifacts.context import CompileContext
from ...ir.body_affine import static
from ...ir.ir import Buffer, Group, LoopBody
from .cost import EXPENSIVE
from .scatter import scatters

MEMORY = 4 << 20  # bytes that a kernel reads and writes, at least: more than L2 has
OPERATIONS = 4  # on each element, at most
OPTIONS = ("512-bit", "256-bit")


def streams(
    group: Group, bodies: Sequence[LoopBody], buffers: Mapping[str, Buffer], context: CompileContext
) -> bool:
    """Whether a kernel gets 256-bit vectors (a decision, where it is memory-bound).

    `buffers` are those that it reads from memory, or writes there.
    """
    if any(b.axes != group.axes or b.reduction_axes or b.scans or scatters(b) for b in bodies):
        return False
    statements = [s for b in bodies for s in b.statements if s.op != "constant"]
    if any(s.mask or s.op in EXPENSIVE or s.op in ("index", "indirect") for s in statements):
        return False
    widths = {s.dtype.itemsize for s in statements if s.buffer or s.dtype is not torch.bool}
    read, written = ({s.buffer for s in statements if s.op == op and s.buffer in buffers} for op in ("load", "store"))
    operations = sum(s.op not in ("load", "store") for s in statements)
    elements = static(sympy.Mul(*[a.extent for a in group.axes]))
    if elements is None or len(widths) != 1 or min(widths) < 4 or written & read:
        return False
    moved = sum(min(elements, static(sympy.Mul(*buffers[b].size)) or 0) * buffers[b].dtype.itemsize
                for b in read | written)
    if moved < MEMORY or operations > OPERATIONS * len(written):
        return False
    why = f"memory-bound: {moved >> 20} MB of traffic, {operations} operations on each element"
    return context.decide("vector-width", group.kernel, OPTIONS, OPTIONS[1], why) == OPTIONS[1]
