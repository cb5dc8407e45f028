"""A scheduled program as records of the stages `fusion` and `schedule`."""
from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import sympy

from ...artifacts.records import AnyRecord, Fusion, Schedule, ScheduledGroup
from ..ir.ir import ExternCall, Foreach, Group, Plan
from ..ir.loop_nest import LoopNest
from .cpu.describe import loop_schedule
from .cpu.foreach import threads_share
from .memory import touched_by


def describe(plan: Plan) -> Iterable[tuple[str, str, AnyRecord]]:
    """(stage, name, record) for each stage that scheduling has."""
    yield "fusion", "", Fusion(getattr(plan, "candidates", ()))
    nests: Mapping[str, LoopNest] = getattr(plan, "nests", None) or {}
    sizes = {name: _product(buffer.dtype.itemsize, buffer.size) for name, buffer in plan.program.buffers.items()}
    groups = tuple([_group(item, nests.get(getattr(item, "kernel", "")), sizes) for item in plan.items])
    yield "schedule", "", Schedule(groups, getattr(plan, "lives", ()), getattr(plan, "peak_bytes", None))


def _group(
    item: Group | ExternCall, nest: LoopNest | None, sizes: Mapping[str, int | sympy.Expr]
) -> ScheduledGroup:
    """`sizes` are the bytes of each buffer."""
    reads, writes = (tuple(dict.fromkeys(names)) for names in touched_by(item))
    volume = _total([sizes[name] for name in dict.fromkeys(reads + writes)])
    if isinstance(item, ExternCall):
        origins = tuple([f"forward#{o}" for o in item.origins])
        return ScheduledGroup(
            item.name, "extern", (item.name,), str(item.target), reads=reads, writes=writes, bytes=volume,
            origins=origins,
        )
    members = tuple([b.name for b in item.bodies])
    order = tuple([f"{a.symbol.name}<{a.extent.p if a.extent.is_Integer else a.extent}" for a in item.axes])
    origins = tuple([f"loop_ir:{m}#" for m in members])
    return ScheduledGroup(
        item.kernel, "loops", members, item.kernel, order, tuple([r for r in reads if r not in writes]), writes,
        tuple(sorted(item.internal)), volume, _total(_operations(item)), origins,
        None if nest is None else loop_schedule(nest, isinstance(item, Foreach) and threads_share(item)),
    )


def _operations(group: Group) -> Iterator[int | sympy.Expr]:
    for body in group.bodies:
        arithmetic = sum(s.op not in ("load", "store", "constant", "index", "cast") for s in body.statements)
        yield _product(arithmetic, [a.extent for a in body.axes + body.reduction_axes])


def _product(number: int, sizes: Sequence[sympy.Expr]) -> int | sympy.Expr:
    known = [size.p for size in sizes if size.is_Integer]
    return number * math.prod(known) if len(known) == len(sizes) else sympy.Mul(number, *sizes)


def _total(parts: Iterable[int | sympy.Expr]) -> int | None:
    total = 0
    for part in parts:
        if not isinstance(part, int) and not part.is_Integer:
            return None
        total += part if isinstance(part, int) else part.p
    return total
