"""Delta debugging over edits: as many of them are applied as leave a failure in place.

The search of Zeller and Hildebrandt's ddmin (2002), turned around: an *edit* makes the subject smaller, all edits are
tried at once first, then halves, quarters, and single ones. Candidates are judged in batches, so that several workers
have something to do. A search that is interrupted leaves its best so far in `Reduction.best`; one that starts again
asks the same questions in the same order, so that a judge with a memory answers them at once.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")
E = TypeVar("E")

Judge = Callable[[Sequence[T]], Sequence[bool]]
"""Tells of each candidate whether it fails as the original did."""


class Reduction(Generic[T]):
    """The smallest failing subject so far, and the questions that make it smaller.

    `width` is how many candidates are judged at once; `on_progress` is told of each smaller subject.
    """

    def __init__(
        self, start: T, judge: Judge[T], width: int = 1, on_progress: Callable[[T], None] = lambda _: None
    ) -> None:
        self.best = start
        self.judge = judge
        self.width = width
        self.on_progress = on_progress
        self.asked = 0

    def first(self, candidates: Iterable[T]) -> bool:
        """Become the first of `candidates` that fails; False if none does."""
        supply = iter(candidates)
        while batch := list(islice(supply, self.width)):
            for candidate, fails in zip(batch, self._judged(batch)):
                if fails:
                    self.become(candidate)
                    return True
        return False

    def take(
        self, edits: Sequence[E], apply: Callable[[Sequence[E]], T | None], chunk: int | None = None
    ) -> list[E]:
        """Apply as many of `edits` as possible; returns those that were.

        `apply` gives the subject with a subset of the edits, None if that is nonsense. The first chunks have `chunk`
        edits (all of them by default). Edits that come first in `edits` are applied first.
        """
        taken: list[E] = []
        size = max(1, chunk or len(edits))
        waiting = deque(list(edits[i : i + size]) for i in range(0, len(edits), size))
        while waiting:
            batch = [waiting.popleft() for _ in range(min(self.width, len(waiting)))]
            made = [apply([*taken, *part]) for part in batch]
            found = self.verdicts(made)
            passed = [i for i, fails in enumerate(found) if fails]
            if passed:
                first = passed[0]
                taken += batch[first]
                candidate = made[first]
                assert candidate is not None  # None never fails
                self.become(candidate)
                again = [edit for i in passed[1:] for edit in batch[i]]
                if again:  # each was judged without the other
                    waiting.appendleft(again)
            for part, fails in zip(batch, found):
                if not fails and len(part) > 1:
                    middle = len(part) // 2
                    waiting += [part[:middle], part[middle:]]
        return taken

    def verdicts(self, made: Sequence[T | None]) -> list[bool]:
        """Whether each of some candidates fails. None, and what is the best already, count as not failing."""
        real = [m for m in made if m is not None and m != self.best]
        verdicts = iter(self._judged(real))
        return [m is not None and m != self.best and next(verdicts) for m in made]

    def _judged(self, candidates: Sequence[T]) -> Sequence[bool]:
        if not candidates:
            return []
        self.asked += len(candidates)
        return self.judge(candidates)

    def become(self, smaller: T) -> None:
        """`smaller` is the best now."""
        self.best = smaller
        self.on_progress(smaller)


def smallest_subset(
    items: Sequence[E], fails: Callable[[Sequence[Sequence[E]]], Sequence[bool]], width: int = 1
) -> list[E]:
    """The smallest subset found for which `fails` (of several subsets at once) still holds, in the same order.

    From it, no single item can be removed.
    """
    reduction: Reduction[tuple[int, ...]] = Reduction(
        tuple(range(len(items))), lambda subsets: fails([[items[i] for i in subset] for subset in subsets]), width
    )
    while True:
        before = reduction.best

        def without(removed: Sequence[int], whole: tuple[int, ...] = before) -> tuple[int, ...]:
            gone = set(removed)
            return tuple(i for i in whole if i not in gone)

        reduction.take(list(reversed(before)), without)
        if reduction.best == before:
            return [items[i] for i in before]
