"""What the guards of an entry cost, measured, and which of the guarded objects fail."""
from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

BUDGET = 1_000_000  # nanoseconds for the whole measurement
CHECKS = 8  # in one sample
SAMPLES = 5


def check_nanoseconds(root: Any, f_locals: Mapping[str, Any]) -> int:
    """How long one check of all guards below `root` takes on the frame that was compiled: the shortest of some samples,
    0 where it does not pass any more."""
    found: list[int] = []
    until = time.perf_counter_ns() + BUDGET
    for _ in range(SAMPLES):
        start = time.perf_counter_ns()
        for _ in range(CHECKS):
            if not root.check(f_locals):
                return 0
        now = time.perf_counter_ns()
        found.append((now - start) // CHECKS)
        if now > until:
            break
    return min(found)


def failures(root: Any) -> dict[str, int]:
    """How often a guard of each object failed, by the object's source. C++ does not tell apart what lies below an
    outermost module, nor the conditions on sizes: such failures are not here."""
    found: dict[str, int] = {}
    left = list(root.get_child_managers())
    while left:
        manager = left.pop()
        children = manager.get_child_managers()
        own = manager.fail_count() - sum(child.fail_count() for child in children)
        if own > 0:
            found[manager.get_source()] = found.get(manager.get_source(), 0) + own
        left += children
    return found
