"""Column sums computed row by row, where other loops run over the same rows.

The backward of a normalization reduces over rows and over columns, and computes a gradient for each element. Loops over
rows do the first and the last in one pass; loops over columns would be another pass, with strided reads. So the column
sum is split in three bodies: zeros in float64; a loop over all elements that accumulates each into its column, and is
fused with the other loops (each chunk of rows has accumulators of its own); and the rounding to the result's dtype.
This is not done where the other loops depend on a reduction over columns, as in a softmax over them.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import sympy
import torch

from ...artifacts.context import CompileContext
from ..ir.affine import axis_symbol
from ..ir.body_affine import coefficient, index_forms, static
from ..ir.ir import Axis, Buffer, ExternCall, LoopBody, Program, Statement
from .steps import views_in

FEWEST_ROWS, FEWEST_ELEMENTS = 64, 1 << 15
WIDEST = 8192  # columns: the accumulators of a chunk of rows stay in L2
SUMS = "_sums"


def with_added_columns(program: Program, context: CompileContext) -> Program:
    """`program` with column sums split in three where other loops run over the same rows (a decision for each)."""
    sums = _with_company(program)
    if not sums:
        return program
    steps: list[LoopBody | ExternCall] = []
    buffers = dict(program.buffers)
    for step in program.steps:
        if isinstance(step, LoopBody) and id(step) in sums:
            why = "other loops run over the same rows: one pass computes both"
            options = ("by-rows", "by-columns")
            if context.decide("column-sum", step.name, options, options[0], why) == options[0]:
                steps += _split(step, sums[id(step)], buffers)
                continue
        steps.append(step)
    return replace(program, steps=tuple(steps), buffers=buffers)


@dataclass
class _Steps:
    """Accesses of all steps, computed once: by position, and for each buffer the bodies that touch it."""

    program: Program

    def __post_init__(self) -> None:
        self.bodies = [(at, s) for at, s in enumerate(self.program.steps) if isinstance(s, LoopBody)]
        self.touched = [_touched(step) for step in self.program.steps]
        self.elements = {at: _elements((*b.axes, *b.reduction_axes)) for at, b in self.bodies}
        self.users: dict[str, list[int]] = {}
        for at, _ in self.bodies:
            for name in dict.fromkeys((*self.touched[at][0], *self.touched[at][1])):
                self.users.setdefault(name, []).append(at)

    def beside(self, at: int, body: LoopBody) -> set[int]:
        """The other bodies that iterate over as many elements, and share buffers with what `body` reads."""
        rows = [a.symbol for a in body.reduction_axes]
        wide = {s.buffer for s in body.statements if s.op == "load" and s.index is not None
                and not s.index.free_symbols.isdisjoint(rows) and body.axes[-1].symbol in s.index.free_symbols}
        return {i for name in wide for i in self.users[name] if i != at and self.elements[i] == self.elements[at]}

    def awaited(self, at: int, others: set[int]) -> bool:
        """True when one of `others` depends, directly or not, on the step at `at`."""
        reached = set(self.touched[at][1])
        for i in range(at + 1, max(others) + 1):
            reads, writes = self.touched[i]
            if not reached.isdisjoint(reads):
                if i in others:
                    return True
                reached.update(writes)
        return False


def _touched(step: LoopBody | ExternCall) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(names read, names written) of a step."""
    if isinstance(step, LoopBody):
        return step.reads, step.writes
    reads = tuple([v.buffer for v in views_in((step.args, dict(step.kwargs)))])
    return reads, (*[name for name in step.outputs if name], *step.mutates)


def _with_company(program: Program) -> dict[int, Statement]:
    """The sums to split, by the id of their body: other loops run over the same rows, and none waits for the sum."""
    bodies = [s for s in program.steps if isinstance(s, LoopBody) and s.reduction_axes]
    sums = {id(b): found for b in bodies if (found := _column_sum(b, program)) is not None}
    if not sums:
        return {}
    steps = _Steps(program)
    passes = {at for at, b in steps.bodies if id(b) not in sums and _by_rows(b)}
    stay = {at for at, b in steps.bodies if id(b) not in sums and b.reduction_axes and at not in passes}
    split: list[tuple[int, LoopBody]] = []
    for at, body in steps.bodies:
        company = steps.beside(at, body) & passes if id(body) in sums else set()
        if company and steps.awaited(at, company):
            stay.add(at)
        elif company:
            split.append((at, body))
    return {id(body): sums[id(body)] for at, body in split if not steps.beside(at, body) & stay}


