"""Programs that draw from Python's `random`: what is drawn is an input of the graph, in the program's order, and the
generators are left as eager leaves them."""
from __future__ import annotations

import random
from collections.abc import Callable
from random import uniform
from typing import Any

import pytest
import torch
from ptdebug.tracer.runtime.statistics import STATISTICS

from ..checking import Programs, call, check, check_engine

whole, broken = Programs(), Programs()
X = torch.arange(12.0).view(3, 4)


def thrice(compile: Any, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Three calls, and what the generator gives after each."""
    f = compile(function)
    return [(call(f, *args), random.random()) for _ in range(3)]


@whole
def floats(compile):
    def fn(x):
        a, b = random.random(), random.uniform(-1, 1)
        c = random.gauss(0.5, 2) + random.normalvariate(0, 1) * random.expovariate(2.0) - random.betavariate(1, 2)
        return x * a + b, (a * 3 - b) / 7, x - c, abs(b), -a, a**2, 2.0**b, round(a, 3), uniform(2, 3)

    return thrice(compile, fn, X)


@whole
def ints(compile):
    def fn(x):
        i, j = random.randint(-3, 9), random.randrange(5)
        k = random.getrandbits(7)
        return x + i, x * (j + 1) - k, i * j + k, i / 4, i * 0.5, j - 2, torch.full((2,), i), int(random.random() * 10)

    return thrice(compile, fn, X)


@whole
def rolled_and_powers_of_signs(compile):
    def fn(x):
        return torch.roll(x, random.randint(0, 3), 1), x * random.choice([1, 2, 5]), x + random.choice((0.5, 1.5))

    return thrice(compile, fn, X)


@whole
def many_at_once(compile):
    def fn(x):
        order = list(range(4))
        random.shuffle(order)
        few = random.sample(range(100), 3)
        weighted = random.choices([1.0, 2.0, 4.0], weights=[1, 1, 2], k=2)
        return order, x * few[0] + few[1], few, sum(weighted) * x, weighted, x + order[0]

    return thrice(compile, fn, X)


@whole
def seeds_and_states(compile):
    def fn(x):
        before = random.getstate()
        a = random.random()
        random.setstate(before)
        b = random.random()
        random.seed(7)
        c = random.random()
        random.seed("text")
        return x + a, a - b, x * c, random.random(), before

    return thrice(compile, fn, X)


@whole
def own_generators(compile):
    class Jitter:
        def __init__(self):
            self.rng = random.Random(3)

        def __call__(self, x):
            return x * self.rng.uniform(0.9, 1.1) + self.rng.gauss(0, 1)

    jitter = Jitter()

    def fn(x, rng):
        fresh = random.Random(5)
        kept = fresh.random()
        return jitter(x), rng.random(), x * fresh.random() - kept, fresh

    rng = random.Random(11)
    found = thrice(compile, fn, X, rng)
    return [(x, a, y, fresh.random(), after) for (x, a, y, fresh), after in found], rng.random(), jitter.rng.getstate()


@whole
def kept_outside(compile):
    history, state = [], {"last": 0.0}

    def fn(x):
        scale = random.uniform(1, 2)
        history.append(scale)
        state["last"] = scale * 2
        state["count"] = random.randint(1, 6)
        return x.sum() * scale

    return thrice(compile, fn, X), history, state


@whole
def two_names_for_one(compile):
    draw, rng = random.random, random._inst

    def fn(x):
        return x * draw() + rng.random() - random.random()

    return thrice(compile, fn, X)


@whole
def with_gradients(compile):
    def fn(x, w):
        keep = random.uniform(0.5, 1)
        return ((x * w).relu() / keep).sum() * random.randint(1, 4)

    w = torch.ones(4, requires_grad=True)
    f = compile(fn)
    for _ in range(3):
        f(X, w).backward()
    return w.grad, random.random()


@broken
def branches(compile):
    def fn(x):
        y = x + 1
        if random.random() < 0.5:
            y = y * random.uniform(2, 3)
        else:
            y = y - 1
        for _ in range(random.randint(0, 2)):
            y = y * 2
        return y + random.random()

    f = compile(fn)
    return [(f(X), random.random()) for _ in range(6)]


@broken
def texts_and_keys(compile):
    def fn(x):
        a, i = random.random(), random.randint(0, 2)
        return x * a, f"{a:.3f} {i}", ["p", "q", "r"][i], {i: x}, i == 1, a > 0.5, bool(i), [x, x + 1, x + 2][i]

    return thrice(compile, fn, X)


@broken
def of_other_things(compile):
    functions = [torch.sin, torch.cos, torch.exp]

    def fn(x):
        names = ["a", "b", "c", "d"]
        random.shuffle(names)
        return random.choice(functions)(x), names, random.sample(["u", "v", "w"], 2), random.choice([True, False])

    return thrice(compile, fn, X)


@broken
def an_exception_leaves(compile):
    def fn(x, seen):
        seen.append(random.random())
        if x.sum() > 0 and len(seen) > 1:
            random.random()
            raise ValueError(len(seen))
        y = x[random.randint(1, 9) * 10]
        seen.append(random.random())
        return y

    seen: list[float] = []
    return thrice(compile, fn, X, seen), seen


@broken
def graph_that_raises(compile):
    def fn(x, i):
        a = random.random()
        y = x[i] * a
        random.gauss(0, 1)
        try:
            z = x[i + 2] + random.random()
        except IndexError:
            z = x - random.random()
        return y, z, random.random()

    f = compile(fn)
    return [(call(f, X, torch.tensor(i)), random.random()) for i in (0, 1, 0, 5, 1, 0)]


@broken
def around_breaks(compile):
    def fn(x):
        a = random.random()
        print("between", a > 2)
        b = random.random()
        for i in range(2):
            x = x * random.uniform(1, 2) + b
            print(i)
        return x * a

    return thrice(compile, fn, X)


@broken
def bad_arguments(compile):
    def fn(x, low, high):
        first = random.random()
        try:
            return x + random.randint(low, high) * first
        except ValueError as error:
            return str(error), random.random()

    f = compile(fn)
    return [(f(X, low, high), random.random()) for low, high in ((0, 3), (3, 0), (1, 5), (5, 1), (2, 9))]


@broken
def subclasses(compile):
    class Loaded(random.Random):
        def random(self):
            return 0.25

    loaded = Loaded()

    def fn(x):
        return x * loaded.random() + loaded.uniform(0, 4) + random.random()

    return thrice(compile, fn, X)


@broken
def regions(compile):
    def fn(x, w):
        def inner(x):
            return (x * w).sin() * random.random()

        return torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=False).sum() + random.random()

    w = torch.ones(4, requires_grad=True)
    f = compile(fn)
    for _ in range(3):
        f(X, w).backward()
    return w.grad, random.random()


@broken
def patched(compile):
    def fn(x):
        return x * random.random() + random.uniform(0, 1)

    f, before = compile(fn), random.random
    found = [f(X)]
    random.random = lambda: 0.5
    found.append(f(X))
    random.random = before
    return [*found, f(X), random.random()]


@torch.library.custom_op("ptdebug_random::jitter", mutates_args=())
def jitter(x: torch.Tensor) -> torch.Tensor:
    """RandomCalls where the tracer does not see it."""
    return x * random.random()


@jitter.register_fake
def _jitter_fake(x):
    return torch.empty_like(x)


@broken
def custom_operators(compile):
    def fn(x):
        return jitter(x * random.random()) + random.random()

    return thrice(compile, fn, X)


@broken
def divided_by_what_is_never_zero(compile):
    def fn(x, n):
        return x, n // (random.getrandbits(3) * x.numel() + 1)

    f = compile(fn)
    return [f(torch.ones(size), 7) for size in (2, 0, 3, 4)], random.random()


@pytest.mark.parametrize("name", whole)
def test_what_is_drawn_is_an_input(name: str) -> None:
    STATISTICS.clear()
    check(whole[name])
    assert (STATISTICS.graph_breaks, STATISTICS.recompiles) == (0, 0), dict(STATISTICS.reasons)


@pytest.mark.parametrize("name", broken)
def test_breaks_leave_generators_as_eager_does(name: str) -> None:
    check(broken[name])


@pytest.mark.parametrize("name", ["floats", "ints", "many_at_once", "with_gradients", "own_generators"])
def test_the_engine_takes_drawn_numbers(name: str) -> None:
    check_engine(whole[name])


def test_dropping_all_or_nothing_draws_no_numbers_where_the_probability_varies() -> None:
    def use(compile):
        layer = torch.nn.Dropout(0.5)
        function = compile(layer)
        found = []
        for layer.p in (0.5, 1.0, 0.25, 0.0, 1.0):
            found += [function(torch.ones(8)), torch.rand(1)]
        return found

    check_engine(use)
