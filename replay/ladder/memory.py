"""Whether compiled kernels depend on memory that they should not: each is run on memory filled with a pattern, between
guard zones, and again with another pattern."""
from __future__ import annotations

from collections.abc import Callable

import torch

from ..recorded.state import deterministic
from ..verdicts import classes
from ..verdicts.compare import Comparison
from .arena import PATTERNS, Arena
from .rungs import Execution

RunIn = Callable[[Arena], Execution]


def memory_fault(run: RunIn) -> Comparison | None:
    """What is wrong with how kernels use memory; None where nothing is. `run` runs them all in an arena's memory."""
    first, one = _ran(run, *PATTERNS[:1] * 2)
    if first.overrun:
        name, step = next(iter(first.overrun.items()))
        return _fault(classes.OUT_OF_BOUNDS, f"{step} writes outside of {name}")
    _, other = _ran(run, *PATTERNS[1:] * 2)
    where = unlike(one, other)
    if not where:
        return None
    _, again = _ran(run, *PATTERNS[:1] * 2)
    if found := unlike(one, again):
        return _fault(classes.NONDETERMINISM, f"the same run gives another {found} the second time")
    _, inside = _ran(run, PATTERNS[1], PATTERNS[0])
    if unlike(one, inside):
        return _fault(classes.UNINITIALIZED, f"{where} depends on what was in memory before")
    return _fault(classes.OUT_OF_BOUNDS, f"{where} depends on memory outside of the buffers")


def _ran(run: RunIn, inside: int, around: int) -> tuple[Arena, Execution]:
    arena = Arena(inside, around)
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


def _fault(kind: str, explanation: str) -> Comparison:
    return Comparison("different", kind=kind, explanation=explanation)
