"""One kernel from a form and a tile: its header, its loops and reductions, its parameters."""
from __future__ import annotations

from dataclasses import dataclass

import sympy
import torch

from ....artifacts.records import CodeLine, ref
from ...ir.ir import DOTS, Statement
from .dims import Dim, Dims
from .dtypes import literal, pointer_type, value_type
from .emit import Emitter, Scope, origins_of, pointer_name
from .form import Form, Space, TileBody
from .index import index_text
from .ops import cast
from .reductions import Reduction, reduction
from .source import Launch, SourceWriter
from .tiling import Tile
from .values import Namer, Value


@dataclass
class Accumulators:
    """A reduction in progress: its accumulator variables."""

    body: TileBody
    statement: Statement
    kind: Reduction
    names: list[str]
    length: str  # of what the loop runs over


class KernelWriter:
    """Writes one kernel: `header`, then bodies or stages of a split, then `launch` for the whole."""

    def __init__(
        self, form: Form, tile: Tile, index: str, bounds: tuple[str, ...], stored: frozenset[str], name: str,
        dims: Dims | None = None,
    ) -> None:
        self.form, self.tile, self.index, self.name = form, tile, index, name
        self.dims = Dims(form, tile, index) if dims is None else dims
        axes = [a.symbol.name for d in self.dims.all for a in d.axes]
        sizes = {s.name for b in form.bodies for st in b.statements if st.index is not None
                 for s in st.index.free_symbols}
        taken = {*axes, *sizes, *(f"{d.name}_{end}" for d in self.dims.all for end in ("index", "mask", "offset"))}
        taken |= {pointer_name(b) for b in form.buffers}
        self.namer = Namer(taken)
        self.emitter = Emitter(form, self.dims, self.namer, bounds, stored)
        self.workspace_types: dict[str, str] = {}
        self.grid: list[sympy.Expr] = []

    @property
    def writer(self) -> SourceWriter:
        """The writer of the outer level."""
        return self.emitter.outer.writer

    # ---- header -----------------------------------------------------------------------------------------------------
    def header(self) -> None:
        """The positions of this program's tile."""
        cast_text = self.dims.cast
        outer = self.dims.outer
        blocked = outer + (list(self.dims.inner.values()) if self.tile.shape == "parallel" else [])
        if len(blocked) < 2:
            self.grid = [blocked[0].programs if blocked else sympy.S.One]
            programs = [f"tl.program_id(0){cast_text}"] * len(blocked)
        else:
            programs = self._two_grid(blocked)
        for dim, program in zip(blocked, programs):
            start = f"{program} * {dim.constant}" if dim.block and program else program
            self.dims.positions(dim, start, self.writer)
        if self.tile.shape == "persistent":
            for dim in self.dims.inner.values():
                self.dims.positions(dim, "", self.writer)

    def _two_grid(self, blocked: list[Dim]) -> list[str]:
        """One program number for two dimensions (a grid's second dimension ends at 65535)."""
        minor = blocked[1:]
        counts = [sympy.sympify(d.programs) for d in minor]
        most = counts[0]
        for count in counts[1:]:
            if most.is_Integer and count.is_Integer:
                most = max(most, count)
            else:
                most = sympy.Function("Max")(most, count)
        self.grid = [sympy.Mul(blocked[0].programs, most)]
        if most == 1:
            return [f"tl.program_id(0){self.dims.cast}"] + [""] * len(minor)
        text = index_text(most)
        self.writer.line(f"program = tl.program_id(0){self.dims.cast}")
        text = text if most.is_Atom else f"({text})"
        return [f"(program // {text})"] + [f"(program % {text})"] * len(minor)

    # ---- bodies -----------------------------------------------------------------------------------------------------
    def bodies(self) -> None:
        """All bodies of the form, in loops where the tile says so."""
        if self.tile.shape != "looped":
            for body in self.form.bodies:
                self.comment(body)
                self.straight(body)
            return
        found = phases(self.form)
        rows = [self._rows_read(bodies) if space else set() for space, bodies in found]
        for number, (space, bodies) in enumerate(found):
            before, later = (set().union(*part) for part in (rows[:number], rows[number + 1 :]))
            self.emitter.policies = {name: "evict_last" if name in later else "evict_first"
                                     for name in rows[number] & (before | later)}
            for body in bodies:
                self.comment(body)
            if space is None:
                for body in bodies:
                    self.straight(body)
            else:
                accumulators = self.loop(space, bodies, "0", index_text(space.numel))
                self.finish(accumulators)
                self.after(bodies)

    def _rows_read(self, bodies: list[TileBody]) -> set[str]:
        """The buffers of which a loop reads each row's own elements."""
        outer = {a.symbol for a in self.form.axes}
        return {s.buffer for b in bodies for s in b.statements
                if s.op == "load" and s.name in b.inner and s.index is not None and s.index.free_symbols & outer}

    def comment(self, body: TileBody) -> None:
        """A comment that names the next body, as in the loop IR."""
        axes = ", ".join(f"{a.symbol}: {a.extent}" for a in body.source.axes)
        reduced = ", ".join(f"{a.symbol}: {a.extent}" for a in body.source.reduction_axes)
        text = f"# {body.name}[{axes}]" + (f" reduce [{reduced}]" if reduced else "")
        self.writer.line(text, (ref("loop_ir", body.name, body.name),))

    def straight(self, body: TileBody) -> None:
        """All statements of `body`, one after the other: its row, if it has one, is a tile."""
        for s in body.statements:
            if s.op == "store":
                self.emitter.store(body, s)
            elif s.op == "reduce":
                self._reduce_tile(body, s)
            else:
                self.emitter.value(body, s.name)

    def after(self, bodies: list[TileBody]) -> None:
        """The statements that needed a reduction's result."""
        for body in bodies:
            for s in body.statements:
                if s.name in body.after and s.op == "store":
                    self.emitter.store(body, s)
                elif s.name in body.after and s.op != "reduce":
                    self.emitter.value(body, s.name)

    # ---- loops ------------------------------------------------------------------------------------------------------
    def loop(self, space: Space, bodies: list[TileBody], start: str, stop: str) -> list[Accumulators]:
        """A loop over `space` from `start` to `stop` that runs the inner statements of `bodies`."""
        dim = self.dims.inner[space.name]
        self.emitter.loop = Scope(SourceWriter(2), self.emitter.outer)
        inside = self.emitter.loop.writer
        begun: list[Accumulators] = []
        offset = f"{space.name}_offset"
        self.dims.positions(dim, offset, inside, stop=stop if dim.mask else "")
        for body in bodies:
            for s in body.statements:
                if s.op == "reduce":
                    begun.append(self._begin(body, s, stop if start == "0" else f"{stop} - {start}"))
                    self._take(begun[-1])
                elif s.name in body.after:
                    continue
                elif s.op == "store":
                    self.emitter.store(body, s)
                else:
                    self.emitter.value(body, s.name)
        self.emitter.loop = None
        self.writer.line(f"for {offset} in range({start}, {stop}, {dim.constant}):")
        self.writer.lines += inside.lines
        return begun

    def _tile_names(self, space: Space) -> list[str]:
        return [*(d.name for d in self.dims.outer), space.name]

    def _begin(self, body: TileBody, s: Statement, length: str) -> Accumulators:
        kind = self.kind(body, s)
        base = body.wanted_name(s)
        names = []
        for number, (suffix, dtype, start) in enumerate(kind.parts, 1):
            names.append(self.namer.fresh(f"{base}{suffix}_tile"))
            counts = kind.counts and number == len(kind.parts)
            shape = "[]" if counts else self.dims.shape(self._tile_names(self._space(body)))
            text = f"tl.full({shape}, {literal(start, dtype)}, {value_type(dtype)})"
            self.writer.line(f"{names[-1]} = {text}", origins_of(body, s))
        return Accumulators(body, s, kind, names, length)

    def _take(self, acc: Accumulators) -> None:
        body, s = acc.body, acc.statement
        value, at = self._operand(body, s, acc.kind)
        new = acc.kind.take(acc.names, value, at)
        assert self.emitter.loop is not None
        self.emitter.loop.writer.line(f"{', '.join(acc.names)} = {', '.join(new)}", origins_of(body, s))

    def finish(self, accumulators: list[Accumulators]) -> None:
        """Reduce the accumulators' tiles to one value for each row."""
        for acc in accumulators:
            self.reduce(acc, self.whole(acc))

    def reduce(self, acc: Accumulators, tiles: list[str]) -> None:
        """Reduce whole tiles of a reduction's parts to one value for each row."""
        self._finish(acc.body, acc.statement, acc.kind, tiles)

    def whole(self, acc: Accumulators) -> list[str]:
        """The accumulators, all of them with the shape of the tile: a count, as many values as each lane has had."""
        if not acc.kind.counts:
            return acc.names
        space = self._space(acc.body)
        dim, count = self.dims.inner[space.name], acc.names[-1]
        if dim.mask:
            lanes = f"{acc.length} - tl.arange(0, {dim.constant}){dim.slot} + ({dim.constant} - 1)"
            count = f"tl.maximum(({lanes}) // {dim.constant}, 0).to({value_type(acc.kind.parts[-1][1])})"
        return [*acc.names[:-1], f"tl.broadcast_to({count}, {self.dims.shape(self._tile_names(space))})"]

    # ---- reductions -------------------------------------------------------------------------------------------------
    def _reduce_tile(self, body: TileBody, s: Statement) -> None:
        """A reduction whose row is one tile."""
        if s.mode == "welford":
            self._two_pass(body, s)
            return
        kind = self.kind(body, s)
        value, at = self._operand(body, s, kind)
        operands = [value, at] if len(kind.parts) == 2 else [value]
        self._finish(body, s, kind, operands)

    def _two_pass(self, body: TileBody, s: Statement) -> None:
        """Mean and squared deviations of a row in registers: two passes are exact, and cheaper than Welford's."""
        space, scope, origins = self._space(body), self.emitter.outer, origins_of(body, s)
        kind = self.kind(body, s)
        base = body.wanted_name(s)
        value, _ = self._operand(body, s, kind)
        dims = frozenset(d.name for d in self.dims.outer)
        count_text = f"tl.full([], {index_text(space.numel)}, {value_type(s.dtype)})"
        if not sympy.sympify(space.numel).is_Integer:
            count_text = f"({index_text(space.numel)}).to({value_type(s.dtype)})"
        count = self.emitter.assign(scope, f"{base}_count", count_text, s.dtype, ())
        axis, keep = self._axis()
        mean = self.emitter.assign(scope, f"{base}_mean", f"tl.sum({value}, {axis}){keep} / {count.text}", s.dtype,
                                   dims, origins)
        deviation = f"{value} - {mean.text}"
        mask = self.dims.inner[space.name].mask
        deviation = f"tl.where({mask}, {deviation}, 0.0)" if mask else deviation
        delta = self.emitter.assign(scope, f"{base}_deviation", deviation, s.dtype, {*dims, space.name}, origins)
        m2 = self.emitter.assign(scope, f"{base}_m2", f"tl.sum({delta.text} * {delta.text}, {axis}){keep}", s.dtype,
                                 dims, origins)
        self.emitter.results[body.key, s.name] = (mean, m2, count)

    def _operand(self, body: TileBody, s: Statement, kind: Reduction) -> tuple[str, str]:
        """(value with the shape of the tile, identity in lanes that do not exist; position or count)."""
        space = self._space(body)
        dim = self.dims.inner[space.name]
        mask = dim.mask
        value = self.emitter.value(body, s.args[0])
        text = cast(value.typed, value.dtype, kind.dtype)
        names = self._tile_names(space)
        whole = {d.name for d in self.dims.all if d.block and d.name in names} <= value.dims
        if not whole:
            text = f"tl.broadcast_to({text}, {self.dims.shape(names)})"
        if mask:
            text = f"tl.where({mask}, {text}, {kind.identity})"
        scope = self.emitter.loop or self.emitter.outer
        if text != value.text:
            text = self.emitter.assign(scope, f"{s.args[0]}_row", text, kind.dtype, names, origins_of(body, s)).text
        return text, self._position(s, kind, dim, mask, names)

    def _position(self, s: Statement, kind: Reduction, dim: Dim, mask: str, names: list[str]) -> str:
        if s.mode == "welford":
            return f"tl.where({mask}, 1.0, 0.0).to({value_type(s.dtype)})" if mask else "1.0"
        if len(kind.parts) < 2:
            return ""
        at = dim.position if self.index == "int32" else f"{dim.position}.to(tl.int64)"
        return f"tl.broadcast_to({at}, {self.dims.shape(names)})"

    def _finish(self, body: TileBody, s: Statement, kind: Reduction, operands: list[str]) -> None:
        origins = origins_of(body, s)
        base = body.wanted_name(s)
        values = self.combined(body, s, kind, operands)
        if s.mode in ("argmax", "argmin"):
            values = values[-1:]  # the index; the value only selected it
        results = []
        for v in values:
            text = cast(v.text, v.dtype, s.dtype)
            same = text == v.text
            results.append(v if same else self.emitter.assign(self.emitter.outer, base, text, s.dtype, v.dims, origins))
        self.emitter.results[body.key, s.name] = tuple(results)

    def combined(self, body: TileBody, s: Statement, kind: Reduction, operands: list[str]) -> list[Value]:
        """The tiles `operands` reduced along the inner dimension: one value for each part of the reduction."""
        axis, keep = self._axis()
        base, origins = body.wanted_name(s), origins_of(body, s)
        dims = frozenset(d.name for d in self.dims.outer)
        text = kind.finish(operands, axis)
        if len(kind.parts) == 1:
            return [self.emitter.assign(self.emitter.outer, base, text + keep, kind.dtype, dims, origins)]
        names = [self.namer.fresh(f"{base}{suffix}") for suffix, _, _ in kind.parts]
        self.writer.line(f"{', '.join(names)} = {text}", origins)
        values = [Value(name, dtype, dims) for name, (_, dtype, _) in zip(names, kind.parts)]
        if not keep:
            return values
        return [
            self.emitter.assign(self.emitter.outer, v.text, f"{v.text}{keep}", v.dtype, dims, origins) for v in values
        ]

    def _axis(self) -> tuple[int, str]:
        return (1, "[:, None]") if self.dims.rank == 2 else (0, "")

    def kind(self, body: TileBody, s: Statement) -> Reduction:
        operand = body.by_name[s.args[0]].dtype
        dtype = s.dtype if s.mode in ("sum", "prod", "welford", *DOTS) else operand
        return reduction(s.mode, dtype, torch.int32 if self.index == "int32" else torch.int64)

    def _space(self, body: TileBody) -> Space:
        assert body.space is not None, "a body that reduces has inner loops"
        return body.space

    # ---- the whole --------------------------------------------------------------------------------------------------
    def launch(self, symbols: tuple[sympy.Symbol, ...]) -> Launch:
        """The kernel's lines and everything that a launch needs."""
        pointers = tuple(self.emitter.used) + tuple(self.workspace_types)
        types = tuple(pointer_type(self.form.buffers[b].dtype) for b in self.emitter.used)
        types += tuple(self.workspace_types.values())
        constants = {d.constant: d.block for d in self.dims.all if d.block}
        parameters = [pointer_name(p) for p in pointers] + [s.name for s in symbols]
        parameters += [f"{name}: tl.constexpr" for name in constants]
        parameters += ["INDEX: tl.constexpr"] if self.index == "dynamic" else []
        origins = tuple(ref("loop_ir", b.name, b.name) for b in self.form.bodies)
        head = [CodeLine("@triton.jit", origins), CodeLine(f"def {self.name}({', '.join(parameters)}):", origins)]
        lines = self.writer.lines or [CodeLine("    pass")]
        grid = tuple(sympy.sympify(g) for g in self.grid)
        return Launch(self.name, pointers, types, symbols, constants, grid, self.tile.warps, self.index,
                      (*head, *lines), self.tile.name, self.tile.stages)


def phases(form: Form) -> list[tuple[Space | None, list[TileBody]]]:
    """Bodies by the loop they run in: neighbours with one space share it, unless one depends on another's result."""
    found: list[tuple[Space | None, list[TileBody]]] = []
    waiting: set[str] = set()  # buffers that are complete only when the current loop ends
    misaligned = {(body.key, buffer) for body, buffer in form.misaligned}
    for body in form.bodies:
        reads = {s.buffer for s in body.statements if s.op == "load"}
        written = {s.buffer for b in (found[-1][1] if found else []) for s in b.statements if s.op == "store"}
        crossing = any((body.key, buffer) in misaligned for buffer in reads & written)
        if found and found[-1][0] == body.space and not reads & waiting and not crossing:
            found[-1][1].append(body)
        else:
            found.append((body.space, [body]))
            waiting = set()
        waiting |= {s.buffer for s in body.statements if s.op == "store" and s.name in body.after}
    return found
