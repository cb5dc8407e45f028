"""Objects and variables that are one in some calls and two in others, where one of them changes."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from ptdebug.tracer.runtime.statistics import STATISTICS

from ..checking import call, check

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


def _matched(one: Any, other: Any) -> int:
    match one:
        case found if found is other:
            return 5
    return 4


ASKED: dict[str, Callable[[Any, Any], Any]] = {
    "is": lambda one, other: 3 if one is other else 2,
    "==": lambda one, other: 3 if (one, 1) == (other, 1) else 2,
    "in a list": lambda one, other: 3 if other in [one] else 2,
    "in a set": lambda one, other: len({one, other}),
    "sets": lambda one, other: 3 if {one} & {other} else 2,
    "frozen sets": lambda one, other: 3 if frozenset([(one, 1)]) == frozenset([(other, 1)]) else 2,
    "a key": lambda one, other: {one: 3}.get(other, 2),
    "keys": lambda one, other: len({one: 1} | {other: 2}),
    "a pattern": _matched,
}
"""Questions that tell objects apart, with a number as answer."""

OBJECTS: dict[str, Callable[[], Any]] = {
    "object": Box, "module": Counted, "function": lambda: lambda: 1, "list": lambda: [1], "tensor": lambda: X.clone(),
}  # fmt: skip


@pytest.mark.parametrize("kind", OBJECTS)
@pytest.mark.parametrize("question", ASKED)
def test_objects_that_are_told_apart(question: str, kind: str) -> None:
    by_value = kind == "tensor" and question in ("==", "in a list")
    if by_value or (kind == "list" and question not in ("is", "a pattern")):
        pytest.skip("equality by what is in them, or no hash")
    ask = ASKED[question]

    def use(compile):
        answers = []
        for order in ("ab aa ba bb", "aa ab bb ba"):
            objects = {name: OBJECTS[kind]() for name in "ab"}
            f = compile(lambda x, one, other: x * ask(one, other))
            answers.append([f(X, objects[one], objects[other]) for one, other in order.split()])
        return answers

    check(use)


@pytest.mark.parametrize("kind", ["object", "module", "function", "tensor"])
@pytest.mark.parametrize("make", [lambda o: {o}, lambda o: frozenset([o]), lambda o: {o: 1}, lambda o: [o],
                                  lambda o: {(o, 1)}], ids=["set", "frozenset", "dict", "list", "tuples"])
def test_an_object_that_is_sought_in_a_container_from_outside(make: Callable[[Any], Any], kind: str) -> None:
    if kind == "tensor" and type(make(1)) is list:
        pytest.skip("compares values")

    def use(compile):
        answers = []
        for order in ("abab", "baba"):
            objects = {name: OBJECTS[kind]() for name in "ab"}
            held = make(objects["a"])
            f = compile(lambda x, o, held=held: x * 3 if o in held or (o, 1) in held else x * 2)
            answers.append([f(X, objects[name]) for name in order])
        return answers

    check(use)


def test_numbers_that_vary_are_not_told_apart_as_objects() -> None:
    def use(compile):
        f = compile(lambda x, n, ns: x * (ns.index(n) if n in ns else 9))
        return [f(X, n, ns) for n, ns in ((4, [1, 2]), (5, [3, 7]), (6, [6, 6]), (500, [8, 500]))]

    STATISTICS.clear()
    check(use)
    assert not [reason for reason in STATISTICS.reasons if "internal error" in reason]


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


class Holder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.register_buffer("table", torch.ones(2))


def test_a_tensor_of_a_module_and_an_argument() -> None:
    def use(compile):
        module = Holder()

        def f(module, x):
            return x + 1, x is module.table, x is module.weight, len({x, module.table})

        f = compile(f)
        arguments = torch.ones(2), module.table, torch.nn.Parameter(torch.zeros(2)), module.weight, torch.ones(2)
        return [f(module, x) for x in arguments]

    check(use)


def test_tensors_of_two_modules() -> None:
    def use(compile):
        first, second = Holder(), Holder()
        f = compile(lambda x: (x + 1, first.weight is second.weight, first.table is second.table))
        out = [f(X)]
        second.weight = first.weight
        out.append(f(X))
        second.table = first.table
        out.append(f(X))
        second.weight = torch.nn.Parameter(torch.zeros(2))
        return [*out, f(X)]

    check(use)
