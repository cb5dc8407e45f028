"""Objects and variables that are one in some calls and two in others, where one of them changes."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from .checking import check

X = torch.ones(2)


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
