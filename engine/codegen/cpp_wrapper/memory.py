"""Where the buffers of a C++ wrapper are kept: in an arena, or in tensors of their own.

On a CPU the arena is on the caller's stack, so allocation is free, and has small buffers that only kernels see. On a
GPU, where each allocation takes the host about as long as a launch, it is one tensor, which is freed when the call
returns, and products of matrices see its buffers too. Buffers with disjoint lifetimes share addresses in it; one that
takes over another's memory (`Plan.reuse`) is that memory. Other buffers are tensors, freed when they are dead.
"""
from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import sympy

from ...ir.ir import Buffer, ExternCall, KernelSignature, Plan
from ...scheduler.memory import ALIGNMENT, touched_by
from ...scheduler.steps import views_in


@dataclass(frozen=True)
class Arena:
    """What an arena may have: bytes of one buffer, and of all; where buffers begin; and the operators that may be given
    its memory: they never return it, or hold it."""

    buffer: int
    whole: int
    alignment: int
    operators: frozenset[str] = frozenset()


STACK = Arena(8 << 10, 32 << 10, ALIGNMENT)
"""A thread of the program may have little of it."""

PRODUCTS = frozenset(("aten.mm.default", "aten.addmm.default", "aten.bmm.default", "aten.baddbmm.default"))
POOL = Arena(64 << 20, 64 << 20, 512, PRODUCTS)
"""What it holds back until a call returns is little beside the memory of a GPU."""


@dataclass(frozen=True)
class Memory:
    """`root[name]`: the buffer whose memory a buffer of the graph has, itself where it has its own; `place[root]`: the
    byte of the arena at which that starts, for those that are in it; `ending[step]`: the tensors that nothing after
    that step needs."""

    root: Mapping[str, str]
    place: Mapping[str, int]
    ending: Mapping[int, list[str]]
    arena: int


def plan_memory(
    plan: Plan, signatures: Mapping[str, KernelSignature], with_inputs: bool, limits: Arena = STACK,
    apart: Collection[str] = (),
) -> Memory:
    """Places for the intermediate buffers of `plan`, which stand in kernels' `signatures`; `with_inputs`: inputs end,
    too. What the arena's `limits` do not allow is a tensor, and so are buffers `apart`."""
    buffers = plan.program.buffers
    seen = _as_tensors(plan, limits.operators).union(apart)
    root: dict[str, str] = {}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for position, name in _steps(plan, signatures):
        if buffers[name].role == "input":
            last[name] = position
        if buffers[name].role != "intermediate":
            continue
        old = plan.reuse.get(name)
        owner = root.setdefault(name, root.get(old, old) if old is not None else name)
        first.setdefault(owner, position)
        last[owner] = position
    sizes: dict[str, int | None] = {}
    for name, owner in root.items():
        size = None if name in seen else _bytes(buffers[name])
        known = sizes.get(owner, 0)
        sizes[owner] = None if size is None or known is None else max(size, known)
    small = {owner: size for owner, size in sizes.items() if size is not None and size <= limits.buffer}
    place, arena = _places(small, first, last, limits)
    kept = {root.get(name, name) for name in _returned(plan)}
    ending: dict[int, list[str]] = {}
    for owner, position in last.items():
        if owner not in place and owner not in kept and (with_inputs or buffers[owner].role != "input"):
            ending.setdefault(position, []).append(owner)
    return Memory(root, place, ending, arena)


def _steps(plan: Plan, signatures: Mapping[str, KernelSignature]) -> Iterator[tuple[int, str]]:
    for position, item in enumerate(plan.items):
        names = [n for part in touched_by(item) for n in part] if isinstance(item, ExternCall) else (
            signatures[item.kernel].buffers)
        for name in names:
            yield position, name


def _as_tensors(plan: Plan, operators: Collection[str]) -> set[str]:
    """The buffers that are visible outside of kernels: to ATen calls (but for these operators), as results, as new
    values of inputs."""
    names = _returned(plan)
    for item in plan.items:
        if isinstance(item, ExternCall) and str(item.target) not in operators:
            names.update(n for part in touched_by(item) for n in part)
    return names


def _returned(plan: Plan) -> set[str]:
    program = plan.program
    return {view.buffer for view in views_in((program.outputs, [view for view, _ in program.copies]))}


def _bytes(buffer: Buffer) -> int | None:
    """From the first element to the last; None where a size varies."""
    span = 1 + sympy.Add(*[(n - 1) * stride for n, stride in zip(buffer.size, buffer.stride)])
    if not all(n.is_Integer for n in buffer.size) or not span.is_Integer:
        return None
    return 0 if 0 in buffer.size else int(span) * buffer.dtype.itemsize


def _places(
    sizes: Mapping[str, int], first: Mapping[str, int], last: Mapping[str, int], limits: Arena
) -> tuple[dict[str, int], int]:
    """First fit, in the order in which the buffers are written; what does not fit below the limit is left out."""
    place: dict[str, int] = {}
    end = 0
    whole = {name: -(-max(size, 1) // limits.alignment) * limits.alignment for name, size in sizes.items()}
    for name in sorted(sizes, key=lambda n: first[n]):
        size = whole[name]
        taken = sorted((place[o], place[o] + whole[o]) for o in place
                       if first[o] <= last[name] and first[name] <= last[o])
        start = 0
        for low, high in taken:
            if start + size <= low:
                break
            start = max(start, high)
        if start + size <= limits.whole:
            place[name] = start
            end = max(end, start + size)
    return place, end
