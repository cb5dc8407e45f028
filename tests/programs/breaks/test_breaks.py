"""Programs that break the graph in awkward places: loops, generators, managers, handlers, comprehensions, calls."""
# ruff: noqa: B007, B008, PIE804 - programs as people write them

from __future__ import annotations

import contextlib
import random

import ptdebug
import pytest
import torch
from ptdebug.tracer.frames import dispatch

from ..checking import Programs, call, check

program = Programs()


@contextlib.contextmanager
def managed(name):
    print("in", name)
    try:
        yield name
    except KeyError as error:
        print("swallowed", error)
    finally:
        print("out", name)


def talk(x, depth):
    if depth == 0:
        print("bottom")
        return x + 1
    y = x * 2
    return talk(y, depth - 1) - y


@program
def loops_over_everything(compile):
    def fn(x, xs, d):
        out = []
        for i in range(3):
            x = x + i
            print(i)
            x = x * 2
        for i, t in enumerate(xs):
            for k in (1, 2):
                t = t + k
                if k == 2 and i == 0:
                    continue
                print(i, k)
                out.append(t)
            if i == 2:
                break
        else:
            print("no break")
        for (name, value), t in zip(d.items(), reversed(xs)):
            print(name)
            x = x + value * t
        for t in map(torch.sin, xs):
            print("map")
            x = x + t
        return x, out

    f = compile(fn)
    x = torch.ones(2)
    return [f(x, [x + i for i in range(n)], {"a": x, "b": x * 2}) for n in (2, 3, 2, 4)]


@program
def while_loops(compile):
    def fn(x, n):
        i = 0
        while i < n:
            i += 1
            x = x + i
            print("step", i)
            j = 3
            while True:
                j -= 1
                if j == i:
                    continue
                if j < 0:
                    break
                x = x * 1.5
                print(j)
        else:
            print("done")
        return x

    f = compile(fn)
    return [f(torch.ones(2), n) for n in (0, 1, 3, 2)]


@program
def long_loop(compile):
    def fn(x, n):
        for i in range(n):
            x = x + 1
            if x.sum() > 1e6:
                return x, i
        return x, -1

    f = compile(fn)
    return [f(torch.zeros(2), n) for n in (10, 3000)], f(torch.tensor([999_000.0, 0.0]), 5000)


@program
def managers_around_a_break(compile):
    def fn(x, k):
        with managed("a") as a, managed("b"):
            x = x + 1
            print("inside", a)
            for i in range(3):
                with managed(i), contextlib.suppress(ValueError):
                    x = x * 2
                    print("loop", i)
                    if i == k:
                        raise ValueError(i)
                    if i == k - 1:
                        continue
                    if i == k - 2:
                        break
                    x = x + 3
            if k == 5:
                raise KeyError("five")
            if k == 6:
                raise RuntimeError("six")
            if k == 7:
                return x
        try:
            x = x - 1
            print("try")
            return x
        finally:
            print("finally")
            x = x * 0

    f = compile(fn)
    return [call(f, torch.ones(2), k) for k in range(8)]


@program
def comprehensions(compile):
    def fn(x, n):
        a = [talk(x, i) for i in range(n)]
        b = {i: print(i) or x + i for i in range(n)}
        x = sum(t * n for t in a)
        i = "kept"
        c = [[print("deep", i, j) or i * j for j in range(2)] for i in range(n)]
        return a, b, c, i, x

    f = compile(fn)
    return [f(torch.ones(2), n) for n in (2, 3, 1)]


@program
def grad_modes_that_were_set_when_made(compile):
    def fn(x, mode):
        with torch.set_grad_enabled(mode):
            y = x * 2
            print("break", torch.is_grad_enabled())
            raise KeyError(y.requires_grad)

    f = compile(fn)
    x = torch.ones(2, requires_grad=True)
    return [(call(f, x, mode), torch.is_grad_enabled()) for mode in (False, True, False)]


@program
def breaks_before_the_last_use_of_a_variable(compile):
    class Pair:
        def scaled(self):
            return 1

    def fn(x, k):
        c = {"k": x}
        call = c.update
        return call(Pair.scaled() if k == 1 else Pair.missing())

    f = compile(fn)
    return [call(f, torch.ones(2), k) for k in (1, 2)]


@program
def breaks_while_a_function_is_made(compile):
    def fn(x, flag):
        for t in (talk(t, flag) for t in x if flag):
            x = x + t
        y = x * 2

        def inner(a=talk(x, 1), *, b=talk(x, 2)):
            return a + b + y + flag

        numbers = [random.randint(0, 3) for _ in range(2)]
        return inner(), sum(numbers) + y

    f = compile(fn)
    random.seed(0)
    return [f(torch.ones(2), flag) for flag in (1, 0)]


@program
def comprehensions_that_hide_closure_variables(compile):
    def fn(x, q):
        def inner():
            return x + q

        a = [q * 2 for q in range(3)]
        print("one")
        b = [talk(x, q) for q in range(2)]
        print("two", q)
        return inner(), a, b, q

    f = compile(fn)
    return [f(torch.ones(2), q) for q in (1, 2)]


@program
def deep_inlining(compile):
    def fn(x):
        state = {"n": 0}

        def count():
            state["n"] += 1
            return state["n"]

        y = x + count()
        return y * talk(y + count(), 5) + count(), state

    f = compile(fn)
    return [f(torch.ones(2) * i) for i in range(3)]


