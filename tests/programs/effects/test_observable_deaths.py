"""Programs that see objects die, by finalizers and weak references: the graph breaks there."""
from __future__ import annotations

import weakref

import pytest
import torch
from ptdebug.tracer.frames import dispatch

from ..checking import check


class Finalized:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def __del__(self):
        self.log.append((self.name, "gone"))


class Watched:
    def __init__(self, number=1):
        self.number = number


def with_a_callback_of_a_weak_reference(compile):
    def fn(x, holder):
        seen = []
        one = Watched()
        reference = weakref.ref(one, lambda _: seen.append("one"))
        y = x * one.number
        del one
        y = y * len(seen)
        other = weakref.ref(holder.number, lambda _: seen.append("other"))
        holder.number = None
        return y + len(seen), reference() is None, other() is None, seen

    f = compile(fn)
    return [f(torch.ones(2), Watched(Watched())) for _ in range(2)]


def with_weak_references_that_are_asked(compile):
    def made():
        return weakref.ref(Watched())

    def of_an_object(x):
        one = Watched(3)
        first, second = weakref.ref(one), made()
        y = x * first().number
        one = None
        return [y, *(y if reference() is None else y * 2 for reference in (first, second))], one

    def of_a_tensor(x):
        y = x + 1
        reference = weakref.ref(y)
        z = y * 2
        del y
        return z if reference() is None else z * 2

    return [f(torch.ones(2)) for f in map(compile, (of_an_object, of_a_tensor)) for _ in range(2)]


def in_weak_containers(compile):
    def fn(x):
        one = Watched()
        values, found = weakref.WeakValueDictionary(), weakref.WeakSet([one])
        values["one"] = one
        y = x + len(values) + len(found)
        del one
        return y + 10 * len(values) + 20 * len(found)

    f = compile(fn)
    return [f(torch.ones(2)) for _ in range(2)]


def taken_out_of_what_was_passed(compile):
    def fn(x, things, table):
        log.clear()
        things.append(Finalized(log, "appended"))
        table["key"] = Finalized(log, "stored")
        y = x + len(log)
        things.clear()
        y = y + 10 * len(log)
        del table["key"]
        return y + 100 * len(log)

    log = []
    f = compile(fn)
    return [f(torch.ones(2), [], {}) for _ in range(2)]


def with_the_list_that_a_variable_held(compile):
    def cleared(x, log):
        both = [Finalized(log, "one"), Finalized(log, "one")]  # eager lets go of the last one first
        both.clear()
        return x + len(log)

    def deleted(x, log):
        pair = [Finalized(log, "in a list"), 1]
        y = x * len(pair) + len(log)
        del pair
        return y + 10 * len(log)

    def replaced(x, log):
        table = {"key": (Finalized(log, "in a dict"),)}
        y = x * len(table) + len(log)
        table = None
        return y + 10 * len(log), table

    logs = [[], [], []]
    functions = map(compile, (cleared, deleted, replaced))
    return [f(torch.ones(2), log) for f, log in zip(functions, logs) for _ in range(2)], logs


def with_the_object_that_a_variable_held(compile):
    def deleted(x, log):
        one = Watched(Finalized(log, "in an object"))
        y = x + len(log)
        del one
        return y + 10 * len(log)

    def replaced(x, log):
        one = Watched([Watched(), {"key": Watched(Finalized(log, "deep in an object"))}])
        y = x + len(log)
        one = one.number[0]
        return y + 10 * len(log), one

    logs = [[], []]
    functions = map(compile, (deleted, replaced))
    return [f(torch.ones(2), log) for f, log in zip(functions, logs) for _ in range(2)], logs


THE_ONE = None


def replaced_in_a_global_a_cell_and_a_slot(compile):
    class Slotted:
        __slots__ = ("held",)

    def fn(x, slotted):
        global THE_ONE
        log = []
        THE_ONE = Finalized(log, "global")
        held = Finalized(log, "cell")
        slotted.held = Finalized(log, "slot")
        y = x + len(log)
        THE_ONE = None
        y = y + 10 * len(log)
        held = None
        y = y + 100 * len(log)
        del slotted.held
        return y + 1000 * len(log), log, (lambda: held)()

    f = compile(fn)
    return [f(torch.ones(2), Slotted()) for _ in range(2)]


class Batches:
    """Batches of an epoch after the other, from a generator that is replaced when it has ended."""

    def __init__(self, log, generate):
        self.log, self.generate = log, generate
        self.begin()

    def begin(self):
        self.current = self.generate(self.log)

    def next(self):
        try:
            return next(self.current)
        except StopIteration:
            self.begin()
            return next(self.current)


def plain(log):
    for number in range(2):
        try:
            log.append("asked")
        except ValueError:
            log.append("never")
        yield number


def cleaning(log):
    try:
        yield from plain(log)
    finally:
        log.append("closed")


def delegating(log):
    yield from cleaning(log)


def batches(compile, generate):
    def fn(x, source):
        y = x + source.next()
        source.begin()
        return y + len(source.log) + source.next()

    f = compile(fn)
    source = Batches([], generate)
    return [f(torch.ones(2), source) for _ in range(4)], source.log


@pytest.mark.parametrize("generate", [plain, cleaning, delegating])
def test_a_generator_that_is_replaced_is_seen_to_die_where_it_cleans_up(generate):
    check(lambda compile: batches(compile, generate))
    seen = any("may be deleted here" in reason for reason in dispatch.stats()["reasons"])
    assert seen is (generate is not plain)


SEEN_TO_DIE = (replaced_in_a_global_a_cell_and_a_slot, with_a_callback_of_a_weak_reference,
               with_weak_references_that_are_asked, in_weak_containers,
               taken_out_of_what_was_passed, with_the_list_that_a_variable_held,
               with_the_object_that_a_variable_held)  # fmt: skip


@pytest.mark.parametrize("program", SEEN_TO_DIE, ids=lambda program: program.__name__)
def test_the_graph_breaks_where_an_object_dies_that_the_program_sees_die(program):
    check(program)
    assert any("may be deleted here" in reason for reason in dispatch.stats()["reasons"])
