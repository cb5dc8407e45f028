"""Which statement of a fused kernel computes a wrong value: a form of the kernel that also stores its intermediates.

The kernel is generated again with a store for each statement; what it stores is checked statement by statement, each on
the kernel's own operands. A value of which a reduction takes many is stored by a loop of its own before that of the
reduction; the code of everything else stays where it is.
"""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch

from ...artifacts.context import CompileContext
from ...engine.codegen import cpp
from ...engine.codegen.triton import finished, kernels_for_plan
from ...engine.ir import interpreter
from ...engine.ir.interpreter import BodyRun
from ...engine.ir.ir import DOTS, Axis, Buffer, Foreach, Group, LoopBody, Plan, Program, Statement
from ...engine.scheduler import ScheduledPlan
from ...engine.scheduler.cpu import loop_nests
from ...engine.stages import Wrapped
from ...engine.toolchain.cpp_build import Building
from ..verdicts.compare import Comparison, compare, worst_place
from .arena import Arena
from .steps import Memory, copied, run_group, run_steps

UNSEEN = ("store", "constant", "index", "indirect", "bitcast")
OF_OPERANDS = 16
"""Units in the last place of the sum of all magnitudes that a sum may be off."""
MOST = 1 << 26
"""Elements of all intermediates of a kernel; larger ones are not stored."""


@dataclass(frozen=True)
class Wrong:
    """A statement whose value does not follow from its operands; `at` is the worst place, `operands` what is there."""

    kernel: str
    body: str
    statement: Statement
    comparison: Comparison
    at: tuple[int, ...]
    value: Any
    expected: Any
    operands: dict[str, Any]


@dataclass(frozen=True)
class Watched:
    """A group whose kernel also stores its intermediates: (body, statement) -> the buffer that has them."""

    group: Group
    program: Program
    seen: Mapping[tuple[int, str], str]


def wrong_statement(
    work: Wrapped, inputs: tuple[Any, ...], kernels: Sequence[str], context: CompileContext
) -> Wrong | None:
    """The first wrong statement of those kernels, each run on what the loop IR gives it; None where none is found."""
    found: list[Wrong] = []

    def group(step: Group, memory: Memory, symbols: Mapping[sympy.Symbol, Any]) -> None:
        if step.kernel in kernels and not found and not isinstance(step, Foreach):
            wrong = _checked(watched(step, work.plan.program), memory, symbols, context)
            found.extend([wrong] if wrong is not None else [])
        for body in step.bodies:
            interpreter.run_body(body, memory, symbols)

    run_steps(work.aten, work.plan.program, work.plan.items, inputs, group, Arena())
    return found[0] if found else None


# ---- the kernel that also stores its intermediates -------------------------------------------------------------------
def watched(group: Group, program: Program) -> Watched:
    """`group` with a store for each statement."""
    buffers, bodies, seen = dict(program.buffers), [], {}
    for number, body in enumerate(group.bodies):
        inner = _inner(body)
        before: list[Statement] = []
        stores: list[Statement] = []
        for s in body.statements:
            if s.op in UNSEEN or (s.name in inner and inner[s.name] == "after a reduction"):
                continue
            axes = (*body.axes, *body.reduction_axes) if body.scans or s.name in inner else body.axes
            name = f"seen_{number}_{s.name}"
            buffers[name] = _dense(name, s.dtype, group.device, axes)
            seen[number, s.name] = name
            stored = Statement(f"store_{name}", "store", (s.name,), s.dtype, name, _offset(axes), origins=s.origins)
            (before if s.name in inner and not body.scans else stores).append(stored)
        if before:
            needed = [s for s in body.statements if s.op not in ("store", "reduce", "part") and
                      inner.get(s.name) != "after a reduction" and not _needs_reduction(s, body)]
            bodies.append(LoopBody(before[0].buffer, (*body.axes, *body.reduction_axes), (), (*needed, *before)))
        bodies.append(replace(body, statements=(*body.statements, *stores)))
    whole = replace(program, buffers=buffers)
    return Watched(replace(group, bodies=tuple(bodies)), whole, seen)


def _inner(body: LoopBody) -> dict[str, str]:
    """The statements that run once for each point of the reduction axes: "" or "after a reduction", whose result they
    need."""
    symbols = {a.symbol for a in body.reduction_axes}
    names = {s.name for s in symbols}
    found: dict[str, str] = {}
    for s in body.statements:
        free = {symbol.name for e in (s.index,) if e is not None for symbol in e.free_symbols}
        operands = {*s.args, *((s.mask,) if s.mask else ()), *free}
        if s.op in ("reduce", "part") or not operands & (names | found.keys()):
            continue
        after = _needs_reduction(s, body) or any(found.get(o) for o in operands)
        found[s.name] = "after a reduction" if after else ""
    return found


def _needs_reduction(s: Statement, body: LoopBody) -> bool:
    by_name = {other.name: other for other in body.statements}
    stack, met = [s.name], set()
    while stack:
        one = by_name.get(stack.pop())
        if one is None or one.name in met:
            continue
        met.add(one.name)
        if one.op in ("reduce", "part"):
            return True
        stack += [*one.args, one.mask, *(x.name for x in (one.index.free_symbols if one.index is not None else ()))]
    return False


def _strides(axes: Sequence[Axis]) -> list[sympy.Expr]:
    strides, step = [], sympy.S.One
    for axis in reversed(axes):
        strides.append(step)
        step = step * axis.extent
    return strides[::-1]


def _dense(name: str, dtype: torch.dtype, device: torch.device, axes: Sequence[Axis]) -> Buffer:
    return Buffer(name, dtype, device, tuple(a.extent for a in axes), tuple(_strides(axes)))


