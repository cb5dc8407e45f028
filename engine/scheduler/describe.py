"""A scheduled program as records of the stages `fusion` and `schedule`."""
from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import sympy

from ...artifacts.records import AnyRecord, Fusion, Schedule, ScheduledGroup
from ..ir.ir import ExternCall, Foreach, Group, Plan, Program
from ..ir.loop_nest import LoopNest
from .cpu.describe import loop_schedule
from .cpu.foreach import threads_share
from .memory import touched_by


def describe(plan: Plan) -> Iterable[tuple[str, str, AnyRecord]]:
    """(stage, name, record) for each stage that scheduling has."""
    yield "fusion", "", Fusion(getattr(plan, "candidates", ()))
    nests: Mapping[str, LoopNest] = getattr(plan, "nests", None) or {}
    groups = tuple([_group(plan.program, item, nests.get(getattr(item, "kernel", ""))) for item in plan.items])
    yield "schedule", "", Schedule(groups, getattr(plan, "lives", ()), getattr(plan, "peak_bytes", None))


def _group(program: Program, item: Group | ExternCall, nest: LoopNest | None) -> ScheduledGroup:
    reads, writes = (tuple(dict.fromkeys(names)) for names in touched_by(item))
    volume = _total(_bytes(program, reads + writes))
    if isinstance(item, ExternCall):
        origins = tuple([f"forward#{o}" for o in item.origins])
        return ScheduledGroup(
            item.name, "extern", (item.name,), str(item.target), reads=reads, writes=writes, bytes=volume,
            origins=origins,
        )
    members = tuple([b.name for b in item.bodies])
    order = tuple([f"{a.symbol.name}<{a.extent}" for a in item.axes])
    origins = tuple([f"loop_ir:{m}#" for m in members])
    return ScheduledGroup(
        item.kernel, "loops", members, item.kernel, order, tuple([r for r in reads if r not in writes]), writes,
        tuple(sorted(item.internal)), volume, _total(_operations(item)), origins,
        None if nest is None else loop_schedule(nest, isinstance(item, Foreach) and threads_share(item)),
    )


def _bytes(program: Program, names: Iterable[str]) -> Iterator[int | sympy.Expr]:
    for name in dict.fromkeys(names):
        buffer = program.buffers[name]
        yield _product(buffer.dtype.itemsize, buffer.size)


def _operations(group: Group) -> Iterator[int | sympy.Expr]:
    for body in group.bodies:
        arithmetic = sum(s.op not in ("load", "store", "constant", "index", "cast") for s in body.statements)
        yield _product(arithmetic, [a.extent for a in body.axes + body.reduction_axes])


def _product(number: int, sizes: Sequence[sympy.Expr]) -> int | sympy.Expr:
    known = [int(size) for size in sizes if size.is_Integer]
    return number * math.prod(known) if len(known) == len(sizes) else sympy.Mul(number, *sizes)


def _total(parts: Iterable[int | sympy.Expr]) -> int | None:
    known = list(parts)
    return sum(map(int, known)) if all(isinstance(part, int) or part.is_Integer for part in known) else None
