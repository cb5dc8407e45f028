"""Buffer reuse: which buffer takes over the memory of a dead one, and the peak memory of the plan."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy
import torch

from ...artifacts.context import CompileContext
from ...artifacts.records import BufferPlan
from ..ir.ir import Buffer, ExternCall, Group, Program
from .in_place import held_by_views
from .steps import hinted, views_in

ALIGNMENT = 64


@dataclass(frozen=True)
class MemoryPlan:
    """`reuse`: buffer -> the dead buffer whose memory it takes; lifetimes of all buffers; peak bytes."""

    reuse: dict[str, str]
    lives: tuple[BufferPlan, ...]
    peak: int | None


def touched_by(item: Group | ExternCall) -> tuple[list[str], list[str]]:
    """The buffers in memory that a step reads and writes."""
    if isinstance(item, ExternCall):
        reads = [v.buffer for v in views_in((item.args, dict(item.kwargs)))]
        return reads, [o for o in item.outputs if o] + list(item.mutates)
    names = [(b.reads, b.writes) for b in item.bodies]
    outside = lambda group: [n for part in group for n in part if n not in item.internal]
    return outside(r for r, _ in names), outside(w for _, w in names)


def plan_memory(
    program: Program, items: Sequence[Group | ExternCall], escaping: frozenset[str], context: CompileContext
) -> MemoryPlan:
    """Greedy: a buffer that a kernel makes takes the memory of the last dead one of equal dtype, device and span.

    Results of library calls and graph outputs never share: the first allocate for themselves, the second outlive the
    call.
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    made_by_loops: set[str] = set()
    held = held_by_views(items)
    for position, item in enumerate(items):
        reads, writes = touched_by(item)
        for name in (*reads, *writes):
            first.setdefault(name, position)
            last[name] = position
        if isinstance(item, Group):
            made_by_loops.update(writes)
    ending: dict[int, list[str]] = {}
    for name, position in last.items():
        ending.setdefault(position, []).append(name)
    reuse: dict[str, str] = {}
    free: dict[tuple[torch.dtype, torch.device, sympy.Expr], list[str]] = {}
    for position, item in enumerate(items):
        _, writes = touched_by(item)
        if isinstance(item, Group):
            for name in dict.fromkeys(writes):
                buffer = program.buffers[name]
                pool = free.get((buffer.dtype, buffer.device, _span(buffer)))
                if first[name] == position and name not in escaping and pool:
                    candidate = pool.pop()
                    if context.decide("reuse", name, ("take", "allocate"), "take", f"{candidate} is dead") == "take":
                        reuse[name] = candidate
        for name in ending.get(position, ()):
            if name in made_by_loops and name not in escaping and name not in held:
                buffer = program.buffers[name]
                key = (buffer.dtype, buffer.device, _span(buffer))
                free.setdefault(key, []).append(name)
    lives = _lives(program, items, first, last, reuse, escaping)
    return MemoryPlan(reuse, lives, _peak(program, first, last, reuse, escaping))


def _name(item: Group | ExternCall) -> str:
    return item.kernel if isinstance(item, Group) else item.name


def _span(buffer: Buffer) -> sympy.Expr:
    """Elements from the first to the last, gaps included."""
    if 0 in buffer.size:
        return sympy.S.Zero
    span = sum(((n - 1) * stride for n, stride in zip(buffer.size, buffer.stride)), sympy.S.One)
    return span if span.is_Integer else sympy.expand(span)


def _bytes(program: Program, name: str) -> int | None:
    buffer = program.buffers[name]
    elements = sympy.Mul(*buffer.size)
    return int(elements) * buffer.dtype.itemsize if elements.is_Integer else None


def _lives(
    program: Program, items: Sequence[Group | ExternCall], first: dict[str, int], last: dict[str, int],
    reuse: dict[str, str], escaping: frozenset[str],
) -> tuple[BufferPlan, ...]:
    lives = []
    for name in first:
        role = program.buffers[name].role
        if role == "intermediate" and name in escaping:
            role = "output"
        lives.append(BufferPlan(
            name, _bytes(program, name), _name(items[first[name]]), _name(items[last[name]]), reuse.get(name, ""), role,
        ))
    return tuple(lives)


def _peak(
    program: Program, first: dict[str, int], last: dict[str, int], reuse: dict[str, str], escaping: frozenset[str]
) -> int | None:
    """Peak bytes of live intermediates and outputs; None where a size is symbolic."""
    changes: dict[int, int] = {}
    taken_over = set(reuse.values())
    for name, start in first.items():
        if program.buffers[name].role != "intermediate":
            continue
        size = hinted(sympy.Mul(*program.buffers[name].size)) * program.buffers[name].dtype.itemsize
        if _bytes(program, name) is None:
            return None
        if name not in reuse:
            changes[start] = changes.get(start, 0) + size
        if name not in taken_over and name not in escaping:
            changes[last[name] + 1] = changes.get(last[name] + 1, 0) - size
    level = peak = 0
    for at in sorted(changes):
        level += changes[at]
        peak = max(peak, level)
    return peak
