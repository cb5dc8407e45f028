"""Floats that vary are inputs of the graph: one recompilation, the same numbers as in eager."""
from __future__ import annotations

import math

import ptdebug
import pytest
import torch
from ptdebug.tracer.frames.dispatch import reset, stats

X = torch.linspace(-2, 3, 12).reshape(3, 4)
RATES = (0.1, 0.2, 0.3, 0.7, 3.0, 0.123456789123, 1e-30)


def same(a, b):
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and a.shape == b.shape
        torch.testing.assert_close(a, b, equal_nan=True)
    elif isinstance(a, (tuple, list)):
        assert type(a) is type(b) and len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    else:
        assert type(a) is type(b) and a == b


@pytest.mark.parametrize("function", [
    lambda x, a: x * a,
    lambda x, a: a / (x + 5),
    lambda x, a: torch.softmax(x / (a + 1.0), -1),
    lambda x, a: torch.add(x, x, alpha=a),
    lambda x, a: torch.where(x > a, x, a),
    lambda x, a: torch.arange(3) * a,  # an integer tensor: the float decides the dtype
    lambda x, a: torch.ones(2, dtype=torch.float64) * a,
    lambda x, a: x.half() * a,
    lambda x, a: x * (a * 0.1 * 3.0) + math.exp(-a) * math.atan2(a, 2.0),
    lambda x, a: (x.clone().mul_(a), a * 3, {"k": [a + 1]}["k"]),
    lambda x, a: torch.full((3,), a).masked_fill(X[:, 0] > 0, a * 2),
    lambda x, a: x * (a / x.shape[0]) + max(a, 0.25 * a),
])
def test_one_recompilation_serves_all(function):
    reset()
    compiled = ptdebug.compile(function)
    for rate in RATES:
        same(compiled(X, rate), function(X, rate))
    assert stats()["recompiles"] <= 1 and stats()["graph_breaks"] == 0
    assert not any("internal error" in reason for reason in stats()["reasons"])


@pytest.mark.parametrize("function", [
    lambda x, a, i: x * (a / x.shape[0]) + a * (x.shape[0] - 1) * x.shape[1],
    lambda x, a, i: (x * 2, 0.9 * a + 0.1 * float(i), a * (2 * i) - i / 7, math.exp(-i / a)),
    lambda x, a, i: x / (1 - 0.9**i) * 0.5 ** x.shape[0] - (a / 2) ** i - (-0.5) ** i,
    lambda x, a, i: x * math.log(x.shape[0]) + math.pow(0.5, x.shape[0]) + math.atan2(i, x.shape[0] + 1),
    lambda x, a, i: torch.cat([x, x[1:]]) * (a * x.shape[0]),
])
def test_ints_and_sizes_that_vary_make_floats(function):
    reset()
    compiled = ptdebug.compile(function)
    for i, rate in enumerate(RATES[:-1], 2):
        x = torch.linspace(-2, 3, 4 * i).reshape(i, 4)
        same(compiled(x, rate, i), function(x, rate, i))
    assert stats()["recompiles"] == 1 and stats()["graph_breaks"] == 0
    assert not any("internal error" in reason for reason in stats()["reasons"])


def test_numbers_that_a_size_makes_are_those_of_the_beginning():
    def function(x, a):
        share = a / (x.shape[0] - 3)
        x.data = torch.zeros(x.shape[0] + 1)
        y = x + a * x.shape[0]
        del x
        return y * share, share, math.log(y.shape[0])

    compiled = ptdebug.compile(function)
    for size, a in ((5, 0.5), (6, 1.5), (2, 2.5), (7, 0.25), (1, 1.0)):
        same(compiled(torch.ones(size), a), function(torch.ones(size), a))
    with pytest.raises(ZeroDivisionError):
        compiled(torch.ones(3), 4.5)


def test_decisions_by_a_float_are_guarded():
    def step(x, rate):
        return x * rate if rate * 2 > 0.5 else x + int(rate * 10)

    reset()
    compiled = ptdebug.compile(step)
    for rate in (0.1, 0.4, 0.3, 0.5, 0.15, 0.12, 0.21):
        same(compiled(X, rate), step(X, rate))
    reasons = [reason for reason in stats()["reasons"] if "recompile" in reason]
    assert any("(L['rate'] * 2) > 0.5" in reason for reason in reasons)
    assert any("int((L['rate'] * 10))" in reason for reason in reasons)


def test_another_type_or_no_number_is_another_compilation():
    def scale(x, a):
        return x * a, a

    compiled = ptdebug.compile(scale)
    for a in (0.5, 0.25, 2, 3, 2.5, True, -0.0, float("inf"), 7, 0.125):
        same(compiled(X, a), scale(X, a))
    result, number = compiled(X, float("nan"))
    assert result.isnan().all() and math.isnan(number)


def test_what_raises_in_python_raises():
    def inverse(x, a):
        return x + 1 / a

    compiled = ptdebug.compile(inverse)
    for a in (0.5, 0.25):
        same(compiled(X, a), inverse(X, a))
    with pytest.raises(ZeroDivisionError):
        compiled(X, 0.0)
    same(compiled(X, 0.125), inverse(X, 0.125))


def test_dynamic_false_keeps_it_a_number():
    reset()
    compiled = ptdebug.compile(lambda x, a: x * a, dynamic=False)
    for a in (0.5, 0.25, 0.125):
        same(compiled(X, a), X * a)
    assert stats()["recompiles"] == 2


def test_what_math_makes_of_an_int_that_varies_is_an_input():
    def warmed_up(x, step):
        return x * (0.5 * (1 + math.cos(math.pi * step / 10))), math.exp(-step), math.log(step + 1, 2)

    reset()
    compiled = ptdebug.compile(warmed_up)
    for step in (1, 2, 3, 7, 100):
        same(compiled(X, step), warmed_up(X, step))
    assert stats()["recompiles"] == 1 and stats()["graph_breaks"] == 0
    with pytest.raises(ValueError):
        compiled(X, -5)
