"""One loop nest as one C++ function: the printer. It decides nothing; what there is to choose, the nest says."""
from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import sympy

from ....artifacts.records import CodeLine, ref
from ...ir.affine import axis_symbol
from ...ir.ir import KernelSignature, Program
from ...ir.loop_nest import (
    Accumulate,
    Allocate,
    Band,
    Blocks,
    Chunks,
    Compute,
    Interleave,
    InterleavedLoop,
    JammedRows,
    Lanes,
    Loop,
    LoopNest,
    MaskedStarts,
    Owners,
    OwnIteration,
    Parallel,
    Piece,
    PrefetchGathered,
    PrefetchNext,
    Privatized,
    ScanBlocks,
    Streamed,
    SumBlocks,
    TileBlocks,
    TileRows,
    Widened,
    WidenRow,
    walk,
)
from . import accumulators, compute, loops
from .blocked_scans import scan_blocks
from .dtypes import ctype
from .emission import Emission, Printers
from .half_precision import widen_row, widened
from .indices import c_expression
from .nontemporal_stores import streamed
from .prefetches import prefetch_gathered, prefetch_next
from .remainders import name_remainders
from .scope import buffer_name
from .source_writer import Writer
from .statements import StatementWriter

FEWEST_LANES = 128  # of a block, where each thread gets one
SUFFIXES = ("_part", "_chunks", "_nan", "_at", "_bad", "_nan_chunks", "_at_chunks", "_stripe",
            "_part_stripe", "_nan_stripe", "_at_stripe", "_now", "_part_now", "_nan_now", "_at_now")
"""What names are extended with."""
_WORD = re.compile(r"[A-Za-z_]\w*")


def _allocate(p: Emission, node: Allocate) -> None:
    kind = ctype(p.nest.local[node.buffer]).value
    p.writer.line(f"{kind} {buffer_name(node.buffer)}[{node.elements}];", [ref("loop_ir", "", node.buffer)])


PRINTERS: Printers = {
    Accumulate: accumulators.accumulate, Allocate: _allocate, Band: accumulators.band, Blocks: loops.blocks,
    Chunks: accumulators.chunks, Compute: compute.compute, Interleave: accumulators.interleave,
    InterleavedLoop: accumulators.interleaved_loop, JammedRows: loops.jammed_rows, Lanes: loops.lanes, Loop: loops.loop,
    MaskedStarts: compute.masked_starts, Owners: loops.owners, OwnIteration: compute.own_iteration,
    Parallel: loops.parallel, Piece: loops.piece, PrefetchGathered: prefetch_gathered, PrefetchNext: prefetch_next,
    Privatized: loops.privatized, ScanBlocks: scan_blocks, Streamed: streamed, SumBlocks: accumulators.sum_blocks,
    TileBlocks: loops.tile_blocks, TileRows: loops.tile_rows, Widened: widened, WidenRow: widen_row,
}


@dataclass
class Kernel:
    """A loop nest that is printed into a `Writer`."""

    nest: LoopNest
    program: Program
    writer: Writer

    def __post_init__(self) -> None:
        self.bodies, self.local = self.nest.bodies, self.nest.local
        names = [n for b in self.bodies for n in (*b.reads, *b.writes) if n not in self.local]
        self.buffers = tuple(dict.fromkeys(names))
        self.written = {n for b in self.bodies for n in b.writes}
        self.emission = StatementWriter(self.nest, self.writer, PRINTERS, sizes=frozenset(self.symbols))

    # ---- signature ---------------------------------------------------------------------------------------------------
    @cached_property
    def symbols(self) -> tuple[sympy.Symbol, ...]:
        """The size symbols that it is given."""
        found: set[sympy.Symbol] = set()
        for body in self.bodies:
            own = {a.symbol for a in body.axes + body.reduction_axes}
            own |= {axis_symbol(s.name) for s in body.statements if s.op == "indirect"}
            for e in [a.extent for a in body.axes + body.reduction_axes] + [
                x for s in body.statements for x in (s.index, s.bound) if x is not None
            ]:
                found |= e.free_symbols - own
        return tuple(sorted(found, key=lambda s: s.name))

    @property
    def signature(self) -> KernelSignature:
        """How the kernel is called; complete once `emit` has run."""
        return KernelSignature(self.nest.group.kernel, self.buffers, self.symbols, tuple(self.emission.bounds))

    @property
    def pointer_types(self) -> tuple[str, ...]:
        """The C++ element types of the buffers, const where only read."""
        return tuple(
            ("" if b in self.written else "const ") + ctype(self.program.buffers[b].dtype).memory for b in self.buffers
        )

    # ---- the function ------------------------------------------------------------------------------------------------
    def emit(self) -> None:
        """Write the function."""
        for body in self.nest.group.bodies:
            nodes = list(dict.fromkeys(o for s in body.statements for o in s.origins))
            inner = ", ".join(f"{a.symbol}<{a.extent}" for a in body.axes)
            over = ", ".join(f"{a.symbol}<{a.extent}" for a in body.reduction_axes)
            text = f"// {', '.join(body.writes)}[{inner}]{f' over {over}' if over else ''}: {', '.join(nodes)}"
            self.writer.line(text, [ref("loop_ir", "", body.name)])
        pointers = [f"{kind}* __restrict {buffer_name(b)}" for kind, b in zip(self.pointer_types, self.buffers)]
        parameters = ", ".join(pointers + [f"int64 {s.name}" for s in self.symbols])
        narrow = "NARROW " if self.nest.vector_bits < 512 else ""
        with self.writer.block(f"{narrow}static int64 {self.nest.group.kernel}({parameters})"):
            checked = any(s.op == "indirect" and s.mode != "unchecked" for b in self.bodies for s in b.statements)
            if checked:
                self.writer.line("int64 status = 0;")
            with self.emission.scopes.open():
                name_remainders(self.emission, [s for b in self.bodies for s in b.statements], ())
                self._lanes_each()
                self.emission.nodes(self.nest.body)
                if self.nest.fence:
                    self.writer.line("past_cache_done();")
            self.writer.line("return status;" if checked else "return 0;")

    def _lanes_each(self) -> None:
        """How many lanes a block has where each thread gets one block."""
        for node in walk(self.nest.body):
            if isinstance(node, Lanes) and node.each_thread:
                outer = self.nest.group.axes[: self.nest.group.axes.index(node.axis)]
                lanes = c_expression(sympy.Mul(*[a.extent for a in outer], node.axis.extent))
                row = c_expression(node.axis.extent)
                self.writer.line(f"const int64 lanes = lanes_each({lanes}, {row}, {FEWEST_LANES}, {node.width});")

    def canonical(self, lines: Sequence[CodeLine]) -> str:
        """The text of the kernel with its own names numbered: equal for kernels that differ in names only."""
        own = {buffer_name(b) for b in (*self.buffers, *self.local)} | set(self.emission.scopes.names)
        own.add(self.nest.group.kernel)
        numbers: dict[str, str] = {}
        known: dict[str, str] = {}

        def number(word: re.Match[str]) -> str:
            name = word.group()
            if name not in known:
                known[name] = numbered(name)
            return known[name]

        def numbered(name: str) -> str:
            base = next((name[: -len(s)] for s in SUFFIXES if name.endswith(s) and name[: -len(s)] in own), name)
            if base not in own:
                return name
            return numbers.setdefault(base, f"n{len(numbers)}") + name[len(base):]

        code = [line.text for line in lines if not line.text.lstrip().startswith("//")]
        return _WORD.sub(number, "\n".join(code)) + "|".join(self.pointer_types)
