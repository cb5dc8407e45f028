"""What the program lets go of dies where it dies in eager: finalizers run there, and memory is free."""
from __future__ import annotations

import copy
import gc
import tempfile
import weakref
from pathlib import Path

import ptdebug
import pytest
import torch
from ptdebug.tracer.frames import compilation, dispatch

from ..checking import call, check


def left_open(log, x, name):
    try:
        for i in range(3):
            log.append((name, i))
            yield x + i
    finally:
        log.append((name, "closed"))


def at_the_end_of_the_frame(compile):
    def fn(x):
        first, second = left_open(log, x, "first"), left_open(log, x, "second")
        y = next(first) + next(second)
        log.append("last line")
        return y * 2

    log = []
    return compile(fn)(torch.ones(2)), log


def after_breaks(compile):
    def fn(x):
        one = left_open(log, x, "one")
        y = next(one)
        print("here")
        log.append("still open")
        print("there")
        return y + 1

    log = []
    return compile(fn)(torch.ones(2)), log


def when_its_variable_is_taken(compile):
    def fn(x):
        z = left_open(log, x, "first")
        y = next(z)
        print("here")
        z = left_open(log, x, "second")
        log.append("first is gone")
        y = y + next(z)
        print("there")
        del z
        log.append("second is gone")
        return y + 1

    log = []
    return compile(fn)(torch.ones(2)), log


def when_a_frame_that_got_it_from_an_earlier_part_returns(compile):
    def fn(x):
        z = left_open(log, x, "held")
        y = next(z)
        print("break")
        log.append("last line")
        return y * 2

    log = []
    return compile(fn)(torch.ones(2)), log


def when_its_loop_is_left(compile):
    def fn(x, n):
        for y in left_open(log, x, "outer"):
            print("in")
            for z in left_open(log, y, "inner"):
                y = y + z
                if n > 0:
                    break
            log.append("after inner")
            if n > 1:
                break
        log.append("after outer")
        return y

    log = []
    f = compile(fn)
    return [f(torch.ones(2), n) for n in (1, 2, 2)], log


def where_too_many_compilations_leave_the_rest_to_eager(compile):
    def fn(x, n):
        for i in range(n):
            print("turn", i)
            z = left_open(log, x, i)
            x = x + next(z)
            log.append(len(log))  # another length in each turn: a guard fails
        return x

    log = []
    return compile(fn)(torch.ones(2), 14), log


class Finalized:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def __del__(self):
        self.log.append((self.name, "gone"))


def objects_with_a_finalizer_after_breaks(compile):
    def made(name):
        print("made")
        return Finalized(log, name)

    def fn(x):
        first, second = Finalized(log, "first"), made("second")
        y = x + len(first.name) + len(second.name)
        print("break")
        log.append("both there")
        print("again")
        log.append("last line")
        return y * 2

    log = []
    return compile(fn)(torch.ones(2)), log


def with_the_exception_whose_frames_hold_it(compile):
    def failing(x):
        z = left_open(log, x, "held")
        next(z)
        print("failing")
        raise KeyError("k")

    def fn(x):
        y = x + 1
        try:
            failing(x)
        except KeyError as error:
            log.append(str(error))
            print("handled")
            log.append("still there")
            print("it goes")
        log.append("gone")
        print("again")
        try:
            failing(x)
        except KeyError:
            y = y * 2
        print("after")
        return y

    log = []
    return compile(fn)(torch.ones(2)), log


def with_the_exception_that_leaves_its_frame(compile):
    def failing(x, n):
        try:
            z = left_open(log, x, "held")
            y = next(z)
            print("failing")
            if n:
                raise KeyError("k")
            return y * 2
        finally:
            log.append("finally")
            print("cleaned up")

    def fn(x, n):
        y = x + 1
        try:
            y = failing(y, n)
        except KeyError as error:
            log.append(str(error))
        log.append("gone")
        return y

    log = []
    f = compile(fn)
    return [f(torch.ones(2), n) for n in (1, 0, 1)], log


PROGRAMS = (at_the_end_of_the_frame, after_breaks, when_its_variable_is_taken,
            when_a_frame_that_got_it_from_an_earlier_part_returns, when_its_loop_is_left,
            where_too_many_compilations_leave_the_rest_to_eager, objects_with_a_finalizer_after_breaks,
            with_the_exception_whose_frames_hold_it, with_the_exception_that_leaves_its_frame)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_generators_are_closed_and_finalizers_run_where_eager_does_so(program):
    check(program)


