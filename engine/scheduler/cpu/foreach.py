"""The loop nest that the members of a `Foreach` share: over a range of the outermost loop, for threads to share out."""
from __future__ import annotations

from dataclasses import replace

from ....artifacts.context import CompileContext
from ...ir.ir import Axis, Foreach, Group, Program
from ...ir.loop_nest import COUNT, FIRST, LoopNest
from .build import loop_nest


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
