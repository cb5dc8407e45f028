"""Emits one loop nest: its loops, loop-invariant code, the vectorized loop and the reductions."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import sympy
import torch

from ...ir.ir import Axis, Statement
from .blocked_scans import write_scan_blocks
from .dtypes import ctype
from .gather_prefetch import gathered_rows, write_gathered
from .half_precision import write_half_blocks
from .index_set_splitting import Piece, folded, split_pieces
from .indices import c_expression
from .loop_headers import loop_header
from .multiple_accumulators import VECTOR, MultipleAccumulators, accumulators_of
from .nests import Nest, Part, position_of
from .nontemporal_stores import write_blocks
from .prefetch import write_prefetching
from .reductions import Accumulator, Place
from .scans import Scan
from .scatter import free_axes
from .scope import origins_of
from .statements import StatementWriter
from .unroll_and_jam import unrolls, unrolls_all, write_unrolled_rows

if TYPE_CHECKING:
    from .kernel import Kernel

BLOCK = 256  # a sum runs over blocks of this many elements, and over the blocks in double
ACCUMULATORS_BLOCK = 1024  # the same for sums with multiple accumulators, at least
PER_ACCUMULATOR = 32  # elements of a block for each accumulator, where there are many
SHORT = 256  # elements of a row below which there are no blocks, where a nest has several rows
WORTH_THREADS = 8192  # elements of a chunk of a parallel loop
LANE_BLOCK = 32  # the same for sums over rows, in lane mode, where every lane adds one element of each row


@dataclass
class Reduction:
    """A reduction of the nest: its accumulator and its variable."""

    part: Part
    statement: Statement
    accumulator: Accumulator
    name: str


@dataclass
class Running:
    """A scan of the nest: its state, and its variable."""

    part: Part
    statement: Statement
    accumulator: Scan
    name: str


@dataclass
class NestWriter:
    """Emission of one nest, inside the kernel's outer loops (and a block of lanes)."""

    kernel: Kernel
    nest: Nest
    lane: Axis | None
    around: tuple[Axis, ...] = ()  # the loops of a body of its own, that the nest stands in
    reductions: list[Reduction] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.writer, self.scopes = self.kernel.writer, self.kernel.scopes
        self.loops = self.nest.loops + ((self.lane,) if self.lane is not None else ())
        self.depths = [self._depths(p) for p in self.nest.parts]
        checked = any(s.op == "indirect" and s.mode != "unchecked" for p in self.nest.parts for s in p.statements)
        self.outside = self.scopes.name("outside") if checked else ""
        self.checks = self._checks_inside(len(self.loops) - 1)  # an index at each point, not at each row
        self.statements = StatementWriter(self.kernel, self.lane, self.outside)
        self.gathered = gathered_rows(self)
        self.threads = self.kernel.shape.parallel == "nests" and not (self.around or self.nest.scans) and bool(
            self.nest.loops)
        self.scans = [self._running(p, s) for p in self.nest.parts for s in p.statements if s.op == "scan"]
        reduces = [(p, s) for p in self.nest.parts for s in p.statements if s.op == "reduce"]
        wide = bool(reduces) and self._sums_are_long()
        for part, s in reduces:
            if position_of(part, s) is not None:
                continue
            operand = next(x.dtype for x in part.body.statements if x.name == s.args[0])
            values = (ctype(operand).value, ctype(s.dtype).value)
            blocks = values == ("float", "float") or (values == ("double", "double") and _loads_doubles(part))
            kept_wide = s.mode in ("sum", "prod") and (values == ("float", "double") or (wide and blocks))
            accumulator = Accumulator(s.mode, s.dtype, operand, kept_wide)
            self.reductions.append(Reduction(part, s, accumulator, self.scopes.name(f"{part.body.name}_{s.name}")))
        self.scatters = any(s.mode for p in self.nest.parts for s in p.stores)
        last = None if self.lane is None else self.lane.symbol
        moded = [p.body for p in self.nest.parts if any(s.mode for s in p.stores)]  # on loops of names of their own
        self.in_order = bool(moded) and not (
            self.loops and all((last or b.axes[-1].symbol) in free_axes(b) for b in moded)
        )
        self.in_order |= bool(self.scans) and self.lane is None
        # They add in float within a block. Products, whose error does not depend on order, are in double throughout.
        self.wide = [r for r in self.reductions if r.accumulator.wide and r.accumulator.kind == "sum"]
        self.kept = self.reductions  # as in the innermost loop
        self.now = False  # whether a lane's accumulators are in variables
        self.at_once = unrolls_all(self)  # a lane reduces all rows, from the start to the result
        self.accumulators: MultipleAccumulators | None = None
        if self.lane is None and self.loops and self.reductions and not self._in_blocks():
            self.wide = []
            if not (self.in_order or self.checks) or not self._vectorizes():
                self.accumulators = MultipleAccumulators(self, self.reductions, accumulators_of(self, self.reductions))

    def emit(self) -> None:
        """Write the nest."""
        self.kernel.loops_around = self.around + self.nest.loops
        chunked = self.threads and bool(self.reductions)  # each chunk of the loops has a flag of its own
        flagged = bool(self.outside) and (not chunked or self._checks_before_loops())
        if flagged:
            self.writer.line(f"int32 {self.outside} = 0;")
        if not self.loops:
            for part in self.nest.parts:
                for s in part.statements:
                    self.statements.emit(part, s)
        else:
            self._declare([*self.reductions, *self.scans])
            if chunked:
                self._emit_depth(0)
                self._in_chunks()
            else:
                self._accumulated_tree(*(self.kernel.tile.span if self.kernel.tile is not None else ("0", "")))
            self._bind_results()
        if flagged:
            self._report_outside()

    def _report_outside(self) -> None:
        with self.writer.block(f"if ({self.outside})"):
            self.writer.line("#pragma omp atomic write")
            self.writer.line(f"status = 1 + __builtin_ctz({self.outside});")

    # ---- the loop depth of a statement -------------------------------------------------------------------------------
    def _depths(self, part: Part) -> dict[str, int]:
        """The loop depth of each statement (loop-invariant code motion)."""
        level = {a.symbol.name: i + 1 for i, a in enumerate(self.loops)}
        elsewhere = len(self.loops) if self.lane is not None else 0  # results of reductions: one for each lane
        depths: dict[str, int] = {}
        for s in part.statements:
            if s.op in ("store", "reduce", "scan"):
                if s.op == "scan":
                    depths[s.name] = len(self.loops)
                continue
            depth = max((depths.get(a, elsewhere) for a in (*s.args, *([s.mask] if s.mask else ()))), default=0)
            if s.index is not None:
                for symbol in s.index.free_symbols:
                    depth = max(depth, level.get(symbol.name, depths.get(symbol.name, 0)))
            depths[s.name] = depth
        return depths

    def _emit_depth(self, depth: int) -> None:
        if depth == len(self.loops) - 1:
            for row in self.gathered:
                write_gathered(self, row)
        if self.kernel.owner is not None and depth == 0:
            place = self.statements.value(self.nest.parts[0], self.kernel.owner.name)
            self.writer.line(f"if ({place} < own_first || {place} >= own_last) continue;  // another thread's")
        for part, depths in zip(self.nest.parts, self.depths):
            for s in part.statements:
                at = len(self.loops) if s.op in ("store", "reduce") else depths[s.name]
                if at != depth:
                    continue
                if s.op == "reduce":
                    self._update(part, s)
                elif s.op == "scan":
                    if self.scopes.get(("value", part.key, s.name)) is None:
                        self._advance(part, s)
                else:
                    self.statements.emit(part, s)
            if depth == len(self.loops) - 1:
                masked = [s for s in part.statements if s.op == "load" and s.mask and depths[s.mask] <= depth]
                self.statements.starts(part, masked, self.loops[-1])

    # ---- loops -------------------------------------------------------------------------------------------------------
    def _accumulated_tree(self, first: str, last: str) -> None:
        """The loops; with multiple accumulators, their declarations before and their combination after."""
        if self.accumulators is not None:
            self.accumulators.declare()
        self._loop_tree(0, first, last)
        if self.accumulators is not None:
            self.accumulators.join()

    def _loop_tree(self, depth: int, first: str, last: str) -> None:
        """The loops from `depth` inwards; the outermost of them runs from `first` to `last` ("": its extent)."""
        if not (depth == 0 and self.threads and self.reductions):
            self._emit_depth(depth)
        if depth == len(self.loops):
            return
        a = self.loops[depth]
        blocked_here = depth == (len(self.loops) - 1 if self.lane is None else 0)
        if self.wide and blocked_here and a is not self.lane:
            self._blocked(a, depth, first, last)
        else:
            self._plain_loop(a, depth, first, last)

    def _plain_loop(self, a: Axis, depth: int, first: str, last: str) -> None:
        innermost = depth == len(self.loops) - 1
        if a is self.lane:
            first, last = f"{a.symbol}_0", f"{a.symbol}_1"
        pieces: list[Piece] = []
        if innermost and (first, last) == ("0", "") and not (self.reductions or self.lane is not None):
            alone = depth == 0 and not self.kernel.outer_names
            pieces = split_pieces(self.nest.parts, a, self.kernel.group.kernel, self.kernel.context, alone)
        for piece in pieces:
            with self.scopes.open():
                self.kernel.places = piece.places
                self._assume(piece, a)
                if write_scan_blocks(self, a, str(piece.first), str(piece.last)):
                    continue
                self.pragma(depth, innermost, piece.last - piece.first < WORTH_THREADS)
                with self.scopes.open(), self.writer.block(loop_header(a, str(piece.first), str(piece.last))):
                    self._loop_tree(depth + 1, "0", "")
        self.kernel.places = {}
        if pieces or (innermost and write_half_blocks(self, a, depth, first, last)):
            return
        if innermost and self.accumulators is not None:
            self.accumulators.loops(a, first, last)
            return
        if innermost and (write_scan_blocks(self, a, first, last) or write_blocks(self, a, depth)
                          or write_prefetching(self, a, depth)):
            return
        rest = write_unrolled_rows(self, a, depth, first, last) if unrolls(self, depth) else first
        if rest:
            self.pragma(depth, innermost)
            with self.scopes.open(), self.writer.block(loop_header(a, rest, last)):
                self._loop_tree(depth + 1, "0", "")

    def _assume(self, piece: Piece, a: Axis) -> None:
        """Name the values that are known in a piece of the loop over `a`; masks that are invariant become starts."""
        for part, depths in zip(self.nest.parts, self.depths):
            values = folded(part, piece.known)
            for name, value in values.items():
                if isinstance(value, bool):
                    self.scopes.put(("value", part.key, name), "true" if value else "false")
            outer = {n for n, v in values.items() if isinstance(v, str) and depths[v] < len(self.loops)}
            for name in outer:
                self.scopes.put(("value", part.key, name), self.statements.value(part, str(values[name])))
            self.statements.starts(part, [s for s in part.statements if s.op == "load" and s.mask in outer], a)

    def loop_in_block(self, a: Axis, depth: int, first: str, last: str) -> None:
        """The innermost loop over the block from `first` to `last`."""
        if self.accumulators is not None:
            self.accumulators.loops(a, first, last)
            return
        self.pragma(depth, innermost=True, short=True)
        with self.scopes.open(), self.writer.block(loop_header(a, first, last)):
            self.innermost()

    def innermost(self) -> None:
        """The statements of the innermost loop."""
        self._loop_tree(len(self.loops), "0", "")

    def row(self) -> None:
        """The statements of one row of a block of lanes."""
        for depth in (len(self.loops) - 1, len(self.loops)):
            self._emit_depth(depth)

    @contextmanager
    def in_registers(self) -> Iterator[None]:
        """Around the body of a lane: its accumulators are in variables there."""
        fields = [(f, self._at(r.name)(f.suffix), _now(r.name)(f.suffix))
                  for r in self.kept for f in r.accumulator.fields]
        for f, place, name in fields:
            self.writer.line(f"{f.type} {name} = {f.start if self.at_once else place};")
        self.now = True
        yield
        self.now = False
        for _, place, name in fields:
            self.writer.line(f"{place} = {name};")

    def pragma(self, depth: int, innermost: bool, short: bool = False) -> None:
        """The pragma of the loop at `depth`, if it is parallel or vectorized; no threads if `short`."""
        shared = self.shares(depth) and not short
        vector = innermost and not self.in_order
        if not (shared or vector):
            return
        words = ["#pragma omp", *(["parallel for"] if shared else []), *(["simd"] if vector else [])]
        if vector and self.lane is None and self.accumulators is None:
            words += self._clauses()
        if self._checks_inside(depth):
            words.append(f"reduction(|:{self.outside})")
        if shared:
            words.append("schedule(static)" + self.kernel.shape.condition)
        self.writer.line(" ".join(words))

    def shares(self, depth: int) -> bool:
        """Whether threads share the loop at `depth`."""
        return depth == 0 and self.threads and not (self.reductions or self.in_order or self.scatters)

    def _checks_inside(self, depth: int) -> bool:
        """Whether the loop at `depth` checks indices: one that only uses them needs no flag in each lane."""
        return any(at > depth for at in self._checked_at())

    def _checks_before_loops(self) -> bool:
        return 0 in self._checked_at()

    def _checked_at(self) -> set[int]:
        """At which depths indices are checked."""
        return {depths[s.name] for part, depths in zip(self.nest.parts, self.depths) for s in part.statements
                if s.op == "indirect" and s.mode != "unchecked"}

    def _clauses(self) -> list[str]:
        return [
            f"reduction({f.clause}:{self._variable(r)}{f.suffix})"
            for r in self.reductions
            for f in r.accumulator.fields
        ]

    def _variable(self, reduction: Reduction) -> str:
        return f"{reduction.name}_part" if reduction in self.wide else reduction.name

    def _blocked(self, a: Axis, depth: int, first: str, last: str) -> None:
        """A blocked loop: sums are float within a block, and double over the blocks."""
        multiple = self.lane is None and not (self.checks or self.in_order)
        end, width, count = last or c_expression(a.extent), BLOCK, 0
        if multiple:
            count = accumulators_of(self, self.wide)
            width = max(ACCUMULATORS_BLOCK, count * PER_ACCUMULATOR)
        if self.lane is not None:
            inner = sympy.Mul(*[x.extent for x in self.nest.loops[1:]])
            width = max(1, LANE_BLOCK // int(inner)) if inner.is_Integer and inner > 0 else 1
        block = f"{a.symbol}_block"
        one = a.extent.is_Integer and a.extent <= width and not last
        header = "" if one else f"for (int64 {block} = {first}; {block} < {end}; {block} += {width})"
        with self.scopes.open(), self.writer.block(header):
            narrow = []
            for r in self.wide:
                kind = r.accumulator.operand
                narrow.append(Reduction(r.part, r.statement, Accumulator("sum", kind, kind), f"{r.name}_part"))
            self._declare(narrow)
            if not one:
                self.writer.line(f"const int64 {block}_end = {block} + {width} < {end} ? {block} + {width} : {end};")
                first, end = block, f"{block}_end"
            if multiple:
                self.accumulators = MultipleAccumulators(self, narrow, count)
                self.accumulators.declare()
            self.kept = [*narrow, *[r for r in self.reductions if r not in self.wide]]
            self._plain_loop(a, depth, first, "" if one else end)
            self.kept = self.reductions
            if multiple and self.accumulators is not None:
                self.accumulators.join()
                self.accumulators = None
            for r in self.wide:
                with self._each_lane():
                    self.writer.line(f"{self._at(r.name)('')} += {self._at(r.name + '_part')('')};")

    # ---- reductions --------------------------------------------------------------------------------------------------
    def _at(self, name: str, index: str = "") -> Place:
        lane = f"[{self.lane.symbol} - {self.lane.symbol}_0]" if self.lane is not None else ""
        return lambda suffix: f"{name}{suffix}{index}{lane}"

    @contextmanager
    def _each_lane(self) -> Iterator[None]:
        if self.lane is None:
            yield
            return
        g = self.lane.symbol
        self.writer.line("#pragma omp simd")
        with self.writer.block(loop_header(self.lane, f"{g}_0", f"{g}_1")):
            yield

    def _declare(self, reductions: Sequence[Reduction | Running]) -> None:
        for r in reductions:
            origins = origins_of(r.part.body.name, r.statement.name, r.statement.origins)
            for f in r.accumulator.fields:
                if self.lane is None:
                    self.writer.line(f"{f.type} {r.name}{f.suffix} = {f.start};", origins)
                else:
                    self.writer.line(f"{f.type} {r.name}{f.suffix}[{self.kernel.width}];", origins)
                    if not self.at_once:
                        self.writer.line("#pragma omp simd")
                        every = f"for (int64 k = 0; k < {self.kernel.step}; k++)"
                        self.writer.line(f"{every} {r.name}{f.suffix}[k] = {f.start};", origins)

    def _update(self, part: Part, s: Statement) -> None:
        reduction = next((r for r in self.reductions if r.part is part and r.statement is s), None)
        if reduction is None:  # a maximum that an argmax computes as well
            return
        value = self.statements.value(part, s.args[0])
        place, at = self._at(self._variable(reduction)), self._position()
        if self.accumulators is not None:
            place, at = self.accumulators.place(reduction), self.accumulators.position(at)
        if self.now:
            place = _now(self._variable(reduction))
        for text in reduction.accumulator.update(place, value, c_expression(at)):
            self.writer.line(text, origins_of(part.body.name, s.name, s.origins))

    def _position(self) -> sympy.Expr:
        """The linear index of the iteration."""
        position: sympy.Expr = sympy.S.Zero
        for a in self.nest.loops:
            position = position * a.extent + a.symbol
        return sympy.expand(position)

    # ---- scans -------------------------------------------------------------------------------------------------------
    def _running(self, part: Part, s: Statement) -> Running:
        operand = next(x.dtype for x in part.body.statements if x.name == s.args[0])
        return Running(part, s, Scan(s.mode, s.dtype, operand), self.scopes.name(f"{part.body.name}_{s.name}_so_far"))

    def _advance(self, part: Part, s: Statement) -> None:
        """Take the value of this point into the state, which is then the value of the scan."""
        scan = next(r for r in self.scans if r.part is part and r.statement is s)
        origins = origins_of(part.body.name, s.name, s.origins)
        value, place = self.statements.value(part, s.args[0]), self._at(scan.name)
        for text in scan.accumulator.update(place, value, c_expression(self._position())):
            self.writer.line(text, origins)
        name = self.scopes.name(f"{s.origins[-1] if s.origins else part.body.name}_{s.name}")
        self.writer.line(f"const {ctype(s.dtype).value} {name} = {scan.accumulator.result(place)};", origins)
        self.scopes.put(("value", part.key, s.name), name)

    # ---- reductions over threads -------------------------------------------------------------------------------------
    def _in_chunks(self) -> None:
        """Run the outermost loop in chunks of fixed number, in parallel, and join their results in order."""
        a, chunks = self.loops[0], self.kernel.shape.chunks
        width = f"[{self.kernel.width}]" if self.lane is not None else ""
        for r in self.reductions:
            for f in r.accumulator.fields:
                self.writer.line(f"{f.type} {r.name}{f.suffix}_chunks[{chunks}]{width};")
        self.writer.line(f"#pragma omp parallel for schedule(static){self.kernel.shape.condition}")
        with self.scopes.open(), self.writer.block(f"for (int64 chunk = 0; chunk < {chunks}; chunk++)"):
            extent = c_expression(a.extent)
            first, last = (f"{n} * ({extent}) / {chunks}" for n in ("chunk", "(chunk + 1)"))
            if (self.accumulators is not None or self.wide) and len(self.loops) == 1:
                cut = f" / {VECTOR} * {VECTOR}"  # whole vectors, where the first of all is one
                first, last = f"{first}{cut}", f"chunk < {chunks - 1} ? {last}{cut} : {extent}"
            self.writer.line(f"const int64 first = {first}, last = {last};")
            checked = self._checks_inside(0)
            if checked:
                self.writer.line(f"int32 {self.outside} = 0;")
            self._declare(self.reductions)
            self._accumulated_tree("first", "last")
            for r in self.reductions:
                with self._each_lane():
                    for f in r.accumulator.fields:
                        chunk = self._at(f"{r.name}{f.suffix}_chunks", "[chunk]")("")
                        self.writer.line(f"{chunk} = {self._at(r.name)(f.suffix)};")
            if checked:
                self._report_outside()
        with self.writer.block(f"for (int64 chunk = 0; chunk < {chunks}; chunk++)"):
            for r in self.reductions:
                with self._each_lane():
                    for text in r.accumulator.combine(self._at(r.name), self._chunk_place(r)):
                        self.writer.line(text)

    def _chunk_place(self, r: Reduction) -> Place:
        return lambda suffix: self._at(f"{r.name}{suffix}_chunks", "[chunk]")("")

    def _bind_results(self) -> None:
        for r in self.reductions:
            text = r.accumulator.result(self._at(r.name))
            key = ("value", r.part.key, r.statement.name)
            if self.lane is not None:
                self.scopes.put(key, f"({text})")
                continue
            self.scopes.put(key, self._named_result(r, r.statement, text))
        for part in self.nest.parts:
            for s in part.statements:
                found = position_of(part, s)
                if found is not None:
                    r = next(r for r in self.reductions if r.part is part and r.statement is found)
                    text = self._at(r.name)("")
                    named = text if self.lane is not None else self._named_result(r, s, text)
                    self.scopes.put(("value", part.key, s.name), named)

    def _named_result(self, r: Reduction, s: Statement, text: str) -> str:
        name = self.scopes.name(f"{r.part.body.name}_{s.name}_result")
        origins = origins_of(r.part.body.name, s.name, s.origins)
        self.writer.line(f"const {ctype(s.dtype).value} {name} = {text};", origins)
        return name

    def _vectorizes(self) -> bool:
        return all(r.accumulator.vectorizes for r in self.reductions)

    def _in_blocks(self) -> bool:
        """Whether the innermost loop runs in blocks, with sums in float within a block. Rows must be worth one."""
        row = self.loops[-1].extent
        short = len(self.loops) > 1 and row.is_Integer and row < SHORT
        multiple = len(self.wide) == len(self.reductions) and not short
        return bool(self.wide) and self._vectorizes() and (multiple or self.in_order or self.checks)

    def _sums_are_long(self) -> bool:
        points = sympy.Mul(*[a.extent for a in self.nest.loops])
        limit = BLOCK if self.lane is None else LANE_BLOCK
        return self.threads or not points.is_Integer or points > limit


def _loads_doubles(part: Part) -> bool:
    """Whether double sums are of doubles, for which blocks reduce rounding errors; sums of floats have digits to
    spare."""
    return any(s.dtype is torch.float64 for s in part.loads)


def _now(name: str) -> Place:
    return lambda suffix: f"{name}{suffix}_now"
