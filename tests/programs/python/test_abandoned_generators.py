"""Generators that a program lets go of: after a throw, in the middle, or while another generator holds them."""
# mypy: ignore-errors

from __future__ import annotations

import contextlib

import pytest
import torch

from ..checking import Programs, call, check

program = Programs()
X = torch.ones(2)


def handler_inside_finally(x):
    try:
        try:
            yield x
        except RuntimeError:
            yield x * 2
        yield x * 3
    finally:
        print("finally")


def handler_beside_finally(x):
    try:
        yield x
    except RuntimeError:
        yield x * 2
    finally:
        print("finally")


def finally_inside_handler(x):
    try:
        yield x
    except RuntimeError:
        try:
            yield x * 2
        finally:
            print("finally")


def after_a_block(x):
    with contextlib.suppress(RuntimeError):
        yield x
    try:
        yield x * 2
    finally:
        print("finally")


def delegates(x):
    try:
        yield from handler_beside_finally(x)
    finally:
        print("outer")


def loops(x):
    for i in range(3):
        try:
            yield x * i
        except RuntimeError:
            continue
        finally:
            print("finally", i)


GENERATORS = [
    handler_inside_finally, handler_beside_finally, finally_inside_handler, after_a_block, delegates, loops,
]  # fmt: skip


def _thrown(generator, x):
    it = generator(x)
    next(it)
    it.throw(RuntimeError)
    return it


def left(generator, x):
    it = generator(x)
    next(it)
    it.throw(RuntimeError)
    return x * 2


def rebound(generator, x):
    it = generator(x)
    next(it)
    it.throw(RuntimeError)
    print("thrown")
    it = None
    print("end")
    return x * 2, it


def deleted(generator, x):
    it = generator(x)
    next(it)
    y = it.throw(RuntimeError)
    del it
    print("end")
    return y * 2


def left_after_a_break(generator, x):
    it = generator(x)
    next(it)
    it.throw(RuntimeError)
    torch._dynamo.graph_break()
    print("end")
    return x * 2


def held_by_its_method(generator, x):
    it = generator(x)
    next(it)
    throw = it.throw
    throw(RuntimeError)
    del it
    print("end")
    return x + 1


def held_by_a_list(generator, x):
    its = [generator(x)]
    next(its[0])
    its[0].throw(RuntimeError)
    its.clear()
    print("end")
    return x * 2


def left_by_a_loop(generator, x):
    it = generator(x)
    for _ in it:
        it.throw(RuntimeError)
        break
    print("end")
    return x * 2


def left_by_a_callee(generator, x):
    def inner():
        it = generator(x)
        next(it)
        it.throw(RuntimeError)

    inner()
    print("end")
    return x * 2


def left_by_a_handler(generator, x):
    it = generator(x)
    next(it)
    try:
        it.throw(RuntimeError)
        raise KeyError(1)
    except KeyError:
        print("handled")
    return x * 2


def closed(generator, x):
    it = _thrown(generator, x)
    it.close()
    print("end")
    return x * 2


def returned(generator, x):
    return _thrown(generator, x)


def thrown_twice(generator, x):
    it = _thrown(generator, x)
    it.throw(RuntimeError)
    return x * 2


def thrown_through(generator, x):
    it = generator(x)
    next(it)
    it.throw(ValueError("not handled"))
    return x


USES = [
    left, rebound, deleted, left_after_a_break, held_by_its_method, held_by_a_list, left_by_a_loop, left_by_a_callee,
    left_by_a_handler, closed, returned, thrown_twice, thrown_through,
]  # fmt: skip


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("generator", GENERATORS)
def test_what_is_thrown_into_a_generator(generator, use):
    check(lambda compile: call(compile(lambda x: use(generator, x)), X))
    check(lambda compile: call(compile(use), generator, X))


@program
def let_go_in_the_middle(compile):
    log = []

    def gen():
        try:
            yield 1
        finally:
            log.append("f")

    def h(x):
        it = gen()
        next(it)
        del it
        log.append("after")
        it = gen()
        next(it)
        it = None
        log.append("after2")
        next(gen())
        log.append("after3")
        for _ in gen():
            break
        log.append("after4")
        return x * 2

    return compile(h)(X), log


@program
def held_by_another_generator(compile):
    def inner(x):
        try:
            yield x
            yield x + 1
        finally:
            print("inner done")

    def delegates(x):
        yield from inner(x)

    def loops(x):
        held = inner(x)
        yield from (y * 2 for y in held)

    def in_a_loop(x):
        for held in [inner(x)]:
            next(held)
            yield x

    def let_go(x):
        for kind in (delegates, loops, in_a_loop):
            it = kind(x)
            y = next(it)
            it = None
            print("end")
        return y

    def left_behind(x):
        it = delegates(x)
        next(it)
        return x * 3

    return [call(compile(f), X) for f in (let_go, left_behind)]


@program
def sent_into_a_block(compile):
    def g(x):
        y = yield x
        while y is not None:
            try:
                y = yield x * y
            finally:
                print("leaving")

    def rebound(x):
        it = g(x)
        next(it)
        a = it.send(x)
        print("sent")
        it = None
        print("after")
        return a

    def by_its_method(x):
        it = g(x)
        next(it)
        send = it.send
        del it
        print(send(x).sum().item())
        print("sent")
        send = None
        print("after")
        return x

    def in_a_zip(x):
        pairs = zip(g(x), [1, 2])
        next(pairs)
        print("taken")
        pairs = None
        print("after")
        return x + 1

    return [call(compile(f), X) for f in (rebound, by_its_method, in_a_zip)]


@pytest.mark.parametrize("name", program)
def test_a_program(name):
    check(program[name])