@program
def anything_on_the_stack(compile):
    def fn(x, xs):
        return [
            x + 1, print("a"), (x * 2, [print("b"), x.sin()]), {"k": x - 1, print("c"): f"{len(xs)}{print('d')}"},
            *xs, max(1, 2, key=lambda v: print("e") or v), x if print("f") else -x,
            (lambda *a, **k: (a, k))(x, print("g"), *xs, z=print("h"), **{"w": x}),
        ]

    f = compile(fn)
    x = torch.ones(2)
    return [f(x, [x, x + 1][:n]) for n in (1, 2)]


@program
def breaks_before_a_closure_variable_without_a_value(compile):
    def fn(x, xs, drop):
        print("break")
        for t in xs:
            x = x + t
        if drop and xs:
            del t
        keep = lambda: t
        y = x * 2
        return y + t, keep

    f = compile(fn)
    x = torch.ones(2)
    return [call(lambda *a: f(*a)[0], x, [x] * n, drop) for n, drop in ((1, False), (0, False), (2, True), (2, False))]


class Scaled(torch.nn.Linear):
    def forward(self, x):
        mine = lambda: self
        for number in range(2):
            print(number, mine() is self)
            x = super().forward(x)
        above = super()
        print("done")
        return above.forward(x)

    def parts(self, x):
        yield x
        yield super().forward(x)


@program
def super_without_arguments_after_a_break(compile):
    class Own(Scaled):
        def forward(self, x):
            print("own")
            whole = super().forward(x)
            parts = self.parts(x)
            first = next(parts)
            print("parts")
            return whole, first, list(parts)

    return compile(Own(2, 2))(torch.ones(1, 2))


@program
def a_variable_that_an_inner_function_deletes(compile):
    def fn(x):
        y = x + 1

        def delete():
            nonlocal y
            del y

        print("break")
        delete()
        return y

    f = compile(fn)
    return [call(f, torch.ones(n)) for n in (1, 2)]


@pytest.mark.parametrize("name", program)
def test_a_compiled_program_is_the_program(name):
    check(program[name])


def test_each_iteration_is_captured_but_not_compiled_anew():
    graphs = []

    def backend(module, inputs):
        graphs.append(module)
        return module.forward

    @ptdebug.compile(backend=backend)
    def fn(x, n):
        for i in range(n):
            x = (x + 1) * 2
            if x.sum() > 1e9:
                return x
        return x

    dispatch.reset()
    fn(torch.zeros(2), 25)
    assert len(graphs) <= 3
    fn(torch.ones(2), 25)
    assert len(graphs) <= 3


def test_a_loop_that_is_too_long_to_follow_runs_in_eager(monkeypatch):
    monkeypatch.setattr("ptdebug.tracer.interpreter.limits.MOST_WORK", 200)

    def turns(x, n, log):
        log.append(n)
        while n > 0:
            n -= 1
        return x + n

    def items(x, n, log):
        log.append(sum(n for n in range(n)))
        return x * log[-1]

    def nested(x, n, log):
        return turns(x, n // 2, log) + items(x, n // 2, log)

    def read(x, n, log):
        log.append(n in log)
        return x + n

    for function in (turns, items, nested, read):
        for n in (30, 300):
            dispatch.reset()
            logs = list(range(-n, 0)), list(range(-n, 0))
            compiled = ptdebug.compile(function, backend=lambda module, inputs: module.forward)
            assert torch.equal(compiled(torch.ones(2), n, logs[0]), function(torch.ones(2), n, logs[1]))
            assert logs[0] == logs[1]
            said = "skipped: the function runs more Python than is traced"
            assert any(reason.startswith(said) for reason in dispatch.stats()["reasons"]) == (n == 300), function


def test_a_bool_read_before_a_loop_breaks_the_graph_there_and_not_at_each_turn():
    layers = [torch.sin, torch.cos, torch.tanh]

    def layer(x, layer, large):
        return layer(x) * 2 if large else layer(x)

    def stack(x):
        large = (x > 1).any().item()
        x = x + 1
        for i, of in enumerate(layers):
            x = layer(x, of, large) + i
        return x, large

    dispatch.reset()
    compiled = ptdebug.compile(stack, backend=lambda module, inputs: module.forward)
    for x in (torch.zeros(3), torch.ones(3) * 2, torch.zeros(3)):
        assert call(compiled, x)[0].tolist() == stack(x)[0].tolist()
    assert dispatch.stats()["graph_breaks"] == 1
    assert dispatch.stats()["graphs"] == 3  # what comes before, and what follows for each bool


def test_a_call_whose_operator_raised_leaves_no_broken_graph_to_later_calls():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.second(self.first(x).relu()).sin()

    net, x = Net(), torch.ones(2, 4)
    compiled = ptdebug.compile(net, backend=lambda module, inputs: module.forward)
    for _ in range(2):
        net.second.double()
        with pytest.raises(RuntimeError, match="dtype"):
            compiled(x)
        net.second.float()
        before = dispatch.stats()
        for _ in range(2):
            assert torch.equal(compiled(x), net(x))
        after = dispatch.stats()
        assert after["graph_breaks"] == before["graph_breaks"] > 0
    assert after["graphs"] == before["graphs"]  # the second time there was an entry for the good call
