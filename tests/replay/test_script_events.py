"""What of a script's compiled calls is compared with eager, and what is not called a difference."""
from __future__ import annotations

from typing import Any

import pytest
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_wrong_gradient_is_not_what_cancels_out(dtype: torch.dtype) -> None:
    """Half of each gradient is a difference, also where the model is narrow or has a small parameter."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 10)).to(dtype)
    small = torch.nn.Parameter(torch.tensor(0.0011, dtype=dtype))
    x, y = torch.randn(32, 64, dtype=dtype), torch.randint(0, 10, (32,))
    leaves = [*model.parameters(), small]
    found: list[Event] = []
    observer = Observer(found.append)
    loss = torch.nn.functional.cross_entropy(model(x) + small * x[:, :10], y)
    loss.backward()
    for half in range(-1, len(leaves)):
        if half >= 0:
            leaves[half].grad = None if leaves[half].grad is None else leaves[half].grad / 2
        observer._went_back([loss], leaves, [str(i) for i in range(len(leaves))], None)
    for wrong in found[1:]:
        assert why([wrong], found[:1])


def test_a_large_mask_hides_no_wrong_result() -> None:
    mask = torch.full((8, 8), torch.finfo(torch.float32).min).triu(1)
    x = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))

    def attend(x: torch.Tensor, mask: torch.Tensor, factor: float) -> torch.Tensor:
        return factor * torch.softmax(x + mask, -1)

    assert why(events(attend, x, mask, 1.0), events(attend, x, mask, 1.0)) == ""
    assert why(events(attend, x, mask, 0.5), events(attend, x, mask, 1.0)) == "max abs 0.5 of 1"
