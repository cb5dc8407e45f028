"""The loop nest that the members of a `Foreach` share, over a range of the outermost loop, and how threads share all
members."""
from __future__ import annotations

from dataclasses import replace

import sympy

from ....artifacts.context import CompileContext
from ...ir.ir import Axis, Foreach, Group, Member, Program
from ...ir.loop_nest import COUNT, FIRST, LoopNest
from .build import loop_nest
from .cost import PARALLEL_WORK, body_work

PARTS = 32  # into which all work is split for threads


def shared_nest(foreach: Foreach, program: Program, context: CompileContext) -> LoopNest:
    """The nest for one member, and a range of its iterations."""
    template = foreach.template
    body = template.body
    if body.axes:  # a range of the outermost loop
        outer = body.axes[0]
        moved = {outer.symbol: outer.symbol + FIRST}
        statements = [s if s.index is None else replace(s, index=s.index.xreplace(moved)) for s in body.statements]
        body = replace(body, axes=(Axis(outer.symbol, COUNT), *body.axes[1:]), statements=tuple(statements))
    group = Group(f"{foreach.kernel}_nest", body.axes, (body,), template.internal, foreach.device)
    return loop_nest(group, program, context, threads=False)


def member_work(member: Member) -> tuple[int, int]:
    """Iterations of the outermost loop, and the work of one."""
    axes = member.group.axes
    rows = int(axes[0].extent) if axes else 1
    return rows, max(1, int(sympy.Add(*[body_work(b) for b in member.group.bodies])) // rows)


def threads_share(foreach: Foreach) -> bool:
    """Whether the work of all members is worth threads."""
    return sum(rows * each for rows, each in map(member_work, foreach.members)) >= PARALLEL_WORK
