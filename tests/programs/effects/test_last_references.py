"""Objects that die where an instruction takes the last reference to them: an operand, an argument, an iterator.

Each way to use an object is a function, compiled for every kind of object that a call at a graph break gives.
"""
# mypy: ignore-errors

from __future__ import annotations

import collections
import contextlib
import itertools

import pytest
import torch
from ptdebug.tracer.frames import dispatch

from ..checking import Programs, call, check

uses, uses_of_iterables = Programs(), Programs()


class Finalized:
    def __init__(self, log):
        self.log = log
        self.left = 2

    def __del__(self):
        self.log.append("gone")

    def __iter__(self):
        return self

    def __next__(self):
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return self.left

    def __eq__(self, other):
        return True

    __hash__ = None

    def close(self):
        self.log.append("closed")


class Holder:
    def __init__(self, held):
        self.held = held

    def close(self):
        pass

    def __iter__(self):
        return iter((1, 2))


def left_open(x, log):
    try:
        try:
            yield x
        except ValueError:
            yield x * 2
        yield x * 3
    finally:
        log.append("gone")


def thrown(x, log):
    it = left_open(x, log)
    next(it)
    it.throw(ValueError)
    return it


def started(x, log):
    torch._dynamo.graph_break()
    it = left_open(x, log)
    next(it)
    return it


def finalized(x, log):
    return Finalized(log)


def in_a_tuple(x, log):
    torch._dynamo.graph_break()
    return (Finalized(log), 1)


def in_a_dict(x, log):
    torch._dynamo.graph_break()
    return {"key": Finalized(log)}


def in_an_object(x, log):
    torch._dynamo.graph_break()
    return Holder(Finalized(log))


ITERABLES = (thrown, started, finalized, in_an_object)
MADE = (*ITERABLES, in_a_tuple, in_a_dict)


@uses
def dropped(make, x, log):
    y = x + 1
    make(x, log)
    log.append("end")
    return y * 2


@uses
def compared(make, x, log):
    y = x + 1
    same = make(x, log) == log.append("compared")
    log.append("end")
    return y * same


@uses
def asked_for_its_class(make, x, log):
    kind = make(x, log).__class__.__name__
    log.append("end")
    return x * 2, kind


@uses
def with_its_truth_asked(make, x, log):
    y = x + 1 if make(x, log) else x
    log.append("end")
    return y * 2


@uses
def beside_an_effect(make, x, log):
    y = x + 1
    (make(x, log), log.append("beside"))[1]
    log.append("end")
    return y * 2


@uses
def passed(make, x, log):
    y = (lambda made, _: log.append("called") or x)(make(x, log), log.append("passing"))
    log.append("end")
    return y * 2


@uses
def rebound(make, x, log):
    one, other = make(x, log), log.append("bound")
    log.append("rebinding")
    one = other
    log.append("end")
    return x * 2, one


@uses
def held_by_a_list(make, x, log):
    one = make(x, log)
    log.append("made")
    one = [one]
    log.append("held")
    one = None
    log.append("end")
    return x * 2, one


@uses
def taken_out_of_a_list(make, x, log):
    both = [make(x, log), log.append("made")]
    log.append("held")
    both.pop(0)
    log.append("end")
    return x * 2, both


@uses
def replaced_in_a_dict(make, x, log):
    table = {"key": make(x, log)}
    log.append("held")
    table["key"] = 1
    log.append("end")
    return x * 2, table


@uses
def held_by_a_closure(make, x, log):
    one = make(x, log)

    held = [lambda: one]
    log.append("held")
    held[0] = one = None
    log.append("end")
    return x * 2, held, one


@uses
def in_each_turn_of_a_loop(make, x, log):
    for turn in range(2):
        (make(x, log), log.append("beside"))[1]
        log.append(turn)
    return x * 2


@uses
def in_a_try_beside_another(make, x, log):
    def inner():
        for turn in range(2):
            other = left_open(x, log)
            next(other)
            try:
                make(x, log)
            except KeyError:
                pass
            log.append(turn)
        return x * 2

    return inner()


