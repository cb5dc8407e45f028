"""Programs about exceptions and context managers: raised, caught, chained, in loops and in functions."""
# ruff: noqa: B904 - programs as people write them

from __future__ import annotations

import contextlib
import sys
import traceback

import pytest
import torch

from ..checking import Programs, call, check

program = Programs()


@program
def exc_chain(compile):
    def low(x):
        raise RuntimeError("low")

    def fn(x, k):
        y = x * 2
        try:
            low(y)
        except RuntimeError as e:
            if k == 0:
                raise TypeError("hi") from e
            if k == 1:
                raise KeyError("ctx")
            if k == 2:
                raise
            if k == 3:
                raise ValueError("none") from None
            y = y + 1
        return y

    f = compile(fn)
    return [call(f, torch.ones(2), k) for k in range(5)] * 2


@program
def ctxmgr(compile):
    log = []

    class C:
        def __init__(s, sw):
            s.sw = sw

        def __enter__(s):
            log.append("in")
            return s

        def __exit__(s, t, v, tb):
            log.append(("out", t.__name__ if t else None))
            return s.sw

    @contextlib.contextmanager
    def cm(x):
        log.append("cm")
        try:
            yield x + 1
        finally:
            log.append("cm-")

    def fn(x, k):
        with C(k == 1) as c, cm(x) as y:
            if k:
                raise ValueError(k)
            y = y * 2
            for i in range(3):
                with cm(y) as z:
                    if i == 1:
                        break
                y = z
            return y, c.sw
        return x

    f = compile(fn)
    return [call(f, torch.ones(2), k) for k in (0, 1, 2, 0)], log


@program
def inner_exceptions(compile):
    class MyErr(Exception):
        def __init__(s, code, t):
            super().__init__(f"code {code}")
            s.code = code
            s.t = t

    def check(x, k):
        if k > 2:
            raise MyErr(k, x * 2)
        return x

    def fn(x, k):
        y = x + 1
        try:
            y = check(y, k)
        except MyErr as e:
            if e.code == 4:
                raise
            return e.t, e.code, str(e)
        for i in range(5):
            try:
                if i == k:
                    raise StopIteration
                y = y * 2
            except StopIteration:
                break
        else:
            y = y - 1
        try:
            it = iter([1])
            next(it)
            next(it)
        except StopIteration:
            y = y + 100
        try:
            assert k != 1, "no one"
        except AssertionError as e:
            y = y - len(str(e))
        return y

    f = compile(fn)
    return [call(f, torch.ones(2), k) for k in range(5)] * 1


class Doubling(Exception):
    def __init__(self, value):
        super().__init__(value)
        self.value = value

    @property
    def twice(self):
        return self.value * 2

    @twice.setter
    def twice(self, value):
        self.value = value // 2


class Odd(Exception):
    def __setattr__(self, name, value):
        super().__setattr__(name, (value,))

    def __bool__(self):
        return False

    def __eq__(self, other):
        return other == 3

    __hash__ = Exception.__hash__


@program
def exceptions_whose_classes_say_how_they_behave(compile):
    def fn(x):
        doubling, odd = Doubling(x.shape[0]), Odd("odd")
        doubling.twice = 10
        odd.name = x
        return doubling.value, doubling.twice, odd.name, x + 1 if odd else x + 2, odd == 3, odd != 3

    f = compile(fn)
    return [f(torch.ones(n)) for n in (1, 2)]


@program
def an_exception_that_was_there_before_is_raised_and_caught(compile):
    def fn(x, error):
        try:
            raise error
        except ValueError as caught:
            y = x + 1
            print("handling", caught, traceback.format_exc().count("raise error"))
        try:
            raise error
        except ValueError:
            return y * 2

    f, error = compile(fn), ValueError("before")
    results = [f(torch.ones(n), error) for n in (1, 2)]
    return results, [entry.line for entry in traceback.extract_tb(error.__traceback__)]


def _while_handling(function):
    """What `function` gives without an exception that its caller handles, with one, and with one that is its own
    context."""
    found = [function(torch.ones(2))]
    for closed in (False, True):
        try:
            raise LookupError("outside")
        except LookupError as error:
            error.__context__ = error if closed else None
            found += [function(torch.ones(2)), repr(error.__context__)]
    return [*found, function(torch.ones(2))]


@program
def what_a_caller_handles_is_the_context(compile):
    def fn(x):
        try:
            try:
                raise KeyError(1)
            except KeyError:
                raise ValueError(2) from None
        except ValueError as error:
            inner = error.__context__
            return x * 2, repr(inner), repr(inner.__context__), error.__suppress_context__

    return _while_handling(compile(fn))


@program
def what_a_caller_handles_is_seen_and_raised(compile):
    def fn(x):
        seen = sys.exc_info()[0], repr(sys.exc_info()[1])
        try:
            raise
        except LookupError as error:
            return x * 2, seen, str(error)
        except RuntimeError as error:
            return x * 3, seen, str(error)

    return _while_handling(compile(fn))


@pytest.mark.parametrize("name", program)
def test_a_program_with_exceptions_is_the_program(name):
    check(program[name])
