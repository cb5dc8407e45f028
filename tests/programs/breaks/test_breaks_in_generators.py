"""Programs whose graphs break while generators and iterators are at work."""


from __future__ import annotations

import collections

import pytest
import torch

from ..checking import Programs, call, check

program = Programs()


def tensors(x, n):
    try:
        for i in range(n):
            got = yield x + i
            if got is not None:
                print("got", got)
    finally:
        print("closed")


@program
def generators_in_flight(compile):
    def fn(x):
        g = tensors(x, 4)
        first = next(g)
        print("break")
        second = g.send("sent")
        total = first * second
        for t in g:
            total = total + t
            print("body")
        h = (t * 2 for t in tensors(x, 3))
        a = next(h)
        print("again")
        k = tensors(x, 5)
        next(k)
        print("thrown next")
        try:
            k.throw(KeyError("in"))
        except KeyError as error:
            print(repr(error))
        new = tensors(x, 2)
        print("not started")
        return total, a, list(h), list(new), list(k)

    f = compile(fn)
    return [f(torch.ones(2) * i) for i in range(2)]


@program
def generators_left_in_the_middle(compile):
    def fn(x, n):
        for t in tensors(x, 5):
            x = x + t
            if n == 1:
                break
        y = next(tensors(x, 2))
        return x + y, next(t for t in tensors(y, n))

    def outer(x, n):
        a = fn(x + 1, n)
        return a[0] * 2, a

    f, g = compile(fn), compile(outer)
    return [f(torch.ones(2), n) for n in (1, 2, 1)], [g(torch.ones(2), n) for n in (1, 2, 1)]


@program
def delegation(compile):
    def inner(x):
        total = 0
        while True:
            try:
                got = yield x + total
            except ValueError as error:
                print("inner caught", error)
                total = total + 10
                continue
            except KeyError:
                return "stopped"
            total = total + (got or 1)

    def outer(x):
        result = yield from inner(x)
        print(result)
        try:
            yield from [x * 2, x * 3]
        except ZeroDivisionError:
            yield x * 5
        return "end"

    def fn(x, k):
        g = outer(x)
        out = [next(g), g.send(5), g.throw(ValueError("v"))]
        if k == 1:
            print("break while it delegates")
        out += [next(g), g.throw(KeyError()), g.send(None)]
        if k == 2:
            print("break in a list")
        out.append(g.throw(ZeroDivisionError()))
        try:
            next(g)
        except StopIteration as stop:
            out.append(stop.value)
        h = outer(x)
        next(h)
        h.close()
        return out

    f = compile(fn)
    return [call(f, torch.ones(2), k) for k in range(3)]


@program
def iterators_over_what_changed_in_the_same_frame(compile):
    def fn(x, d, xs, q):
        d["new"] = 3
        xs += [7, 8]
        q.append(9)
        total = x
        for key, value in d.items():
            total = total + value
            print(key)
        for number, item in enumerate(xs):
            total = total * item
            print(number)
            if number == 0:
                xs.append(1)
        for item in xs:
            total = total - item
            print(item)
        for item in q:
            print(item)
        return total

    f = compile(fn)
    return [f(torch.ones(2), {"a": n}, [1] * n, collections.deque([n])) for n in (1, 2, 3)]


@program
def a_mode_that_a_suspended_generator_has_entered(compile):
    def graded(x, mode):
        with torch.enable_grad(), torch.set_grad_enabled(mode):
            yield x * 2
            yield x * 3

    def fn(x, mode):
        out = []
        for y in graded(x, mode):
            print(torch.is_grad_enabled())
            out.append(y)
        return out, torch.is_grad_enabled()

    f = compile(fn)
    return [f(torch.ones(2, requires_grad=True), mode) for mode in (False, True)]


@pytest.mark.parametrize("name", program)
def test_a_compiled_program_is_the_program(name):
    check(program[name])