class Thing:
    n = 1


def whole(x, thing):
    return x * thing.n


def broken(x, thing):
    y = x * thing.n
    print("break")
    return y + 1


def suspended(x, thing):
    z = left_open([], x * thing.n, "z")
    y = next(z)
    print("break")
    return y + 1


def caught(x, thing):
    try:
        raise ValueError(thing)
    except ValueError:
        print("break")
    return x + thing.n


def begun(x, thing):
    return (x * thing.n).detach().requires_grad_()


def with_its_class(x, thing):
    class Own:
        n = thing.n

    return x * Own.n, Own


def told(x, thing):
    return x * thing.n, "%s, %s" % (thing, x)  # noqa: UP031


@pytest.mark.parametrize(
    "function", (whole, broken, suspended, caught, begun, with_its_class, told), ids=lambda function: function.__name__
)
def test_nothing_of_the_program_waits_for_the_garbage_collector(function):
    dispatch.reset()
    compiled = ptdebug.compile(function, backend=lambda module, inputs: module.forward)
    x, thing = torch.ones(3), Thing()
    held = weakref.ref(x), weakref.ref(thing)
    gc.disable()
    try:
        compiled(x, thing)
        del x, thing
        assert [reference() for reference in held] == [None, None]
    finally:
        gc.enable()


def test_what_a_varying_float_was_computed_beside_dies_with_the_frame():
    died = []

    class Held:
        def __del__(self):
            died.append(len(died))

    def fn(x, v, held):
        (x - v).masked_fill  # noqa: B018 - read and dropped
        return (x - v) * 2

    compiled = ptdebug.compile(fn, backend=lambda module, inputs: module.forward)
    gc.collect()
    gc.disable()
    try:
        for v in (1.5, 2.5, 3.5, 4.5):
            compiled(torch.ones(2), v, Held())
            assert len(died) == int(v)
    finally:
        gc.enable()


def test_what_guards_of_a_module_were_written_from_dies_with_the_module():
    def use(compile):
        net, ran = torch.nn.Linear(3, 3), []

        def fn(x):
            handle = copy.deepcopy(net).register_forward_hook(lambda *_: ran.append(1))
            y = copy.deepcopy(net)(x)
            alive = handle.hooks_dict_ref() is not None
            handle.remove()
            return y, alive

        f = compile(fn)
        return [f(torch.ones(2, 3)) for _ in range(2)], ran

    gc.disable()
    try:
        check(use)
    finally:
        gc.enable()
    assert not any(reason.startswith("internal error") for reason in dispatch.stats()["reasons"])


def test_the_referent_of_a_weak_reference_lives_until_its_guards_are_written(monkeypatch):
    class Node:
        pass

    def made():
        node = Node()
        node.itself, node.number = node, 3
        return weakref.ref(node)

    def collected_first(*args):
        gc.collect()
        return build_tree(*args)

    build_tree = compilation.build_tree
    monkeypatch.setattr(compilation, "build_tree", collected_first)
    dispatch.reset()
    compiled = ptdebug.compile(lambda x, reference: x + reference().number, backend=lambda graph, inputs: graph.forward)
    gc.disable()
    try:
        assert compiled(torch.ones(2), made()).tolist() == [4, 4]
    finally:
        gc.enable()
    assert dispatch.stats()["graphs"] == 1
    assert not any(reason.startswith("internal error") for reason in dispatch.stats()["reasons"])


def in_variables_that_are_not_read_again(compile):
    def grow(x, data):
        view = memoryview(data)  # noqa: F841
        y = x + 1
        print("break")
        data.append(1)
        return y

    def write(x, path):
        file = path.open("w")
        file.write("text")
        y = x + 1
        print("break")
        return y, path.read_text()

    with tempfile.TemporaryDirectory() as folder:
        f, g = compile(grow), compile(write)
        return [(call(f, torch.ones(n), bytearray(b"a")), g(torch.ones(n), Path(folder) / "a")) for n in (1, 2)]


def test_views_of_bytes_and_files_live_as_long_as_their_variables():
    check(in_variables_that_are_not_read_again)
