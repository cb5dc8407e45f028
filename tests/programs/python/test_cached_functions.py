"""Functions with `functools.lru_cache`: what the cache holds for an argument is what a call gives, changed or not."""
# mypy: ignore-errors

from __future__ import annotations

import dataclasses
import enum
import functools
import typing

import pytest
import torch
from torch import nn

from ..checking import Programs, check, check_whole

program, whole = Programs(), Programs()
X = torch.arange(4.0) + 1


class Plain:
    def __init__(self, a):
        self.a = a


class Equal(Plain):
    def __hash__(self):
        return 3

    def __eq__(self, other):
        return self.a == other.a


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int


class Pair(typing.NamedTuple):
    a: int
    b: int


class Letter(enum.Enum):
    A = 1
    B = 2


def cached():
    return functools.lru_cache(lambda o: o.a * 2)


@program
def objects_that_change(compile):
    g, objects = cached(), [Plain(1), Plain(2)]
    f = compile(lambda x, o: x + g(o))
    results = [f(X, o) for o in objects + objects]
    objects[0].a = 10
    results.append(f(X, objects[0]))
    g.cache_clear()
    return [*results, f(X, objects[0])], g.cache_info()


@program
def objects_that_are_equal(compile):
    g, objects = cached(), [Equal(1), Equal(1), Equal(2)]
    f = compile(lambda x, o: x + g(o))
    return [f(X, o) for o in objects + objects], g.cache_info()


@program
def an_object_that_changes_inside(compile):
    g, o = cached(), Plain(1)

    def f(x):
        before = g(o)
        o.a += 1
        return x + before + g(o)

    f = compile(f)
    return f(X), f(X), o.a


@program
def an_object_made_inside_that_changes(compile):
    g = cached()

    def f(x):
        o = Plain(3)
        before = g(o)
        o.a = 10
        return x + before + g(o)

    f = compile(f)
    return f(X), f(X)


@program
def functions_whose_closure_changes(compile):
    g, number = functools.lru_cache(lambda f: f(3)), [2]
    f = compile(lambda x: x + g(scale))

    def scale(n):
        return n * number[0]

    first = f(X)
    number[0] = 7
    return first, f(X)


@program
def modules_that_change(compile):
    count = functools.lru_cache(lambda m: sum(p.numel() for p in m.parameters()))
    m = nn.Linear(2, 2)
    f = compile(lambda x: x + count(m))
    first = f(X)
    m.bias = None
    second = f(X)
    count.cache_clear()
    return first, second, f(X)


@program
def tensors_of_other_sizes_later(compile):
    rows = functools.lru_cache(lambda t: t.shape[0])
    f = compile(lambda x: x + rows(x))
    x = X.clone()
    first = f(x)
    x.resize_(2)
    return first, f(x)


@program
def methods_of_a_module(compile):
    class Scaled(nn.Module):
        k = 2

        @functools.lru_cache  # noqa: B019
        def scale(self):
            return self.k * 3

        def forward(self, x):
            return x * self.scale()

    m = Scaled()
    f = compile(m)
    first = f(X)
    m.k = 5
    second = f(X)
    Scaled.scale.cache_clear()
    return first, second, f(X)


@whole
def frozen_dataclasses(compile):
    g = cached()
    f = compile(lambda x, o: x + g(o))
    h = compile(lambda x, n: x + g(Frozen(n)))
    return [f(X, Frozen(n)) for n in (1, 2, 1)], [h(X, n) for n in (1, 2, 1)]


@whole
def members_and_named_tuples(compile):
    g, value = cached(), functools.lru_cache(lambda o: o.value)
    f = compile(lambda x, o: x + g(o))
    h = compile(lambda x, o: x + value(o))
    return [f(X, Pair(n, 2)) for n in (1, 3, 1)], [h(X, o) for o in (Letter.A, Letter.B, Letter.A)]


@whole
def tensors_made_inside(compile):
    rows = functools.lru_cache(lambda t: t.shape[0])
    return compile(lambda x: x * rows(x * 2) + rows(x[1:]))(X[:1])


@whole
def sizes_that_vary(compile):
    g = functools.lru_cache(lambda n: n * 2)
    f = compile(lambda x: x * g(x.shape[0]))
    return [f(torch.ones(n)) for n in (2, 3, 4, 5)]


@pytest.mark.parametrize("name", program)
def test_a_program(name):
    check(program[name])


@pytest.mark.parametrize("name", whole)
def test_a_program_without_a_break(name):
    check_whole(whole[name])
