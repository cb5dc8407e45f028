"""Programs about numbers of NumPy: those of arrays, those that vary, what they warn of."""
# mypy: ignore-errors

from __future__ import annotations

import warnings

import numpy as np
import ptdebug
import pytest
import torch
from ptdebug.tracer.runtime.statistics import STATISTICS

from ..checking import Programs, call, check, described

program = Programs()


@program
def numbers_of_arrays(compile):
    def f(x, a):
        s = a.sum()
        kinds = type(s), s.dtype, isinstance(s, float), isinstance(s, np.floating), s.shape, s.ndim
        mixed = x * s, s * x, s + 1, s / 2, s * a, -s, abs(s), x + a[1], np.float32(s) * 2, np.int64(a[2])
        return kinds, mixed, float(s) + 1, int(a[0]), s.item(), torch.tensor(s), a.tolist(), len(a), a.size

    return compile(f)(torch.ones(2), np.arange(3.0))


@program
def numbers_that_vary(compile):
    def f(x, v):
        scaled = x * v, v * x, x + np.sqrt(abs(v)), torch.where(x > 1, x, v), x.clamp(max=v * np.float32(2))
        numbers = v, v * 2, v / 3, v**2, -v, divmod(v, 2), float(v), v.item(), v.dtype, np.maximum(v, 0.5)
        numbers += np.clip(v, 0, 1), np.sign(v), sum([v, v, 1.5])
        made = torch.tensor(v), torch.as_tensor(v), torch.full((2,), v), x.new_tensor(v), torch.tensor(v).half()
        return scaled, numbers, made, v > 1, f"{v:.2f}", {v: v.is_integer()} if isinstance(v, float) else type(v)

    compiled = compile(f)
    numbers = 0.5, 0.1, -3.25, 0.0, -0.0, 1.5, 7.0
    return [compiled(torch.arange(3.0), kind(v)) for kind in (np.float32, np.float64, np.float16) for v in numbers]


@program
def numbers_that_numpy_warns_of(compile):
    def f(x, v):
        return x * 2, v * v, 1 / v, divmod(v, 2), np.float32(v) * np.float32(1e30)

    compiled = compile(f)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = [compiled(torch.ones(2), np.float32(v)) for v in (0.5, 1e30, 0.1, 0.0, np.inf, 0.7, 1e25)]
    return [repr(numbers) for numbers in got], [str(warning.message) for warning in caught]


@program
def numbers_set_in_tensors(compile):
    def f(x, v):
        x[0] = v
        return x * 2

    kinds = np.float64, np.float32, np.int64, np.bool_
    return [call(compile(f), torch.ones(2), kind(1)) for kind in kinds]


@pytest.mark.parametrize("name", program)
def test_a_program_with_numpy_is_the_program(name, as_the_engine, by_the_engine):
    check(program[name])


@pytest.mark.parametrize("name", program)
def test_another_backend_gets_graphs_that_cannot_warn(name, breaks_allowed):
    check(program[name])


def test_numbers_that_vary_are_inputs():
    def f(x, v):
        return x * (np.sqrt(v) + 1), v * np.float32(0.1)

    STATISTICS.clear()
    compiled = ptdebug.compile(f)
    for number in (0.5, 0.1, 0.25, 0.0, 3.0, 7.0):
        got, expected = compiled(torch.ones(2), np.float32(number)), f(torch.ones(2), np.float32(number))
        assert described(got) == described(expected)
    assert [reason.partition(":")[0] for reason in STATISTICS.reasons] == ["recompile"]


@program
def integers_that_vary(compile):
    def operators(x, n):
        return x * n, n * x + n, x**n, n - x, x / (n * n + 1), x.long() % (n + 20), torch.full((2,), n), x.clamp(max=n)

    def places(x, n):
        x = x.clone()
        x[n] = x[n, 1:].sum() + x[:n, 0].sum() + x[n : n + 2].sum()
        return x, x[n], x.narrow(0, abs(int(n)), 2), x[(n, 0)], torch.roll(x, n), x.sum(n % 2)

    def as_numbers(x, n):
        turns = list(range(n))
        read = f"{n}", {n: 1}, float(n), n, n + 1, type(n), n.dtype
        return x * int(n), n.item(), turns, read, -n, np.sqrt(abs(n)), [x][n - n]

    def branches(x, n, m):
        if n > 3 and n != m:
            return x + n, n < x, n == m, n > m, max(n, m)
        return (x - n, n // 2, n / 2, n & m, n << 1, divmod(n, m + 1)) if n else x

    def overflows(x, n):
        return x * (n * n), n + np.int8(1), n**2

    def held(x, owner):
        owner["step"] = owner["step"] + 1
        return x * owner["step"]

    numbers, x = (3, 1, 0, 5, 4, -2, 7, 8), torch.arange(60.0).view(12, 5)
    steps = {"step": np.int64(0)}
    out = [call(f, x, np.int64(n)) for f in map(compile, (operators, places, as_numbers)) for n in numbers]
    f, g, h = compile(branches), compile(overflows), compile(held)
    out += [call(f, x, kind(n), np.int64(5)) for kind in (np.int64, np.int16) for n in numbers]
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        out += [call(g, x, np.int8(n)) for n in (1, 2, 3, 100, 127)]
    return out, [h(x, steps) for _ in range(4)], steps, [str(w.message) for w in shown]


def test_integers_that_vary_are_inputs():
    def f(x, n):
        if n > 20:
            return x
        return x * n, x[n], x[:n] + (n + 1), x.view(-1)[int(n)], torch.zeros(abs(int(n)), 2)

    STATISTICS.clear()
    compiled, x = ptdebug.compile(f), torch.arange(60.0).view(12, 5)
    for number in (3, 2, 7, 11, 5, 10, 4, 9, 8):
        assert described(compiled(x, np.int64(number))) == described(f(x, np.int64(number)))
    assert len(STATISTICS.reasons) == 1, STATISTICS.reasons
