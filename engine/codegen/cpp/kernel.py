"""One group as one C++ function.

There are two modes. In *row mode* the outer loops of the group are parallel and the innermost loop of each nest is
vectorized. In *lane mode* the last outer axis is the contiguous one (column sums): it is strip-mined into blocks of
`LANES`, and the vectorized loop of every nest runs over the lanes of the block. Where the outer loops have too few
iterations for the threads, the nests themselves are parallel; a reduction then runs in `CHUNKS` chunks whose results
are combined in order, so that the result does not depend on the number of threads.
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import sympy

from ....artifacts.context import CompileContext
from ....artifacts.records import CodeLine, ref
from ...ir.affine import axis_symbol
from ...ir.body_affine import static
from ...ir.ir import Axis, Group, KernelSignature, Program, Statement
from .dtypes import ctype
from .half_precision import convert_half_rows
from .indices import c_expression
from .loop_headers import lane_end, lane_header, loop_header
from .loop_shape import LANES, Shape, lane_width, loop_shape, prefers_lanes
from .nest_writer import NestWriter
from .nests import Nest, nests_of
from .nontemporal_stores import nontemporal_results
from .prefetch import Prefetch, prefetched_rows
from .scatter import owner, range_lines, scatters
from .scope import Scopes, buffer_name, form_of
from .source_writer import Writer
from .storage import Scratch, layout, needing_arrays, stores_of
from .transpose_tiles import Tile, find_tile
from .transposed_row_tiles import RowTile
from .vector_width import streams
from .welford import expand

SUMS_LIMIT = 64 * 1024  # elements of all sums of all chunks: half a megabyte of the caller's stack
SUFFIXES = ("_part", "_chunks", "_nan", "_at", "_bad", "_nan_chunks", "_at_chunks", "_stripe",
            "_part_stripe", "_nan_stripe", "_at_stripe", "_now", "_part_now", "_nan_now", "_at_now")
"""What names are extended with."""
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass
class Kernel:
    """Emission of one group into a `Writer`."""

    group: Group
    program: Program
    writer: Writer
    context: CompileContext
    scopes: Scopes = field(default_factory=Scopes)
    bounds: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bodies, local = expand(self.group.bodies)
        self.local = {b: self.program.buffers[b].dtype for b in self.group.internal} | local
        self.shape: Shape = loop_shape(self.group, self.bodies, self.local, self.context)
        self.nests = nests_of(self.bodies, self.shape.outer + (1 if self.shape.lanes else 0))
        names = [n for b in self.bodies for n in (*b.reads, *b.writes) if n not in self.local]
        self.buffers = tuple(dict.fromkeys(names))
        self.written = {n for b in self.bodies for n in b.writes}
        self.arrays: dict[str, Scratch] = {}
        self.outer_names: frozenset[str] = frozenset()
        self.lane: Axis | None = None
        self.tile: Tile | RowTile | None = self.shape.tile
        self.width = LANES  # lanes that a block has room for
        self.step = str(LANES)  # and how many it has
        self.loops_around: tuple[Axis, ...] = ()
        self.nontemporal: frozenset[str] = frozenset()  # the results with non-temporal stores
        self.prefetch: Prefetch | None = None  # of the next row, in the last loop
        self.prefetched: set[tuple[object, ...]] = set()  # rows of tables that are prefetched
        self.blocks: dict[str, str] = {}  # their blocks in the loop that is being written
        self.floats: dict[tuple[object, ...], str] = {}  # float16 converted to float arrays, by (op, buffer, index)
        self.rows: dict[tuple[str, sympy.Expr], str] = {}  # converted rows that all loops share, by (buffer, index)
        self.places: Mapping[sympy.Basic, sympy.Expr] = {}  # quotients and remainders in a piece of the innermost loop
        self.owner: Statement | None = None  # the index that determines the owner of an iteration
        self.changes: dict[str, int] = {}  # buffer -> stores so far: loads before a store are stale after it
        self.symbols = self._size_symbols()

    # ---- signature ---------------------------------------------------------------------------------------------------
    def _size_symbols(self) -> tuple[sympy.Symbol, ...]:
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
        return KernelSignature(self.group.kernel, self.buffers, self.symbols, tuple(self.bounds))

    @property
    def pointer_types(self) -> tuple[str, ...]:
        """The C++ element types of the buffers, const where only read."""
        return tuple(
            ("" if b in self.written else "const ") + ctype(self.program.buffers[b].dtype).memory for b in self.buffers
        )

    # ---- the function ------------------------------------------------------------------------------------------------
    def emit(self) -> None:
        """Write the function."""
        for body in self.group.bodies:
            nodes = list(dict.fromkeys(o for s in body.statements for o in s.origins))
            inner = ", ".join(f"{a.symbol}<{a.extent}" for a in body.axes)
            over = ", ".join(f"{a.symbol}<{a.extent}" for a in body.reduction_axes)
            text = f"// {', '.join(body.writes)}[{inner}]{f' over {over}' if over else ''}: {', '.join(nodes)}"
            self.writer.line(text, [ref("loop_ir", "", body.name)])
        pointers = [f"{kind}* __restrict {buffer_name(b)}" for kind, b in zip(self.pointer_types, self.buffers)]
        parameters = ", ".join(pointers + [f"int64 {s.name}" for s in self.symbols])
        memory = {name: self.program.buffers[name] for name in self.buffers}
        narrow = "NARROW " if streams(self.group, self.bodies, memory, self.context) else ""
        with self.writer.block(f"{narrow}static int64 {self.group.kernel}({parameters})"):
            checked = any(s.op == "indirect" and s.mode != "unchecked" for b in self.bodies for s in b.statements)
            if checked:
                self.writer.line("int64 status = 0;")
            with self.scopes.open():
                self._outer_loops()
                if self.nontemporal and not self.shape.parallel:
                    self.writer.line("past_cache_done();")
            self.writer.line("return status;" if checked else "return 0;")

    def canonical(self, lines: Sequence[CodeLine]) -> str:
        """The text of the kernel with its own names numbered: equal for kernels that differ in names only."""
        own = {buffer_name(b) for b in (*self.buffers, *self.local)} | set(self.scopes.names) | {self.group.kernel}
        numbers: dict[str, str] = {}

        def number(word: re.Match[str]) -> str:
            name = word.group()
            base = next((name[: -len(s)] for s in SUFFIXES if name.endswith(s) and name[: -len(s)] in own), name)
            if base not in own:
                return name
            return numbers.setdefault(base, f"n{len(numbers)}") + name[len(base):]

        code = [line.text for line in lines if not line.text.lstrip().startswith("//")]
        return _WORD.sub(number, "\n".join(code)) + "|".join(self.pointer_types)

    def _outer_loops(self) -> None:
        outer = self.group.axes[: self.shape.outer]
        self.outer_names = frozenset(a.symbol.name for a in outer)
        if self.shape.lanes:
            self.lane = self.group.axes[self.shape.outer]
            self.outer_names |= {self.lane.symbol.name}
        self._plan_arrays()
        if self.lane is not None:
            self.width = lane_width(sum(s.elements for s in self.arrays.values()), self.lane.extent)
            self.step = self._lane_step(outer, self.lane)
        chunks = self._chunks() if self.shape.parallel == "chunks" else 0
        loops = self._tiled(outer) or [loop_header(a) for a in outer]
        if chunks:
            ends = [f"{at} * ({c_expression(outer[0].extent)}) / {chunks}" for at in ("chunk", "(chunk + 1)")]
            loops[0] = loop_header(outer[0], *ends)
        if self.lane is not None:
            loops.append(lane_header(self.lane, self.step))
        if self.tile is None and self.lane is None and self.shape.parallel in ("outer", "nests", ""):
            memory = {name: self.program.buffers[name] for name in self.buffers}
            self.nontemporal = nontemporal_results(self.group, self.nests, outer, memory, self.context)
            if self.shape.parallel != "nests" and not self.nontemporal:
                self.prefetch = prefetched_rows(self.group, self.nests, outer, memory, self.written, self.context)
        with self._threads(loops), self._owners(), self._added(chunks), self._loops(loops):
            if self.lane is not None:
                self.writer.line(lane_end(self.lane, self.step))
            for name, scratch in self.arrays.items():
                size = scratch.elements * (self.width if self.lane is not None else 1)
                kind = ctype(self.local[name]).value
                self.writer.line(f"{kind} {buffer_name(name)}[{size}];", [ref("loop_ir", "", name)])
            if self.tile is None:
                convert_half_rows(self)
            with self._rows_of_tile():
                for nest in self.nests:
                    self._nest(nest, self.lane)

    def _tiled(self, outer: tuple[Axis, ...]) -> list[str]:
        """The loops around tiles, where there are transposed operands or rows; else none."""
        if self.shape.tile is None and not (self.lane or self.arrays or len(self.nests) > 1 or self.nests[0].inside):
            self.tile = find_tile(self.group, self.bodies, self.written, set(self.local), self.context)
        if self.tile is None:
            return []
        loops = [loop_header(a) for a in outer if a != self.tile.row] + self.tile.headers()
        if self.shape.parallel:
            self.shape = replace(self.shape, parallel="outer", shared=len(loops))
        return loops

    @contextmanager
    def _rows_of_tile(self) -> Iterator[None]:
        """Around the nests: a tile's transposed operands, the loop over its rows, and its results."""
        if self.tile is None:
            yield
            return
        for line in self.tile.ends():
            self.writer.line(line)
        for line, load in self.tile.copies():
            self.writer.line(line, [ref("loop_ir", "", load.buffer)])
        row = self.tile.row
        with self._loops([loop_header(row, f"{row.symbol}_0", f"{row.symbol}_1")]):
            yield
        for line, store in self.tile.results():
            self.writer.line(line, [ref("loop_ir", "", store.buffer)])

    def _lane_step(self, outer: Sequence[Axis], lane: Axis) -> str:
        """How many lanes a block has: as many as fit, or, if threads share the blocks, few enough for one block
        each."""
        if self.shape.parallel != "outer" or self.width <= LANES:
            return str(self.width)
        lanes, row = c_expression(sympy.Mul(*[a.extent for a in outer], lane.extent)), c_expression(lane.extent)
        self.writer.line(f"const int64 lanes = lanes_each({lanes}, {row}, {LANES}, {self.width});")
        return "lanes"

    @contextmanager
    def _threads(self, loops: Sequence[str]) -> Iterator[None]:
        """Around the outer loops, where threads share them."""
        if self.shape.parallel != "outer" or not loops:
            yield
            return
        collapse = f" collapse({self.shape.shared})" if self.shape.shared > 1 else ""
        with self.sharing(collapse):
            yield

    @contextmanager
    def sharing(self, collapse: str = "") -> Iterator[None]:
        """Around a parallel loop; each thread fences its non-temporal stores at the end."""
        if not self.nontemporal:
            self.writer.line(f"#pragma omp parallel for{collapse}{self.shape.condition} schedule(static)")
            yield
            return
        self.writer.line(f"#pragma omp parallel{self.shape.condition}")
        with self.writer.block(""):
            self.writer.line(f"#pragma omp for{collapse} schedule(static) nowait")
            yield
            self.writer.line("past_cache_done();")

    @contextmanager
    def _owners(self) -> Iterator[None]:
        """Around the loops of an owner-computes scatter: the thread's range."""
        if self.shape.parallel != "owners":
            yield
            return
        self.owner = owner(self.bodies[0], self.group.axes[: self.shape.outer])
        assert self.owner is not None and self.owner.bound is not None
        self.writer.line(f"#pragma omp parallel{self.shape.condition}")
        with self.scopes.open(), self.writer.block(""):
            for line in range_lines(self.owner.bound):
                self.writer.line(line)
            yield

    def _sums(self) -> dict[str, int]:
        """The buffers that loops add to, and their sizes."""
        names = dict.fromkeys(s.buffer for b in self.bodies for s in scatters(b))
        return {name: int(sympy.Mul(*self.program.buffers[name].size)) for name in names}

    def _chunks(self) -> int:
        """In how many chunks the first loop is parallel, each with its own accumulators; 0 for one."""
        fit = SUMS_LIMIT // max(sum(self._sums().values()), 1)
        count = min(self.shape.chunks, fit, int(self.group.axes[0].extent))
        return count if count > 1 else 0

    @contextmanager
    def _added(self, chunks: int) -> Iterator[None]:
        """Around loops that accumulate into a result: zeros for each chunk, and the sum of the chunks in order."""
        if not chunks:
            yield
            return
        sums = {buffer_name(n): (ctype(self.program.buffers[n].dtype).memory, size) for n, size in self._sums().items()}
        for name, (kind, size) in sums.items():
            self.writer.line(f"{kind} {name}_chunks[{chunks * size}];")
        self.writer.line("#pragma omp parallel for schedule(static)")
        with self.scopes.open(), self.writer.block(f"for (int64 chunk = 0; chunk < {chunks}; chunk++)"):
            for name, (kind, size) in sums.items():
                self.writer.line(f"{kind}* __restrict {name} = {name}_chunks + {size} * chunk;")
                self.writer.line(f"for (int64 k = 0; k < {size}; k++) {name}[k] = 0;")
            yield
        for name, (_, size) in sums.items():
            with self.writer.block(f"for (int64 chunk = 0; chunk < {chunks}; chunk++)"):
                self.writer.line("#pragma omp simd")
                self.writer.line(f"for (int64 k = 0; k < {size}; k++) {name}[k] += {name}_chunks[{size} * chunk + k];")

    @contextmanager
    def _loops(self, headers: Sequence[str]) -> Iterator[None]:
        """The loops of `headers` around what is written inside, in a scope of names of its own."""
        if not headers:
            yield
            return
        with self.scopes.open(), self.writer.block(headers[0]):
            with self._loops(headers[1:]):
                yield

    def _plan_arrays(self) -> None:
        for name in sorted(needing_arrays(self.nests, self.local.keys(), self.lane is not None)):
            terms: dict[object, int] = {}
            for loops, store in stores_of(self.nests, name):
                extents = {a.symbol.name: a.extent for a in loops}
                form = form_of(store.index, loops, self.group.axes)
                for atom, factor in form.terms.items():
                    if atom.name not in self.outer_names:
                        terms[factor] = int(extents[atom.name])
            self.arrays[name] = layout(terms)

    # ---- nests -------------------------------------------------------------------------------------------------------
    def _nest(self, nest: Nest, lane: Axis | None) -> None:
        if not nest.inside:
            NestWriter(self, nest, lane).emit()
            return
        own = nest.loops[-1] if lane is None and prefers_lanes([nest.inside[0].parts[0].body], nest.loops[-1]) else None
        loops = nest.loops if own is None else nest.loops[:-1]
        headers = [loop_header(a) for a in loops]
        if own is not None:
            self.width = min(LANES, static(own.extent) or LANES)
            self.step = str(self.width)
            headers.append(lane_header(own, self.step))
        if self.shape.parallel == "nests":
            self.writer.line(f"#pragma omp parallel for schedule(static){self.shape.condition}")
        with self._loops(headers):
            if own is not None:
                self.writer.line(lane_end(own, self.step))
            for inner in nest.inside:
                NestWriter(self, inner, own or lane, nest.loops).emit()
