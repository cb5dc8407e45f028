"""Programs that ask whether two numbers, texts or tuples are one object (`a is b`)."""
# ruff: noqa: F632, E712 - programs as people write them
# mypy: ignore-errors

from __future__ import annotations

import pytest
import torch

from ..checking import Programs, call, check

program = Programs()


def asked(x, a, b):
    return a is b, x + 1, a is not b


def asked_again(x):
    return x + 1


@program
def equal_objects_that_are_one_in_some_calls(compile):
    one = {"float": 1.5, "int": 1000, "text": "hello world", "tuple": (1, 2)}
    makes = {
        "float": lambda: float("1.5"), "int": lambda: int("1000"), "text": lambda: "".join(("hello", " world")),
        "tuple": lambda: tuple(int(digit) for digit in "12"),
    }
    found = []
    for first in (True, False):
        for name, make in makes.items():
            f = compile(lambda x, a, b: asked(x, a, b))
            for same in (first, not first, first, not first):
                found.append(f(torch.ones(2), *([one[name]] * 2 if same else (make(), make()))))
    return found


@program
def a_literal_and_a_text_that_was_read(compile):
    def fn(x, mode):
        return x * 2 if mode is "same" else x

    f = compile(fn)
    return [f(torch.ones(2), mode) for mode in ("same", "".join(("sa", "me")), "same", "other")]


@program
def bools_that_data_tells(compile):
    def fn(x):
        flag = (x > 1).any().item()
        return flag is True, flag is not False, flag is False, x + 1

    f = compile(fn)
    return [f(torch.ones(2) * n) for n in range(4)]


@program
def ints_that_data_tells(compile):
    def fn(x):
        n = int(x.sum())
        return n is 3, n in (3, 4), n in [True], n == True, n is n, n is None

    f = compile(fn)
    return [f(torch.ones(1) * n) for n in (3, 0, 1, 4, 3)]


@program
def sizes(compile):
    def fn(x, y):
        n, m = x.shape[0], y.shape[0]
        return n is m, n + 1 is m + 1, n is 3, (n > 3) is (m > 3), x * n

    f = compile(fn, dynamic=True)
    return [f(torch.ones(n), torch.ones(m)) for n in range(5) for m in (3, 4, n)]


@program
def floats_that_vary(compile):
    class Held:
        pass

    def fn(x, a, b):
        return a.rate is b.rate, a.rate is a.rate, x + a.rate

    f, a, b = compile(fn), Held(), Held()
    found = []
    for one, other in ((1.5, 2.5), (1.5, 1.5), (float("nan"),) * 2, (2.5, 2.5), (3.5, 4.5), (5.5, 5.5)):
        a.rate, b.rate = one, other
        found.append(call(f, torch.ones(2), a, b))
    return found


@program
def keys_that_equal_nothing(compile):
    known = float("nan")
    table = {known: 2, (1, known): 3}
    f = compile(lambda x, key: x * table.get(key, 5))
    return [f(torch.ones(2), key) for key in (known, float("nan"), known, (1, known), (1, float("nan")))]


@program
def functions_and_their_ids(compile):
    seen = {}

    def fn(x, function):
        seen[id(function)] = function.__name__
        return function(x), x[slice(None, None, 2).indices(3)[0]]

    f, functions = compile(fn), (asked_again, torch.sin, asked_again, lambda x: x)
    found = [f(torch.ones(3), function) for function in functions]
    return found, [seen[id(function)] for function in functions], len(seen)


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize("name", program)
def test_a_compiled_program_is_the_program(name):
    check(program[name])
