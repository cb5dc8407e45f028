"""Whether a path connects two steps through a third, while steps are being merged.

An incremental topological order is maintained instead of all pairs of ancestors: a path between two steps lies between
their ranks, so a search or a merge costs what lies between them and not the whole graph (Pearce and Kelly, "A dynamic
topological sort algorithm for directed acyclic graphs", 2006; a merge is two edges, there and back).
"""
from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol


class Step(Protocol):
    """What is known of a step: the ids of those that must run before it, and of those that must run after it."""

    @property
    def before(self) -> Collection[int]: ...
    @property
    def after(self) -> Collection[int]: ...


class Paths:
    """`ranks` gives each step a number that is larger than those of all steps before it."""

    def __init__(self, steps: Mapping[int, Step]) -> None:
        """`steps` must be in an order that respects the edges; it is read again in each call, as it is then."""
        self.steps = steps
        self.ranks = {step: rank for rank, step in enumerate(steps)}

    def between(self, one: int, other: int) -> int | None:
        """A third step on a path from one to the other, in either direction."""
        first, last = sorted((one, other), key=self.ranks.__getitem__)
        found = self._reached(last, "before", self.ranks[first], self.ranks[last])
        return next((step for step in found if first in self.steps[step].before), None)

    def merge(self, one: int, other: int, merged: int) -> None:
        """Give `merged` a rank and forget the two that it is made of. Call it before the edges change."""
        first, last = sorted((one, other), key=self.ranks.__getitem__)
        bounds = self.ranks[first], self.ranks[last]
        above = sorted(self._reached(last, "before", *bounds), key=self.ranks.__getitem__)
        below = sorted(self._reached(first, "after", *bounds), key=self.ranks.__getitem__)
        free = sorted((*bounds, *(self.ranks[step] for step in (*above, *below))))
        del self.ranks[one], self.ranks[other]
        self.ranks.update(zip((*above, merged, *below), free))

    def _reached(self, start: int, direction: str, low: int, high: int) -> set[int]:
        """The steps that lie before or after `start` and have a rank between the two, both excluded."""
        found: set[int] = set()
        waiting = [start]
        while waiting:
            for step in getattr(self.steps[waiting.pop()], direction):
                if low < self.ranks[step] < high and step not in found:
                    found.add(step)
                    waiting.append(step)
        return found


__all__ = ["Paths", "Step"]
