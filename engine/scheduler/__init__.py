"""Which loop bodies share a kernel, in what loops, and which buffers share memory."""
from __future__ import annotations

from ...artifacts.context import CompileContext
from ..ir import ExternCall, Group, Plan, Program


def schedule(program: Program, context: CompileContext) -> Plan:
    """Group the loop bodies of `program` into kernels."""
    items = []
    count = 0
    for step in program.steps:
        if isinstance(step, ExternCall):
            items.append(step)
        else:
            device = program.buffers[step.name].device
            items.append(Group(f"fused_{count}", step.axes, (step,), frozenset(), device))
            count += 1
    return Plan(program, tuple(items))
