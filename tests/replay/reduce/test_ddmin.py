"""The search, with judges that are functions."""
from __future__ import annotations

from collections.abc import Sequence

import pytest
from ptdebug.replay.reduce.ddmin import Reduction, smallest_subset


@pytest.mark.parametrize("width", [1, 2, 5])
def test_the_needed_items_are_found_and_no_others(width: int) -> None:
    needed = {3, 41, 77}
    found = smallest_subset(range(100), lambda subsets: [needed <= set(s) for s in subsets], width)
    assert found == [3, 41, 77]


def test_few_questions_are_asked_for_few_needed_items() -> None:
    asked = 0

    def fails(subsets: Sequence[Sequence[int]]) -> list[bool]:
        nonlocal asked
        asked += len(subsets)
        return [500 in s for s in subsets]

    assert smallest_subset(range(1000), fails) == [500]
    assert asked < 60


def test_edits_that_pass_alone_but_not_together_are_not_all_taken() -> None:
    def judge(texts: Sequence[str]) -> list[bool]:  # one of a and b is needed
        return ["a" in t or "b" in t for t in texts]

    reduction = Reduction("abcd", judge, width=4)
    reduction.take(["a", "b", "c", "d"], lambda gone: "".join(c for c in "abcd" if c not in gone), chunk=1)
    assert reduction.best in ("a", "b")


def test_an_interruption_leaves_the_best_so_far() -> None:
    def judge(texts: Sequence[str]) -> list[bool]:
        if len(texts[0]) < 5:
            raise KeyboardInterrupt
        return ["x" in t for t in texts]

    def without(gone: Sequence[int]) -> str:
        return "".join(c for i, c in enumerate("aaaaxaaaa") if i not in gone)

    reduction = Reduction("aaaaxaaaa", judge)
    with pytest.raises(KeyboardInterrupt):
        reduction.take(list(range(9)), without, chunk=1)
    assert reduction.best == "xaaaa"