def _offset(axes: Sequence[Axis]) -> sympy.Expr:
    return sympy.Add(*[a.symbol * stride for a, stride in zip(axes, _strides(axes))])


# ---- running and checking it -----------------------------------------------------------------------------------------
def _checked(
    watch: Watched, memory: Memory, symbols: Mapping[sympy.Symbol, Any], context: CompileContext
) -> Wrong | None:
    plan = Plan(watch.program, (watch.group,))
    buffers = [watch.program.buffers[name] for name in watch.seen.values()]
    if sum(math.prod(interpreter.integer(n, symbols) for n in buffer.size) for buffer in buffers) > MOST:
        return None
    functions, signatures = built(plan, context)
    strided = {k: v for k, v in memory.items() if v is not None and v.layout is torch.strided}
    own = {name: copied(value) for name, value in strided.items()}
    own |= {name: interpreter.allocate(watch.program.buffers[name], symbols) for name in watch.seen.values()}
    run_group(watch.group, functions, signatures, own, symbols)
    before = {name: copied(value) for name, value in strided.items()}
    bodies = [body for body in watch.group.bodies if not body.name.startswith("seen_")]
    for number, body in enumerate(bodies):
        values = {name: own[buffer] for (place, name), buffer in watch.seen.items() if place == number}
        plain = replace(body, statements=tuple(s for s in body.statements if not s.name.startswith("store_seen_")))
        wrong = _Check(plain, before, symbols, values).first(watch.group.kernel)
        if wrong is not None:
            return wrong
    return None


def built(plan: Plan, context: CompileContext) -> tuple[dict[str, Any], dict[str, Any]]:
    """The kernels of a plan compiled, and their signatures, by name."""
    if plan.items[0].device.type != "cpu":  # type: ignore[union-attr]
        made = finished(kernels_for_plan(plan, context), plan, context)
        return {n: k.runner() for n, k in made.items()}, {n: k.signature for n, k in made.items()}
    nests = loop_nests(plan.items, plan.program, context)
    source = cpp.generate(ScheduledPlan(plan.program, plan.items, nests=nests))
    signatures = {s.name: s for s in source.signatures}
    return dict(Building(source.text, list(signatures)).wait().functions), signatures


class _Check:
    """The statements of a body, each on the operands that the kernel had (`given`), in float64 beside it."""

    def __init__(
        self, body: LoopBody, memory: Memory, symbols: Mapping[sympy.Symbol, Any], given: Mapping[str, torch.Tensor]
    ) -> None:
        self.body, self.given = body, given
        self.run = BodyRun(body, memory, symbols)
        self.wide = BodyRun(body, memory, symbols)

    def first(self, kernel: str) -> Wrong | None:
        """The first wrong one; None where all follow."""
        if 0 in self.run.extents[: len(self.body.axes)]:
            return None
        for s in self.body.statements:
            value = self.run.statement(s)
            if s.op == "store" or value is None:
                continue
            exact = self.wide.statement(replace(s, dtype=_double(s.dtype)) if s.op != "load" else s)
            given = self.given.get(s.name)
            if given is not None:
                wrong = self._wrong(kernel, s, given, value, exact)
                if wrong is not None:
                    return wrong
                value = given.reshape(self._shape(given, value))
            self.run.values[s.name] = value
            self.wide.values[s.name] = value.double() if value.is_floating_point() else value
        return None

    def _shape(self, given: torch.Tensor, value: torch.Tensor) -> list[int]:
        outer = len(self.body.axes)
        whole = given.dim() == len(self.run.extents)
        return self.run.extents if whole else [*self.run.extents[:outer], *([1] * len(self.body.reduction_axes))]

    def _cancels(self, s: Statement, given: torch.Tensor, value: torch.Tensor) -> bool:
        """Whether a reduction is off by no more than rounding of what it adds up, which may cancel; its operands were
        stored by another loop, where the compiler may have rounded them otherwise."""
        rows = self.run.values[s.args[0]]
        if s.mode not in ("sum", "welford", "logsumexp", *DOTS) or not rows.is_floating_point():
            return False
        rows = rows.double().abs().expand(self.run.extents)
        outer = len(self.body.axes)
        whole = rows.reshape(*rows.shape[:outer], -1).sum(-1).max().item()
        off = (given.double() - value.double()).abs().max().item()
        coarsest = max(torch.finfo(one.dtype).eps for one in self.body.statements if one.dtype.is_floating_point)
        return off <= OF_OPERANDS * coarsest * whole

    def _wrong(self, kernel: str, s: Statement, given: torch.Tensor, value: Any, exact: Any) -> Wrong | None:
        shape = self._shape(given, value)
        value, exact = (torch.as_tensor(v).expand(shape).contiguous() for v in (value, exact))
        given = given.reshape(shape)
        found = compare(given, value, exact if value.is_floating_point() else None)
        if found.verdict != "different" or (s.op in ("reduce", "scan") and self._cancels(s, given, value)):
            return None
        at = worst_place(given, value)
        operands = {a: _element(self.run.values.get(a), at) for a in s.args if s.op not in ("reduce", "part", "scan")}
        return Wrong(kernel, self.body.name, s, found, at, given[at].item(), value[at].item(), operands)


def _element(value: Any, at: tuple[int, ...]) -> Any:
    if not isinstance(value, torch.Tensor):
        return None
    return value[tuple(0 if n == 1 else i for i, n in zip(at, value.shape))].item()


def _double(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype.is_floating_point else dtype
