"""The topological order that is kept while steps are merged, against a search of the whole graph."""
from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings, strategies as st
from ptdebug.engine.scheduler.reachability import Paths


@dataclass(eq=False)
class Step:
    before: set[int] = field(default_factory=set)
    after: set[int] = field(default_factory=set)


def reached(steps: dict[int, Step], start: int) -> set[int]:
    """All steps after `start`."""
    found: set[int] = set()
    waiting = [start]
    while waiting:
        new = steps[waiting.pop()].after - found
        found |= new
        waiting += new
    return found


def merge(steps: dict[int, Step], one: int, other: int, merged: int) -> None:
    """One step in place of two."""
    first, second = steps.pop(one), steps.pop(other)
    before = (first.before | second.before) - {one, other}
    after = (first.after | second.after) - {one, other}
    steps[merged] = Step(before, after)
    for i in before:
        steps[i].after = steps[i].after - {one, other} | {merged}
    for i in after:
        steps[i].before = steps[i].before - {one, other} | {merged}


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 14), st.data())
def test_paths_are_those_of_the_merged_graph(count, data):
    steps = {i: Step() for i in range(count)}
    for late in range(1, count):
        for early in data.draw(st.sets(st.integers(0, late - 1), max_size=3)):
            steps[late].before.add(early)
            steps[early].after.add(late)
    paths = Paths(steps)
    for merged in range(count, 2 * count):
        ids = sorted(steps)
        for one in ids:
            for other in ids:
                if one != other:
                    third = paths.between(one, other)
                    expected = {i for i in ids if i in reached(steps, one) and other in reached(steps, i)}
                    expected |= {i for i in ids if i in reached(steps, other) and one in reached(steps, i)}
                    assert third in expected if expected else third is None
        free = [(a, b) for a in ids for b in ids if a < b and paths.between(a, b) is None]
        if not free:
            break
        one, other = data.draw(st.sampled_from(free))
        paths.merge(one, other, merged)
        merge(steps, one, other, merged)
        ranks = [paths.ranks[i] for i in steps]
        assert len(set(ranks)) == len(steps) == len(paths.ranks)
        assert all(paths.ranks[a] < paths.ranks[b] for a in steps for b in steps[a].after)
