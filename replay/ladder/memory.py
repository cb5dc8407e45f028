"""Whether compiled kernels depend on memory that they should not: each is run on memory filled with a pattern, between
guard zones, and again with another pattern."""
from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..recorded.state import deterministic
from ..verdicts import classes
from ..verdicts.compare import Comparison
from .arena import PATTERNS, Arena
from .rungs import Execution

MOST = 100
"""Buffers that are tried one by one."""
RunIn = Callable[[Arena], Execution]


def memory_fault(run: RunIn, buffers: Sequence[str], unwritten: bool) -> tuple[Comparison, str] | None:
    """What is wrong with how kernels use memory, and the buffer that it is about; None where nothing is wrong. `run`
    runs them all in an arena's memory, in which they allocate `buffers`. Results that differ from run to run (atomic
    additions) are rounding, if they are no worse than that. Where the program itself shows `unwritten` memory, only a
    write outside of the buffers is wrong."""
    first, one = _ran(run, *PATTERNS[:1] * 2)
    if first.overrun:
        name, step = next(iter(first.overrun.items()))
        return _fault(classes.OUT_OF_BOUNDS, f"{step} writes outside of {name}", name)
    if unwritten:
        return None
    _, other = _ran(run, *PATTERNS[1:] * 2)
    where = unlike(one, other)
    if not where:
        return None
    for before, pattern in ((one, PATTERNS[:1]), (other, PATTERNS[1:])):
        if found := unlike(before, _ran(run, *pattern * 2)[1]):
            why = f"the same run gives another {found} the second time"
            return Comparison("rounding", kind=classes.NONDETERMINISM, explanation=why), ""
    _, inside = _ran(run, PATTERNS[1], PATTERNS[0])
    if unlike(one, inside):
        read, stored = _unwritten(run, one, buffers)
        what = f" in the memory of {read}" if read else " in memory"
        return _fault(classes.UNINITIALIZED, f"{where} depends on what was{what} before", "" if stored else read)
    return _fault(classes.OUT_OF_BOUNDS, f"{where} depends on memory outside of the buffers", "")


def _unwritten(run: RunIn, one: Execution, buffers: Sequence[str]) -> tuple[str, bool]:
    """The buffer on whose earlier contents results depend, and whether it is written at all: then it is read too
    early."""
    for name in buffers[:MOST]:
        _, other = _ran(run, *PATTERNS[:1] * 2, name)
        if unlike(one, other):
            names = [key for key in one.values if key.rpartition(".")[2] == name]
            return name, bool(names) and all(_same(one.values[key], other.values.get(key)) for key in names)
    return "", True


def _ran(run: RunIn, inside: int, around: int, other: str = "") -> tuple[Arena, Execution]:
    arena = Arena(inside, around, other)
    with deterministic():
        return arena, run(arena)


def unlike(one: Execution, other: Execution) -> str:
    """What differs, bit by bit, between two runs that should be the same: the first buffer, if results do; or ""."""
    if all(map(_same, one.observed(), other.observed())):
        return ""
    return next((name for name in one.values if not _same(one.values[name], other.values.get(name))), "result")


def _same(one: object, other: object) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return bool(one == other) or (one != one and other != other)
    if one.is_meta or one.layout is not torch.strided:
        return True
    dense = [t.detach().cpu().resolve_conj().resolve_neg().contiguous() for t in (one, other)]
    return torch.equal(*[t.reshape(-1).view(torch.uint8) for t in dense])


def _fault(kind: str, explanation: str, buffer: str) -> tuple[Comparison, str]:
    return Comparison("different", kind=kind, explanation=explanation), buffer
