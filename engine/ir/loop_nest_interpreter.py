"""Runs loop nests as they are scheduled: the order of the loops, blocks, pieces and accumulators is that of the kernel.

Loops run one by one, and vectors as tensor operations over the range of their axis. What changes no value (threads,
prefetches, where a tile or a block of results is kept) is passed over; threads run one after the other. So a schedule
that computes the wrong thing shows without a compiler.
"""
from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import sympy
import torch

from .affine import Linear, expr
from .body_affine import form_of
from .interpreter import Points, evaluate, flattened, integer, run_steps, scanned
from .ir import Axis, Foreach, Group, Plan, Statement
from .loop_nest import (
    COUNT,
    FIRST,
    VECTOR,
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
    Node,
    Nodes,
    Owners,
    OwnIteration,
    Parallel,
    Part,
    Piece,
    PrefetchGathered,
    PrefetchNext,
    Privatized,
    Reduction,
    RunningScan,
    ScanBlocks,
    Streamed,
    SumBlocks,
    TileBlocks,
    TileRows,
    Widened,
    WidenRow,
)
from .reduction_states import State, joined, started
from .tiles import Tile

THREADS = 3  # that share a scatter



def run_nests(plan: Plan, nests: Mapping[str, LoopNest], inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Run a scheduled program: each group as its loop nest says."""

    def run_group(group: Group, memory: dict[str, torch.Tensor], symbols: Mapping[sympy.Symbol, Any]) -> None:
        if not isinstance(group, Foreach):
            run_nest(nests[group.kernel], memory, symbols)
            return
        for member in group.members:
            own = {name: memory[there] for name, there in zip(group.template.parameters, member.arguments)}
            sizes = dict(zip(group.template.sizes, member.sizes))
            rows = integer(member.group.axes[0].extent, symbols) if member.group.axes else 1
            run_nest(nests[group.kernel], own, {**symbols, **sizes, FIRST: 0, COUNT: rows})

    return run_steps(plan.program, plan.items, inputs, run_group)


def run_nest(nest: LoopNest, memory: Mapping[str, torch.Tensor], symbols: Mapping[sympy.Symbol, Any]) -> None:
    """Run one kernel on the memory of its buffers."""
    _Run(nest, memory, symbols).nodes(nest.body)


class _NextIteration(Exception):
    """`continue`."""


class _PartPoints(Points):
    """The values of one body's statements; what is missing is computed when it is asked for."""

    def __init__(self, run: _Run, part: Part) -> None:
        super().__init__(run.memory, torch.device("cpu"), ChainMap({}, run.environment), [])
        self.run, self.statements = run, {s.name: s for s in part.body.statements if s.name}
        self.values = _Values(self)

    def _load(self, s: Statement) -> torch.Tensor:
        return self.run.load(self, s)

    def _place(self, index: sympy.Expr | None) -> torch.Tensor:
        for symbol in index.free_symbols if index is not None else ():
            if symbol.name in self.statements and symbol not in self.environment:
                self.values[symbol.name]
        if index is not None and self.run.places:
            index = index.xreplace(self.run.places)
        return super()._place(index)

    def read(self, s: Statement) -> torch.Tensor:
        """A load from memory."""
        return super()._load(s)


class _Values(dict[str, torch.Tensor]):
    """Values by name."""

    def __init__(self, points: _PartPoints) -> None:
        super().__init__()
        self.points = points

    def __missing__(self, name: str) -> torch.Tensor:
        self[name] = value = self.points.value(self.points.statements[name])
        return value


class _Run:
    """One run of a nest."""

    def __init__(
        self, nest: LoopNest, memory: Mapping[str, torch.Tensor], symbols: Mapping[sympy.Symbol, Any]
    ) -> None:
        self.nest, self.memory, self.environment = nest, dict(memory), dict(symbols)
        self.places: Mapping[sympy.Basic, sympy.Expr] = {}
        self.spans: dict[sympy.Symbol, tuple[int, int]] = {}
        self.points: dict[int, _PartPoints] = {}
        self.known: set[tuple[int, str]] = set()  # values that a node has given
        self.registers: dict[str, tuple[sympy.Expr | None, torch.Tensor]] = {}  # of buffers that never reach memory
        self.scratch: dict[str, torch.Tensor] = {}
        self.states: dict[Reduction, State] = {}
        self.so_far: dict[RunningScan, torch.Tensor] = {}
        self.partial: tuple[Reduction, ...] = ()
        self.vector: int | None = None  # how many points are taken at once
        self.side_by_side = False  # whether each of these has an accumulator
        self.lane: Axis | None = None
        self.width = 0
        self.owned = 0, 0
        self.band: Band | None = None

    def nodes(self, nodes: Nodes) -> None:
        for node in nodes:
            RULES[type(node)](self, node)

    # ---- loops -------------------------------------------------------------------------------------------------------
    def size(self, extent: sympy.Expr) -> int:
        return integer(extent, self.environment)

    def span(self, axis: Axis) -> tuple[int, int]:
        """The current range of an axis."""
        return self.spans.get(axis.symbol) or (0, self.size(axis.extent))

    @contextmanager
    def within(self, axis: Axis, first: int, last: int) -> Iterator[None]:
        before = self.spans
        self.spans = {**before, axis.symbol: (first, last)}
        yield
        self.spans = before

    @contextmanager
    def at(self, axis: Axis, place: Any, vector: int | None = None) -> Iterator[None]:
        """Around one point of a loop (or, all at once, those of a `vector`): what is computed there is gone after."""
        values = {key: (dict(points.values), dict(points.environment.maps[0]))  # type: ignore[attr-defined]
                  for key, points in self.points.items()}
        known, registers, before, was = self.known, self.registers, self.environment.get(axis.symbol), self.vector
        self.known, self.registers = set(known), dict(registers)
        self.environment[axis.symbol] = place
        self.vector = was if vector is None else vector
        try:
            yield
        finally:
            self.known, self.registers, self.vector = known, registers, was
            self.environment[axis.symbol] = before
            for key, points in self.points.items():
                old, names = values.get(key, ({}, {}))
                points.values.clear()
                points.values.update(old)
                points.environment.maps[0].clear()  # type: ignore[attr-defined]
                points.environment.maps[0].update(names)  # type: ignore[attr-defined]

    def loop(self, node: Loop) -> None:
        first, last = self.span(node.axis)
        if node.kind == VECTOR:
            self.at_once(node.axis, first, last, node.body)
            return
        for place in range(first, last):
            with self.at(node.axis, place):
                try:
                    self.nodes(node.body)
                except _NextIteration:
                    pass

    def at_once(self, axis: Axis, first: int, last: int, body: Nodes) -> None:
        """The points of a vector."""
        if first < last:
            with self.at(axis, torch.arange(first, last), last - first):
                self.nodes(body)

    def in_blocks(self, axis: Axis, size: int, body: Nodes) -> None:
        first, last = self.span(axis)
        for start in range(first, last, size):
            with self.within(axis, start, min(start + size, last)):
                self.nodes(body)

    def piece(self, node: Piece) -> None:
        values, known = {k: dict(p.values) for k, p in self.points.items()}, self.known
        self.known, self.places = set(known), node.places
        for found in node.known:
            points = self.of(found.part)
            for name, value in found.values.items():
                points.values[name] = torch.tensor(value) if isinstance(value, bool) else points.values[value]
                self.known.add((found.part.key, name))
        with self.within(node.axis, node.first, node.last):
            self.nodes(node.body)
        self.known, self.places = known, {}
        for key, points in self.points.items():
            points.values.clear()
            points.values.update(values.get(key, {}))

    def lanes(self, node: Lanes) -> None:
        before = self.lane, self.width
        self.lane, self.width = node.axis, node.width
        self.in_blocks(node.axis, node.width, node.body)
        self.lane, self.width = before

    def jammed(self, node: JammedRows) -> None:
        first, last = self.span(node.axis)
        whole = first + (last - first) // node.rows * node.rows
        (start, stop) = self.span(node.lane)
        for at in range(first, whole, node.rows):
            with self.at(node.lane, torch.arange(start, stop), stop - start):
                for row in range(at, at + node.rows):
                    with self.at(node.axis, row):
                        self.nodes(node.body)
        with self.within(node.axis, whole, last):
            self.nodes(node.rest)

    def tile_blocks(self, node: TileBlocks) -> None:
        tile, body = node.tile, node.body
        if isinstance(tile, Tile):
            body = (Blocks(tile.column, tile.columns, body),)
        self.in_blocks(tile.row, tile.rows, body)

    def tile_rows(self, node: TileRows) -> None:
        self.loop(Loop(node.tile.row, node.body))

    def owners(self, node: Owners) -> None:
        assert node.index.bound is not None
        bound = self.size(node.index.bound)
        for thread in range(THREADS):
            self.owned = thread * bound // THREADS, (thread + 1) * bound // THREADS
            self.nodes(node.body)

    def own_iteration(self, node: OwnIteration) -> None:
        first, last = self.owned
        place = int(self.of(node.part).values[node.name])
        if not first <= place < last:
            raise _NextIteration

    def privatized(self, node: Privatized) -> None:
        extent, results = self.size(node.axis.extent), {name: self.memory[name] for name, _, _ in node.sums}
        copies = []
        for chunk in range(node.count):
            copies.append({name: torch.zeros_like(whole) for name, whole in results.items()})
            self.memory.update(copies[-1])
            self.points = {}
            with self.within(node.axis, chunk * extent // node.count, (chunk + 1) * extent // node.count):
                self.nodes(node.body)
        self.memory.update(results)
        for copy in copies:
            for name, whole in results.items():
                whole += copy[name]

    # ---- statements --------------------------------------------------------------------------------------------------
    def of(self, part: Part) -> _PartPoints:
        if part.key not in self.points:
            self.points[part.key] = _PartPoints(self, part)
        return self.points[part.key]

    def compute(self, node: Compute) -> None:
        points = self.of(node.part)
        for s in node.statements:
            if s.op not in ("store", "reduce") and (node.part.key, s.name) in self.known:
                continue
            if s.op == "store":
                self.store(points, s)
            elif s.op == "reduce":
                self.update(node.part, s)
            elif s.op == "scan":
                self.advance(node.part, s)
            else:
                points.values[s.name] = points.value(s)

    def load(self, points: _PartPoints, s: Statement) -> torch.Tensor:
        if s.buffer in self.registers:
            index, value = self.registers[s.buffer]
            assert index == s.index, f"{s.buffer} is not in a register here"
            return value
        if s.buffer in self.scratch:
            return self.scratch[s.buffer][self.scratch_place(s)].to(s.dtype)
        return points.read(s)

    def store(self, points: _PartPoints, s: Statement) -> None:
        value = points.values[s.args[0]]
        if s.buffer in self.nest.local and s.buffer not in self.nest.arrays:
            self.registers[s.buffer] = s.index, value
            return
        inside = s.buffer in self.nest.arrays
        place = self.scratch_place(s) if inside else points._place(s.index)
        flat = self.scratch[s.buffer] if inside else flattened(self.memory[s.buffer])
        place, value = torch.broadcast_tensors(place, value)
        flat.index_put_((place,), value, accumulate=s.mode == "add")

    def scratch_place(self, s: Statement) -> torch.Tensor:
        """Where an element is in an array of the kernel."""
        assert self.band is not None
        form: Linear = form_of(s.index, self.nest.group.axes, (*self.band.around, *self.band.loops))
        strides, place = self.nest.arrays[s.buffer].strides, torch.tensor(0)
        for atom, factor in form.terms.items():
            if atom.name not in self.nest.outer:
                assert atom.inner is None
                symbol = next(x for x in expr(Linear({atom: 1}, 0).expr).free_symbols if x.name == atom.name)
                place = place + strides[factor] * torch.as_tensor(evaluate(symbol, self.environment))
        if self.nest.lane is not None:
            lane = self.environment[self.nest.lane.symbol]
            place = self.width * place + lane - self.span(self.nest.lane)[0]
        return place

    # ---- reductions --------------------------------------------------------------------------------------------------
    def run_band(self, node: Band) -> None:
        self.band = node
        self.nodes(node.body)
        self.band = None

    def started(self, r: Reduction, count: int | None = None) -> State:
        """The start of a reduction, of one accumulator, or of `count`; along lanes, of one for each."""
        if count is None and self.lane is not None:
            first, last = self.span(self.lane)
            count = last - first
        return started(r, count, r in self.partial)

    def accumulate(self, node: Accumulate) -> None:
        for r in node.reductions:
            self.states[r] = self.started(r)
        for scan in node.scans:
            self.so_far[scan] = torch.empty((*self.started_shape(), 0), dtype=scan.operand)
        self.nodes(node.body)
        for r in node.reductions:
            self.give(r.part, r.statement, self.states[r])
        for part, s, r in node.positions:
            value = self.states[r][0]
            self.of(part).values[s.name] = value.to(s.dtype)
            self.known.add((part.key, s.name))

    def started_shape(self) -> tuple[int, ...]:
        if self.lane is None:
            return ()
        first, last = self.span(self.lane)
        return (last - first,)

    def give(self, part: Part, s: Statement, state: State) -> None:
        """The result of a reduction."""
        value = state[1] if s.mode.startswith("arg") else state[0]
        self.of(part).values[s.name] = value.to(s.dtype)
        self.known.add((part.key, s.name))

    def update(self, part: Part, s: Statement) -> None:
        r = next(r for r in self.states if r.part is part and r.statement is s)
        value, place = self.of(part).values[s.args[0]], torch.tensor(0)
        assert self.band is not None
        for a in self.band.loops:
            place = place * self.size(a.extent) + torch.as_tensor(self.environment[a.symbol])
        state = self.states[r]
        if self.vector is not None:
            value, place = value.expand(self.vector), place.expand(self.vector)
        taken = value.to(state[0].dtype), place
        if self.vector is not None and self.lane is None and not self.side_by_side:
            for k in range(self.vector):
                state = joined(r, state, (taken[0][k], taken[1][k]))
            self.states[r] = state
            return
        count = len(taken[0]) if taken[0].dim() else None
        if count is None or count == len(state[0]):
            self.states[r] = joined(r, state, taken)
            return
        some = joined(r, (state[0][:count], state[1][:count]), taken)
        self.states[r] = torch.cat([some[0], state[0][count:]]), torch.cat([some[1], state[1][count:]])

    def sum_blocks(self, node: SumBlocks) -> None:
        totals = {r: self.states[r] for r in node.reductions}
        first, last = self.span(node.axis)
        self.partial = node.reductions
        for start in range(first, last, node.size) if not node.one else (first,):
            for r in node.reductions:
                self.states[r] = self.started(r)
            with self.within(node.axis, start, last if node.one else min(start + node.size, last)):
                self.nodes(node.body)
            for r in node.reductions:
                totals[r] = totals[r][0] + self.states[r][0], totals[r][1]
        self.partial = ()
        self.states.update(totals)

    def chunks(self, node: Chunks) -> None:
        extent, totals = self.size(node.axis.extent), {r: self.states[r] for r in node.reductions}
        cut = node.aligned or 1
        ends = [chunk * extent // node.count // cut * cut for chunk in range(node.count)] + [extent]
        for first, last in pairwise(ends):
            for r in node.reductions:
                self.states[r] = self.started(r)
            with self.within(node.axis, first, last):
                self.nodes(node.body)
            for r in node.reductions:
                totals[r] = joined(r, totals[r], self.states[r])
        self.states.update(totals)

    def interleave(self, node: Interleave) -> None:
        totals = {r: self.states[r] for r in node.reductions}
        for r in node.reductions:
            self.states[r] = self.started(r, node.count)
        self.nodes(node.body)
        for r in node.reductions:
            values, places = self.states[r]
            while len(values) > 1:  # one half onto the other
                half, count = len(values) // 2, len(values) - len(values) // 2
                some = joined(r, (values[:half], places[:half]), (values[count:], places[count:]))
                values, places = (torch.cat([x, y[half:count]]) for x, y in zip(some, (values, places)))
            totals[r] = joined(r, totals[r], (values[0], places[0]))
        self.states.update(totals)

    def interleaved_loop(self, node: InterleavedLoop) -> None:
        first, last = self.span(node.axis)
        self.side_by_side = True
        end = last if node.rest else first + (last - first) // node.count * node.count
        for start in range(first, end, node.count):
            self.at_once(node.axis, start, min(start + node.count, last), node.body)
        self.side_by_side = False

    # ---- scans -------------------------------------------------------------------------------------------------------
    def advance(self, part: Part, s: Statement) -> None:
        scan = next(x for x in self.so_far if x.part is part and x.statement is s)
        value = self.of(part).values[s.args[0]].to(scan.operand)
        rows = torch.cat([self.so_far[scan], value.expand(self.so_far[scan].shape[:-1]).unsqueeze(-1)], -1)
        self.so_far[scan] = rows
        self.of(part).values[s.name] = scanned(s.mode, rows, s.dtype)[..., -1]

    def scan_blocks(self, node: ScanBlocks) -> None:
        part, s = node.scan.part, node.scan.statement
        first, last = self.span(node.axis)
        for start in range(first, last, node.size):
            stop = min(start + node.size, last)
            with self.at(node.axis, torch.arange(start, stop), stop - start):
                values = self.of(part).values[s.args[0]].to(node.scan.operand).expand(stop - start)
                rows = torch.cat([self.so_far[node.scan], values])
                self.so_far[node.scan] = rows
                self.of(part).values[s.name] = scanned(s.mode, rows, s.dtype)[len(rows) - (stop - start):]
                self.known.add((part.key, s.name))
                self.nodes(node.body)


def _inside(run: _Run, node: Any) -> None:
    run.nodes(node.body)


def _nothing(run: _Run, node: Node) -> None:
    """It changes no value."""


def _allocate(run: _Run, node: Allocate) -> None:
    run.scratch[node.buffer] = torch.empty(node.elements, dtype=run.nest.local[node.buffer])


RULES: Mapping[type, Callable[[_Run, Any], None]] = {
    Accumulate: _Run.accumulate, Allocate: _allocate, Band: _Run.run_band,
    Blocks: lambda run, node: run.in_blocks(node.axis, node.size, node.body), Chunks: _Run.chunks,
    Compute: _Run.compute, Interleave: _Run.interleave, InterleavedLoop: _Run.interleaved_loop,
    JammedRows: _Run.jammed, Lanes: _Run.lanes, Loop: _Run.loop, MaskedStarts: _nothing, Owners: _Run.owners,
    OwnIteration: _Run.own_iteration, Parallel: _inside, Piece: _Run.piece, PrefetchGathered: _nothing,
    PrefetchNext: _nothing, Privatized: _Run.privatized, ScanBlocks: _Run.scan_blocks, Streamed: _inside,
    SumBlocks: _Run.sum_blocks, TileBlocks: _Run.tile_blocks, TileRows: _Run.tile_rows, Widened: _inside,
    WidenRow: _nothing,
}
