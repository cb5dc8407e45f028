"""What of a script's compiled calls is compared with eager, and what is not called a difference."""
from __future__ import annotations

from typing import Any

import torch
from ptdebug.cli.scripts.events import Event, Observer, first_apart


def events(function: Any, *args: Any) -> list[Event]:
    found: list[Event] = []
    Observer(found.append).around(function, function)(*args)
    return found


def why(mine: list[Event], eager: list[Event]) -> str:
    (one,), (other,) = mine, eager
    found = first_apart(one, other)
    return found.why if found is not None else ""


def test_plain_results_and_changed_containers_are_compared() -> None:
    x = torch.ones(3)

    def f(seen: list[Any], n: int, keep: bool) -> tuple[Any, ...]:
        if keep:
            seen.append(x + n)
        return x, n, 0.5 * n, {"n": str(n)}

    eager = events(f, [], 2, True)
    assert why(events(f, [], 2, True), eager) == ""
    assert why(events(f, [], 3, True), eager) == "max abs 0.5 of 1"
    assert why(events(f, [], 2, False), eager) == "there is none"


def test_what_cancels_out_is_rounding() -> None:
    """The gradient of a sum of softmax is zero, but for rounding of numbers about 1."""
    w = torch.linspace(-1, 1, 64).view(8, 8)
    event = lambda gradient, scale: [Event("backward", "", (("w", gradient),), scale)]
    tiny, other = torch.full((8, 8), 1e-7), torch.full((8, 8), -1e-7)
    assert why(event(tiny, 0.5), event(other, 0.5)) == ""
    assert why(event(tiny, 1e-3), event(other, 1e-3)) != ""
    assert why(event(w, 0.5), event(w * 1.01, 0.5)) != ""
