"""`ptdebug run --check-calls`: calls of what is compiled, compared with eager."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from ptdebug.cli import checked_calls
from ptdebug.cli.checked_calls import checking


class Ended(Exception):
    """In place of the end of the process."""


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(text: str) -> None:
        raise Ended(text)

    monkeypatch.setattr(checked_calls, "_end", end)


def as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    """A right compiler."""
    return lambda *args, **kwargs: function(*args, **kwargs)


def one_more(function: Callable[..., Any]) -> Callable[..., Any]:
    """A wrong one."""
    return lambda *args, **kwargs: function(*args, **kwargs) + 1


def test_right_calls_go_through():
    def drops(x: torch.Tensor, *, p: float) -> torch.Tensor:
        x.add_(1)
        return torch.dropout(x, p, True)

    x = torch.zeros(64)
    torch.manual_seed(3)
    got = checking(as_it_is)(drops)(x, p=0.5)
    again = torch.rand(4)
    torch.manual_seed(3)
    assert torch.equal(got, drops(torch.zeros(64), p=0.5)) and torch.equal(again, torch.rand(4))
    assert x.sum() == 64  # written once

    module = torch.nn.BatchNorm1d(3)
    assert checking(lambda m: m)(module) is module
    with pytest.raises(ZeroDivisionError):
        checking(as_it_is)(lambda: 1 / 0)()


def test_wrong_calls_end_the_program():
    with pytest.raises(Ended, match=r"a call of exp is not what it is in eager: distance to eager: 1"):
        checking(one_more)(torch.exp)(torch.ones(3))
    with pytest.raises(Ended, match="a call of f is not"):
        @checking(one_more)
        def f(x: torch.Tensor) -> torch.Tensor:
            return x

        f(torch.ones(3))

    def writes(x: torch.Tensor) -> None:
        x.mul_(2)

    with pytest.raises(Ended):  # a write that is lost
        checking(lambda function: lambda x: None)(writes)(torch.ones(3))
    with pytest.raises(Ended, match="'ValueError' is not"):
        checking(lambda function: lambda x: float("no"))(writes)(torch.ones(3))
