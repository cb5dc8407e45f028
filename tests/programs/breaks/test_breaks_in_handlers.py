"""Programs that break the graph where exceptions are raised, handled and chained."""
# ruff: noqa: B904, F841 - programs as people write them

from __future__ import annotations

import collections
import contextlib
import traceback
from dataclasses import dataclass

import pytest
import torch

from ..checking import Programs, call, check

program = Programs()


@program
def handlers(compile):
    def fail(x, n):
        if n % 2:
            raise ValueError("odd", n)
        raise KeyError(n)

    def fn(x, k):
        for i in range(k):
            try:
                x = x + 1
                fail(x, i)
            except ValueError as error:
                print("handling", error)
                x = x * 2
                if i == 3:
                    raise RuntimeError("chained") from error
            except KeyError:
                x = x - 1
                print("key")
                try:
                    if i == 4:
                        raise
                finally:
                    print("inner finally")
            else:
                print("never")
            finally:
                print("finally", i)
                x = x + 0.5
        return x

    f = compile(fn)
    return [call(f, torch.ones(2), k) for k in (1, 2, 3, 5, 4)]


@program
def an_index_that_data_tells_in_a_handler(compile):
    """A backend of the program's own has its graph's errors leave the frame."""
    def fn(x, index):
        try:
            y = x[index] + x[0]
        except IndexError as error:
            return x * 2, str(error)
        with contextlib.suppress(IndexError):
            y = y + x.index_select(0, index * 2)
        try:
            try:
                y = y + x[index * 2]
            finally:
                y = y + 1
        except IndexError:
            y = y * 2
        return y

    f, x = compile(fn), torch.arange(4.0)
    return [call(f, x, torch.tensor([index])) for index in (1, 7, 2, 3)]


@program
def missing_keys_inside_suppress(compile):
    class Lengths(dict):
        def __missing__(self, key):
            self[key] = len(key)
            return self[key]

    def fn(x, d):
        n = 100
        with contextlib.suppress(KeyError):
            n = collections.Counter("KEY")["a"] + d["three"]
            print("found", n)
        return x + n, d

    f = compile(fn)
    return [f(torch.ones(2), Lengths()) for _ in range(2)]


@program
def the_group_that_a_part_of_except_handles(compile):
    def fn(x):
        try:
            raise ExceptionGroup("g", [ValueError(1), KeyError(2), KeyError(3)])
        except* ValueError as group:
            print(group.exceptions)
        except* KeyError:
            y = x * 2
            raise IndexError(y.shape[0])

    def caught(x):
        try:
            f(x)
        except IndexError as error:
            return repr(error), repr(error.__context__)

    f = compile(fn)
    return [caught(torch.ones(n)) for n in (1, 2, 2)]


@program
def a_with_that_is_left_by_a_group_which_was_never_raised_before(compile):
    class Manager:
        def __enter__(self):
            return self

        def __exit__(self, kind, error, entries):
            print(kind.__name__, error.exceptions, entries is None)

    def fn(x):
        with Manager():
            print("break")
            try:
                raise ExceptionGroup("g", [ValueError(1), KeyError(x.shape[0])])
            except* KeyError:
                raise IndexError(3)
        return x

    f = compile(fn)
    return [call(f, torch.ones(n)) for n in (1, 2)]


@program
def a_frame_is_once_in_the_tracebacks_of_contexts(compile):
    def failing(x, n):
        if n % 2:
            raise ValueError(f"bad {n}")
        return x * n

    def checked(x, n):
        try:
            return failing(x, n)
        except KeyError:
            return x
        finally:
            print("checked")

    def fn(x, n):
        try:
            return checked(x, n)
        except ValueError as error:
            raise IndexError(n) from error

    def lines(x, n):
        try:
            return f(x, n)
        except IndexError as error:
            entries = traceback.extract_tb(error.__cause__.__traceback__)
            return [(entry.name, entry.line) for entry in entries]

    f = compile(fn)
    return [lines(torch.ones(2), n) for n in (1, 2, 3)]


@program
def tracebacks_that_the_program_reads_itself(compile):
    def failing(x, n):
        y = x.sin()
        print("failing")
        if n % 2:
            raise ValueError(f"bad {n}")
        return y

    def fn(x, n):
        try:
            return failing(x, n)
        except ValueError as error:
            entries = traceback.extract_tb(error.__traceback__)
            return x + 1, [(entry.name, entry.line) for entry in entries]

    f = compile(fn)
    return [f(torch.ones(2), n) for n in (1, 2, 3)]


@dataclass(frozen=True)
class FrozenError(Exception):
    code: int


@program
def exceptions_whose_attributes_cannot_be_set(compile):
    def fn(x, n):
        y = x + 1
        print("break")
        try:
            raise FrozenError(n)
        except FrozenError as error:
            with contextlib.suppress(KeyError):
                print("handling", error.code)
            raise

    f = compile(fn)
    return [call(f, torch.ones(2), n) for n in (1, 2)]


@program
def a_handler_that_takes_the_outer_ones_variable(compile):
    def fn(x, items):
        try:
            raise KeyError(1)
        except KeyError as error:
            try:
                items[99]
            except IndexError as error:
                print("break")
            return x, repr(error)

    f = compile(fn)
    return [call(f, torch.ones(n), []) for n in (1, 2)]


@pytest.mark.parametrize("name", program)
def test_a_compiled_program_is_the_program(name):
    check(program[name])