def _column_sum(body: LoopBody, program: Program) -> Statement | None:
    """The reduction of a body that only sums rows in memory order; else None."""
    reductions = [s for s in body.statements if s.op == "reduce"]
    stores = [s for s in body.statements if s.op == "store"]
    if len(reductions) != 1 or len(stores) != 1 or not body.axes or any(s.op == "indirect" for s in body.statements):
        return None
    sum_, kept = reductions[0], _elements(body.axes)
    if sum_.mode != "sum" or sum_.dtype is not torch.float32 or stores[0].mode or kept is None or kept > WIDEST:
        return None
    rows = _elements(body.reduction_axes)
    if rows is None or rows < FEWEST_ROWS or rows * kept < FEWEST_ELEMENTS:
        return None
    if program.buffers[stores[0].buffer].device.type != "cpu":
        return None
    return sum_ if _row_major(body, kept) else None


def _row_major(body: LoopBody, kept: int) -> bool:
    """True when everything is read row-major: the summed axes have larger strides than a whole row."""
    along = False
    for position, form in index_forms(body).items():
        s = body.statements[position]
        if form is None or s.op == "store":
            if form is None:
                return False
            continue
        lane = coefficient(form, body.axes[-1].symbol)
        steps = [coefficient(form, a.symbol) for a in body.reduction_axes]
        if lane not in (0, 1) or any(type(n) is not int or 0 < n < kept for n in steps if lane):
            return False
        along |= lane == 1 and any(steps)
    return along


def _by_rows(body: LoopBody) -> bool:
    """True for a pointwise body, or one that reduces contiguous elements."""
    if any(s.op == "indirect" or (s.op == "store" and s.mode) for s in body.statements):
        return False
    if not body.reduction_axes:
        return len(body.axes) > 0
    last = body.reduction_axes[-1].symbol
    forms = [f for position, f in index_forms(body).items() if body.statements[position].op == "load"]
    return any(f is not None and coefficient(f, last) == 1 for f in forms)


def _split(body: LoopBody, reduction: Statement, buffers: dict[str, Buffer]) -> list[LoopBody]:
    """Zeros, the loop over all elements, and the rounding."""
    name = f"{body.name}{SUMS}"
    while name in buffers:
        name += "_"
    device = buffers[body.writes[0]].device
    kept = _elements(body.axes)
    buffers[name] = Buffer(name, torch.float64, device, (sympy.Integer(kept),), (sympy.S.One,))
    place: sympy.Expr = sympy.S.Zero
    for a in body.axes:
        place = sympy.expand(place * a.extent + a.symbol)
    exact = replace(reduction, name=f"{reduction.name}_exact", op="cast", mode="", dtype=torch.float64)
    add = Statement("", "store", (exact.name,), torch.float64, name, place, mode="add", origins=reduction.origins)
    added = LoopBody(name, (*body.reduction_axes, *body.axes), (),
                     (*_needed(body.statements, reduction.args), exact, add))
    load = Statement(f"{reduction.name}_sum", "load", (), torch.float64, name, place, origins=reduction.origins)
    near = replace(reduction, op="cast", mode="", args=(load.name,))
    store = next(s for s in body.statements if s.op == "store")
    after = [load, *[near if s is reduction else s for s in body.statements]]
    rounded = LoopBody(body.name, body.axes, (), (*_needed(after, (*store.args, store.mask)), store))
    loop = Axis(axis_symbol("i0"), sympy.Integer(kept))
    zeros = LoopBody(name, (loop,), (), (
        Statement("t0", "constant", (), torch.float64, value=0.0, origins=reduction.origins),
        Statement("", "store", ("t0",), torch.float64, name, loop.symbol, origins=reduction.origins),
    ))
    return [zeros, added, rounded]


def _needed(statements: Sequence[Statement], names: Iterable[str]) -> tuple[Statement, ...]:
    """Those of `statements` that the values `names` depend on, in order."""
    wanted = set(names)
    for s in reversed(statements):
        if s.name and s.name in wanted:
            wanted.update((*s.args, s.mask))
    return tuple([s for s in statements if s.name and s.name in wanted])


def _elements(axes: Sequence[Axis]) -> int | None:
    return static(sympy.Mul(*[a.extent for a in axes]))
