"""What the guards of an entry cost, measured, and which of the guarded objects fail."""
from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Any, NamedTuple

from torch._C._dynamo import guards as cpp

from ..sources.source import Source
from .build import BuiltTree
from .guarded_frame import GuardedFrame

BUDGET = 1_000_000  # nanoseconds for the check of all, and as many for those of each
CHECKS = 8  # in one sample
SAMPLES = 5
LONG = BUDGET // (CHECKS * SAMPLES)
"""Nanoseconds of a check that is long enough to be measured alone."""


class Cost(NamedTuple):
    """Nanoseconds of a check, and of how many guards: those of an outermost module and of what it holds are one
    function."""

    nanoseconds: int
    guards: int = 1


class Costs(NamedTuple):
    """Nanoseconds of a check of all guards, 0 where they do not pass any more; and, by the index of a guard, of those
    that can be checked alone: to some nanoseconds, and without what it takes to reach the object."""

    all: int = 0
    each: Mapping[int, Cost] = {}


UNMEASURED = Costs()


def measured(tree: BuiltTree, frame: GuardedFrame) -> Costs:
    """What checking the guards of a new tree costs on the frame that was compiled."""
    total = check_nanoseconds(tree.root, frame.scope.f_locals)
    return Costs(total, _each(tree, frame) if total else {})


def check_nanoseconds(root: Any, f_locals: Mapping[str, Any]) -> int:
    """How long one check of all guards below `root` takes on the frame that was compiled: the shortest of some samples,
    0 where it does not pass any more."""
    if not root.check(f_locals):
        return 0
    return round(_nanoseconds(root.check, f_locals))


def _each(tree: BuiltTree, frame: GuardedFrame) -> dict[int, Cost]:
    """The cost of each guard that C++ can check alone, while there is time. What calling it from Python takes is not
    its cost: the cheapest guard that there is, called in the same way, tells how much that is."""
    sources: dict[str, Source] = {check.source.expression: check.source for check in tree.checks}
    sources |= {source.expression: source for source in tree.functions}
    functions = {source.expression: indices for source, indices in tree.functions.items()}
    found: dict[int, Cost] = {}
    until = time.perf_counter_ns() + BUDGET
    call = _cheapest_call()
    for manager in (tree.root, *_managers(tree.root)):
        source = sources.get(manager.get_source())
        if source is None and manager is not tree.root:
            continue
        try:
            value = None if source is None else frame.value(source)  # the root's guards are about torch's own state
        except Exception:  # reading it again is the program's code
            continue
        own = manager.get_leaf_guards()
        first = next((int(part) for leaf in own for part in leaf.verbose_code_parts() if part.isdigit()), None)
        for leaf in own:
            if time.perf_counter_ns() > until:
                return found
            if not callable(leaf):  # it compares several objects
                continue
            part = leaf.verbose_code_parts()[0]
            together = functions.get(manager.get_source(), ()) if not part else ()
            took = max(0, round(_nanoseconds(leaf, value) - call))
            for index in together or (int(part) if part.isdigit() else first,):
                if index is not None:
                    before = found[index].nanoseconds if index in found else 0
                    found[index] = Cost(before + took, max(1, len(together)))
    return found


def _nanoseconds(guard: Any, value: Any) -> float:
    """How long one call takes, the shortest of some samples: of a long one, of few calls."""
    clock = time.perf_counter_ns
    start = clock()
    guard(value)
    first = clock() - start
    checks = 1 if first > LONG else CHECKS
    found = [float(first)]
    for _ in range(SAMPLES if first * SAMPLES < BUDGET else 1):
        start = clock()
        for _ in repeat(None, checks):
            guard(value)
        found.append((clock() - start) / checks)
    return min(found)


def _cheapest_call() -> float:
    """Nanoseconds of a call from Python of the cheapest guard that there is."""
    root = cpp.RootGuardManager()  # which owns the guard
    root.add_none_match_guard(["0"], None)
    return _nanoseconds(root.get_leaf_guards()[0], None)


def failures(root: Any) -> dict[str, int]:
    """How often a guard of each object failed, by the object's source. C++ does not distinguish what lies below an
    outermost module, nor the conditions on sizes: such failures are not here."""
    found: dict[str, int] = {}
    for manager in _managers(root):
        own = manager.fail_count() - sum(child.fail_count() for child in manager.get_child_managers())
        if own > 0:
            found[manager.get_source()] = found.get(manager.get_source(), 0) + own
    return found


def _managers(root: Any) -> Iterator[Any]:
    """All managers below the root."""
    left = list(root.get_child_managers())
    while left:
        manager = left.pop()
        yield manager
        left += manager.get_child_managers()
