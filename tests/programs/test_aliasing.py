"""Objects and variables that are one in some calls and two in others, where one of them changes."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from ptdebug.tracer.statistics import STATISTICS

from .checking import call, check

X = torch.ones(2)
WEIGHT = torch.ones(6, requires_grad=True)


class Box:
    def __init__(self) -> None:
        self.count = 1


class Counted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, x):
        self.count += 1
        return x * self.count


def counter(start: int) -> tuple[Callable[[], None], Callable[[], int]]:
    count = start

    def increase() -> None:
        nonlocal count
        count += 1

    return increase, lambda: count


def append(x, first, second):
    first.append(1)
    return x * len(second)


def store(x, first, second):
    first["new"] = 1
    return x * len(second)


def assign(x, first, second):
    first.count = 5
    return x * second.count


def increase(x, first, second):
    first[0]()
    return x * second[1]()


def read(x, first, second):
    return x * first[1]() + second[1]()


MAKERS: dict[Callable[..., Any], Callable[[int], Any]] = {
    append: lambda number: [1], store: lambda number: {1: 1}, assign: lambda number: Box(),
    increase: lambda number: counter(1), read: counter,
}  # fmt: skip


@pytest.mark.parametrize("order", ["ab bb ab aa", "bb ab ba aa"])
@pytest.mark.parametrize("function", MAKERS)
def test_one_object_in_two_places(function: Callable[..., Any], order: str) -> None:
    def use(compile):
        objects = {name: MAKERS[function](number) for number, name in enumerate("ab")}
        f = compile(function)
        return [f(X, objects[one], objects[other]) for one, other in order.split()], objects

    check(use)


def test_a_module_that_is_put_into_two_places() -> None:
    def use(compile):
        net = torch.nn.Sequential(Counted(), Counted(), Counted())
        f = compile(net)
        found = [f(X), f(X), f(X)]
        net[2] = net[1]
        return [*found, f(X), f(X)], [part.count for part in net]

    check(use)


def _whole_and_part() -> tuple[torch.Tensor, torch.Tensor]:
    whole = torch.arange(6.0)
    return whole, whole.view(2, 3)[0]


def _two_parts() -> tuple[torch.Tensor, torch.Tensor]:
    whole = torch.arange(6.0)
    return whole.view(6), whole.view(2, 3)[0]


def _part_from_no_grad() -> tuple[torch.Tensor, torch.Tensor]:
    whole = torch.arange(6.0)
    with torch.no_grad():
        return whole, whole[:3]


def _part_of_other_data(new: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    whole, part = _whole_and_part()
    whole.data = new.clone()
    return whole, part


VIEWS: dict[str, Callable[[], tuple[torch.Tensor, torch.Tensor]]] = {
    "of the changed one": _whole_and_part, "of one base": _two_parts, "from no_grad": _part_from_no_grad,
    "of other data": lambda: _part_of_other_data(torch.ones(6)),
    "of another dtype": lambda: _part_of_other_data(torch.ones(6).double()),
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_that_is_read_once_its_base_has_changed(name: str) -> None:
    def use(compile):
        @compile
        def f(x, part, weight):
            x.add_(weight)
            try:
                return part * 2, part.requires_grad, x
            except RuntimeError as error:
                return str(error)

        return f(*VIEWS[name](), torch.ones(6)), f(*VIEWS[name](), torch.ones(6, requires_grad=True))

    STATISTICS.clear()
    check(use)
    assert not [reason for reason in STATISTICS.reasons if "internal error" in reason]


@pytest.mark.parametrize("inside", [True, False])
def test_a_view_of_which_autograd_was_not_asked_since_its_base_has_a_gradient(inside: bool) -> None:
    """It may not be written, until something looks at its node: what is compiled must not be that."""

    def use(compile):
        def f(x, part, weight):
            if inside:
                x.mul_(weight)
            part += 1
            return part

        def asked(x, part, weight):
            x.mul_(weight)
            return part.is_leaf, part.add_(1)

        whole, part = _whole_and_part()
        if not inside:
            whole.mul_(WEIGHT)
        return call(compile(f), whole, part, WEIGHT), whole, call(compile(asked), *_whole_and_part(), WEIGHT)

    check(use)
