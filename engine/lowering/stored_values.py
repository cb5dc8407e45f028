"""Which lazy values are stored, and which are computed where they are read: a decision for each (`realize`).

By default a value that one loop body reads is inlined into it, one that is cheap into each that reads it; what takes
long to compute again, or makes an expression too long, is stored once (`realization.py` has the analysis). What must be
in memory, a result or the operand of a library call, is no choice.
"""
from __future__ import annotations

from collections.abc import Mapping

from ...artifacts.context import CompileContext
from ..ir.affine import product, size
from ..ir.ir import Buffer
from .lazy_tensors import Base

MAX_DEPTH = 40  # operations in a row that are kept in one expression
DEEPEST = 120  # the same where an override keeps them: writing each takes several frames of Python
MAX_READS = 24  # buffers that one expression loads
MAX_WINDOWS = 16  # views of them, on a CPU: each is a place in memory that its loop walks along
RECOMPUTED_DEPTH = 24  # operations that a GPU does once more rather than to store what they give
SMALLER = 8  # times fewer elements make a buffer that costs next to nothing to read again
STORE, INLINE = "realize", "inline"
OPTIONS = (STORE, INLINE)
_SINGLE = "one loop body reads it, which computes it where it is read"


class StoredValues:
    """The decisions of one lowering; `buffers` are the program's so far, `leaving` the nodes that must be stored."""

    def __init__(self, context: CompileContext, buffers: Mapping[str, Buffer], leaving: frozenset[str]) -> None:
        self.context, self.buffers, self.leaving = context, buffers, leaving
        self._inlined: list[Base] = []  # with one reader each, where anybody asks
        self._decided: set[str] = set()

    def stores(self, base: Base, scattered: bool) -> bool:
        """Whether a new lazy value is stored; `scattered`: several loop bodies read it."""
        long = _too_long(base)
        if long:
            return self.decide(base, STORE, long) or base.depth > DEEPEST
        if scattered:
            return self._stores_shared(base)
        return self.context.asked and self._stores_single(base)

    def decide(self, base: Base, default: str, why: str) -> bool:
        """Whether a lazy value is stored."""
        self._decided.add(base.node)
        origins = (f"forward#{base.node}",)
        if base.depth > DEEPEST and self.context.asked and self.context.override("realize", base.node) == INLINE:
            why = f"illegal: {why}, at most {DEEPEST} can be written"
            self.context.refuse("realize", base.node, INLINE, STORE, why, origins=origins)
            return True
        return self.context.decide("realize", base.node, OPTIONS, default, why, origins=origins) == STORE

    def record_inlined(self) -> None:
        """Record the values that are computed in the one loop body that reads them: known when all are lowered, for
        they may be stored for another reason."""
        for base in self._inlined:
            if not base.buffer and base.node not in self._decided:
                self.decide(base, INLINE, _SINGLE)

    def _stores_single(self, base: Base) -> bool:
        if base.node in self.leaving:
            return False
        if self.context.override("realize", base.node) is not None:
            return self.decide(base, INLINE, _SINGLE)
        self._inlined.append(base)
        return False

    def _stores_shared(self, base: Base) -> bool:
        cheap = self.reads_less(base) or (not base.heavy and base.depth <= 2 and self._large_reads(base) <= 1)
        default = INLINE if cheap else STORE
        why = "used in several bodies; " + (
            "cheap enough to compute in each" if cheap else
            f"{base.depth} operations on {len(base.reads)} buffers are computed once and stored")
        return self.decide(base, default, why)

    def _large_reads(self, base: Base) -> int:
        """How many of the buffers that a lazy value reads are about as large as itself."""
        own = product(base.size)
        counts = [product(map(size, self.buffers[name].size)) for name in base.reads]
        return sum(not (type(n) is int and type(own) is int and n * SMALLER <= own) for n in counts)

    def reads_less(self, base: Base) -> bool:
        """On a GPU, where arithmetic is cheap: computing it anew takes no more than reading the value would.

        In bytes; a transcendental function of each element is worth one (as `Work` in `operators/traits.py`).
        """
        if base.device.type != "cuda" or base.depth > RECOMPUTED_DEPTH:
            return False
        own = product(base.size)
        counts = [(product(map(size, self.buffers[n].size)), self.buffers[n].dtype.itemsize) for n in base.reads]
        if self._large_reads(base) == 0 and not base.heavy:
            return True
        if type(own) is not int or any(type(count) is not int for count, _ in counts):
            return False
        read = sum(n * width for n, width in counts if n * SMALLER > own)
        return read + own * base.heavy <= own * base.dtype.itemsize


def _too_long(base: Base) -> str:
    """Why the expression of a lazy value should not grow any further; "" where it may."""
    if base.depth > MAX_DEPTH:
        return f"{base.depth} operations in one expression"
    if len(base.reads) > MAX_READS:
        return f"its expression loads {len(base.reads)} buffers"
    if base.device.type == "cpu" and len(base.windows) > MAX_WINDOWS:
        return f"its loop would read {len(base.windows)} views of buffers"
    return ""
