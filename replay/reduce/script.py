"""The order in which a script is made smaller: whole statements first, then functions, expressions, numbers."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from . import expressions, statements, unused, values
from .ddmin import Reduction
from .source import Change, Project, apply, without_comments, without_parentheses
from .units import units
from .values import Probe

List = Callable[[Project], list[Change]]

STRUCTURE: tuple[tuple[List, int], ...] = (
    (statements.unwrapped, 1), (statements.absorbed, 1), (statements.inlined, 1), (expressions.substituted, 1),
    (expressions.merged, 1), (statements.unclassed, 1),
    (expressions.single_results, 1), (expressions.dropped, 8), (expressions.coupled, 1), (expressions.parts, 2),
)
"""Lists of changes that leave less, and how many of a list are tried at once."""

DETAILS: tuple[tuple[List, int], ...] = (
    (expressions.same_numbers, 1), (expressions.constants, 1), (expressions.single_numbers, 1),
)
"""Changes that leave as much, but simpler."""


def reduce_script(
    reduction: Reduction[Project], probe: Callable[[Project], Probe] = lambda project: Probe(), *,
    gradient: bool = False, twice: bool = False,
) -> Project:
    """Make the script as small as possible. `probe` runs it and tells what it reaches and computes. `gradient`: a
    gradient is wrong; `twice`: a function has to be called twice."""
    reduction.first([without_comments(reduction.best)])
    calls = probe(reduction.best).calls
    if reduction.first(units(reduction.best, calls, gradient, twice)):
        _without_unused(reduction)
    while True:
        before = reduction.best
        _by_values(reduction, probe)
        _structure(reduction)
        for changes, chunk in DETAILS:
            _take(reduction, changes, chunk)
        if reduction.best == before:
            reduction.first([without_parentheses(statements.without_empty_files(before))])
            return reduction.best


def _by_values(reduction: Reduction[Project], probe: Callable[[Project], Probe]) -> None:
    """What is not reached goes, and what leads to values that can be written down."""
    while True:
        before = reduction.best
        reached = probe(before).reached
        _take(reduction, partial(statements.unreached, reached=reached), None)
        _without_unused(reduction)
        _cut(reduction, probe)
        _take(reduction, partial(values.literals, probe=probe(reduction.best)), None)
        _without_unused(reduction)
        _take(reduction, unused.statements_with_calls, None)
        _without_unused(reduction)
        if reduction.best == before:
            return


def _cut(reduction: Reduction[Project], probe: Callable[[Project], Probe]) -> None:
    """Replace the latest tensor that may be: by bisection over the order in which they are computed, since what comes
    before the failure may, and what comes after it may not."""
    while True:
        start = reduction.best
        changes = values.tensors(start, probe(start))
        least, most = 0, len(changes)
        while least < most:
            width = max(1, min(reduction.width, (most - least) // 2))
            places = sorted({least + (most - least) * (i + 1) // (width + 1) for i in range(width)})
            made = [apply(start, [changes[place]]) for place in places]
            candidates = [m for m in made if m is not None]
            verdicts = dict(zip(map(id, candidates), reduction.judge(candidates)))
            failing = [(place, m) for place, m in zip(places, made) if m is not None and verdicts[id(m)]]
            if failing:
                reduction.become(failing[-1][1])
                least = failing[-1][0] + 1
            most = min([place for place in places if place >= least], default=most)
        if reduction.best == start:
            return
        _without_unused(reduction)


def _without_unused(reduction: Reduction[Project]) -> None:
    while True:
        before = reduction.best
        _take(reduction, unused.unused, None)
        if reduction.best == before:
            return


def _structure(reduction: Reduction[Project]) -> None:
    while True:
        before = reduction.best
        _without_statements(reduction)
        for changes, chunk in STRUCTURE:
            _take(reduction, changes, chunk)
        if reduction.best == before:
            return


def _without_statements(reduction: Reduction[Project]) -> None:
    while True:
        before = reduction.best
        depth = 0
        while depth < statements.deepest(reduction.best):
            _take(reduction, partial(statements.removals, depth=depth), None)
            depth += 1
        if reduction.best == before:
            return


def _take(reduction: Reduction[Project], changes: List, chunk: int | None) -> None:
    start = reduction.best

    def changed(taken: Sequence[Change]) -> Project | None:
        return apply(start, taken)

    reduction.take(changes(start), changed, chunk)
