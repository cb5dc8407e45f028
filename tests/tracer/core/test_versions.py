"""What the versions of CPython compile differently: comprehensions in place (3.12), super-instructions (3.13)."""
# ruff: noqa: B023, C416, UP008, PIE804, RET504 (the point of these programs is how they are compiled)
from __future__ import annotations

import contextlib

import pytest
import torch

from .conftest import outcome, same

X = torch.arange(6.0).reshape(2, 3)


def shadowed_cell(x):
    i = 10
    made = [lambda: i for i in range(3)]
    return x + i, made[0](), made[2](), i


def shadowed_cell_across_a_break(x):
    i = 10
    x = x + 1
    print(end="")
    made = [lambda: i for i in range(3)]
    return x + i, made[0](), i


def shadowed_variable(x):
    i, j = 5, x
    rows = [(i, j) for i in range(2) for j in range(2)]
    return rows, i, j + 1


def unbound_afterwards(x):
    pairs = {k: v for k, v in enumerate(x)}
    try:
        return k
    except NameError:
        return pairs


def raises_inside(x):
    i = 3
    try:
        made = [1 // i for i in (1, 0)]
    except ZeroDivisionError:
        made = i
    return x + 1, made


def keeps_a_cell(x):
    kept = 4
    made = [lambda: (i, kept) for i in range(2)]
    kept = 7
    return x + 1, [f() for f in made], kept


def nested_comprehensions(x):
    return [[a * b + x for a in range(2)] for b in [c for c in range(2)]]


def two_cells(x):
    a, b = 1, x

    def read():
        return a, b

    b = b + 1
    return read()


def annotated_defaults(x):
    def inner(a: int, b: int = 2, *, c: float = 3.0) -> int:
        return a + b + c + x

    return inner(1), inner(1, c=1), inner(1, 5)


def method_of_super(x):
    class_ = Derived()
    return class_.run(x)


class Base:
    bias = 2

    def run(self, x):
        return x * 2


class Derived(Base):
    def run(self, x):
        return super().run(x) + super().bias + super(Derived, self).run(x)


def sliced(x):
    items = [1, 2, 3, 4]
    items[1:3] = [7]
    start, stop = 0, 1
    return items[start:], x[start:stop], items[:stop]


def many_variables(x):
    a = b = c = d = e = f = g = h = i = j = k = m = n = o = p = x.shape[0]
    q = r = s = t = x
    total = a + b + c + d + e + f + g + h + i + j + k + m + n + o + p
    x = x + total
    print(end="")
    q = q + r
    s, t = t, s
    q, r = r, q
    return x + q, r, s * t, total


def branches_on_data(x):
    y = x + 1
    if y.sum() > 3:
        y = y * 2
    if not (y.sum() > 1000):
        y = y - 1
    return y if y.sum() > 0 and x.sum() else x


def keyword_call_breaks(x):
    y = x + 1
    print("", end="", flush=True)
    print(*[""], **{"end": ""})
    return y * 2


def loop_after_break(x):
    x = x + 1
    print(end="")
    total = 0
    for i, row in enumerate(x):
        total = total + row * i
    else:
        total = total - 1
    return total


def formats(x):
    n = 3
    return f"{n:>{n}} {n!r:>4} {n} {n!s}", f"{x.shape}", x + 1


@contextlib.contextmanager
def managed():
    yield 5


def break_in_with(x):
    x = x * 3
    with managed() as five:
        x = x + five
        print(end="")
        x = x * 2
    return x


def break_in_try(x):
    try:
        x = x + 1
        print(end="")
        x = x * 2
        raise ValueError("no")
    except ValueError as error:
        return x, str(error)
    finally:
        x = x + 3


def generator_expressions(x):
    scale = 3
    return sum(row * scale for row in x), any(i > 1 for i in range(3)), [*(i for i in range(2))]


WHOLE = [
    shadowed_cell, shadowed_variable, unbound_afterwards, raises_inside, keeps_a_cell, nested_comprehensions, two_cells,
    annotated_defaults, method_of_super, sliced, formats, generator_expressions,
]  # fmt: skip
BROKEN = [
    shadowed_cell_across_a_break, many_variables, branches_on_data, keyword_call_breaks, loop_after_break,
    break_in_with, break_in_try,
]  # fmt: skip


@pytest.mark.parametrize("program", WHOLE, ids=lambda f: f.__name__)
def test_one_graph(differential, program):
    traced = differential(program, X)
    assert not traced.result.breaks


@pytest.mark.parametrize("program", [*WHOLE, *BROKEN], ids=lambda f: f.__name__)
def test_under_the_hook(compiled, caplog, program):
    function, graphs = compiled(program)
    for _ in range(2):
        expected, found = outcome(program, (X.clone(),), {}), outcome(function, (X.clone(),), {})
        assert expected[0] == found[0] and same(expected[1], found[1]), (expected, found)
    assert graphs or program in (shadowed_cell_across_a_break, break_in_with)  # which run in eager as a whole
    assert "internal error" not in caplog.text
