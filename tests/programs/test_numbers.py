"""Programs that compute with many numbers that vary from call to call."""
# mypy: ignore-errors

from __future__ import annotations

import pytest
import torch

from .checking import Programs, check_whole

program = Programs()


def called(fn, compile):
    """`fn` at lists of forty numbers, each of which has varied by the second call."""
    f = compile(fn)
    return [f(torch.arange(4.0), [n * k - 3 * k for k in range(40)]) for n in (1, 2, 5, 2)]


@program
def sums_that_are_divided(compile):
    return called(lambda x, ns: (x * (sum(ns) % 7) + sum(ns) // 3, sum(ns, 1) % 2, divmod(sum(ns), 4)), compile)


@program
def divisors_that_are_sums(compile):
    return called(lambda x, ns: (x + 1000 % (sum(ns) + 1), ns[2] // (sum(ns) + 1)), compile)


@program
def divisions_that_are_summed(compile):
    return called(lambda x, ns: x * sum(n % 5 for n in ns) - sum(n // 3 for n in ns), compile)


@pytest.mark.parametrize("name", program)
def test_arithmetic_on_many_numbers(name: str) -> None:
    check_whole(program[name])