@uses
def at_the_end(make, x, log):
    one = make(x, log)  # noqa: F841
    log.append("last line")
    return x * 2


@uses_of_iterables
def looped_over(make, x, log):
    for _ in make(x, log):
        log.append("item")
    log.append("end")
    return x * 2


@uses_of_iterables
def left_by_a_loop(make, x, log):
    for _ in make(x, log):
        log.append("item")
        break
    log.append("end")
    return x * 2


@uses_of_iterables
def used_up(make, x, log):
    y = x + 1
    found = [len(kind(make(x, log))) for kind in (list, tuple, collections.deque)]
    log.append("end")
    return y * 2, found


@uses_of_iterables
def unpacked(make, x, log):
    first, *_ = make(x, log)
    log.append("end")
    return first + x


@uses_of_iterables
def asked_for_one(make, x, log):
    one = next(iter(make(x, log)), None)
    log.append("end")
    return one + x


@uses_of_iterables
def zipped(make, x, log):
    pairs = list(zip(make(x, log), [1]))
    log.append("end")
    return x * 2, pairs


@uses_of_iterables
def cut_short(make, x, log):
    some = list(itertools.islice(make(x, log), 1))
    log.append("end")
    return x * 2, some


@uses_of_iterables
def added_up(make, x, log):
    y = x + sum(1 for _ in make(x, log))
    log.append("end")
    return y, any(log.append("asked") for _ in make(x, log))


@uses_of_iterables
def made_a_dict_of(make, x, log):
    table = dict(enumerate(make(x, log)))
    log.append("end")
    return x * len(table)


@uses_of_iterables
def delegated_to(make, x, log):
    def outer():
        yield from make(x, log)

    for _ in outer():
        log.append("item")
        break
    log.append("end")
    return x * 2


@uses_of_iterables
def entered(make, x, log):
    with contextlib.closing(make(x, log)):
        log.append("inside")
    log.append("end")
    return x * 2


@pytest.mark.parametrize("use", [*uses, *uses_of_iterables])
def test_what_nothing_refers_to_any_more_dies_there(use):
    function, made = (uses[use], MADE) if use in uses else (uses_of_iterables[use], ITERABLES)

    def program(compile):
        logs = {make.__name__: [] for make in made}
        f = compile(function)
        return [call(f, make, torch.ones(2), logs[make.__name__]) for make in made for _ in range(2)], logs

    check(program)


class Registry:
    slot = None


def let_go_with_its_holder(compile):
    def variable(x, log):
        held = Holder({"key": Holder(Finalized(log))})
        torch._dynamo.graph_break()
        log.append("held")
        held = None
        log.append("end")
        return x * 2, held

    def attribute(x, log):
        held = Holder(Holder(Finalized(log)))
        torch._dynamo.graph_break()
        log.append("held")
        held.held = None
        log.append("end")
        return x * 2

    def attribute_of_a_class(x, log):
        Registry.slot = Holder(Finalized(log))
        torch._dynamo.graph_break()
        log.append("held")
        Registry.slot = None
        log.append("end")
        return x * 2

    def at_the_end(x, log):
        held = [Holder(Finalized(log))]  # noqa: F841
        y = x + 1
        torch._dynamo.graph_break()
        log.append("last line")
        return y * 2

    functions = (variable, attribute, attribute_of_a_class, at_the_end)
    logs = {function.__name__: [] for function in functions}
    return [f(torch.ones(2), log) for f, log in zip(map(compile, functions), logs.values()) for _ in range(2)], logs


def test_what_an_object_holds_dies_with_it():
    check(let_go_with_its_holder)


def test_what_holds_nothing_is_passed_as_it_is():
    def program(compile):
        def fn(x, value):
            y = x + 1
            given = given_back(value)
            return y * 2, given

        @torch._dynamo.disable
        def given_back(value):
            return value

        f = compile(fn)
        values = (1, "a", None, (1, torch.ones(1)), [1, 2], [[1], {}], {"a": 1}, Holder(1), iter([1, 2]), zip([1], [2]))
        return [call(f, torch.ones(2), value) for value in values]

    check(program)
    assert not any("restored its stack" in reason for reason in dispatch.stats()["reasons"])
