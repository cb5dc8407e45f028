"""Delta debugging (Zeller and Hildebrandt 2002): a smallest part of a sequence that still passes a test.

Tests are handed over several at a time, since they run in parallel, and in the order in which they are preferred.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

Test = Callable[[Sequence[Sequence[T]]], Sequence[bool]]
"""For each of several parts, whether it passes."""


def smallest(
    items: Sequence[T], test: Test[T], width: int = 2, found: Callable[[Sequence[T]], None] = lambda part: None
) -> list[T]:
    """A part of `items` that passes, and of which nothing can be left out. `items` passes as a whole.

    Of parts of one size that pass, the first is taken: what is preferred comes first in `items`. `width` tests are run
    at once; `found` is told of each smaller part that passes.
    """
    part = list(items)
    pieces = 2
    while len(part) > 1:
        pieces = min(pieces, len(part))
        chunks = list(_chunks(part, pieces))
        rests = [[item for chunk in chunks if chunk is not left for item in chunk] for left in reversed(chunks)]
        candidates = [*chunks, *(rests if pieces > 2 else ())]
        passing = first_passing(candidates, test, width)
        if passing is None:
            if pieces == len(part):
                break
            pieces *= 2
            continue
        pieces = 2 if passing < len(chunks) else max(pieces - 1, 2)
        part = candidates[passing]
        found(part)
    return part


def first_passing(candidates: Sequence[Sequence[T]], test: Test[T], width: int) -> int | None:
    """The position of the first that passes, None where none does; of later ones, no more are run than at once."""
    for start in range(0, len(candidates), width):
        for offset, passes in enumerate(test(candidates[start : start + width])):
            if passes:
                return start + offset
    return None


def _chunks(items: list[T], count: int) -> Iterator[list[T]]:
    for i in range(count):
        yield items[len(items) * i // count : len(items) * (i + 1) // count]
