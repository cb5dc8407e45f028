"""Programs about what exceptions say and know: contexts, texts, tracebacks, calls that do not fit."""
# ruff: noqa: F841 - programs as people write them

from __future__ import annotations

import contextlib

import pytest
import torch

from ..checking import Programs, call, check_whole

program = Programs()
X = torch.arange(6.0).view(2, 3)


# ---- exceptions -----------------------------------------------------------------------------------------------------
class Failure(Exception):
    def __init__(self, code, text="m"):
        super().__init__(text)
        self.code = code

    def __str__(self):
        return f"[{self.code}] {self.args[0]}"


@program
def contexts_of_exceptions(compile):
    def fn(x, how):
        try:
            try:
                raise ValueError("a")
            except ValueError as first:
                try:
                    if how == 0:
                        raise KeyError("b") from first
                    if how == 1:
                        raise KeyError("b") from None
                    if how == 2:
                        raise KeyError("b")
                    raise
                except KeyError as second:
                    assert second.__context__ is first
                    raise TypeError("c") from OSError("d")
        except Exception as error:
            inner = error.__context__
            kinds = type(error), type(error.__cause__), type(inner), error.__suppress_context__
            return x + how, kinds, inner and (inner.args, type(inner.__context__), inner.__suppress_context__)

    f = compile(fn)
    return [f(X, how) for how in range(4)]


@program
def what_exceptions_say(compile):
    def fn(x):
        said = []
        for error in (Failure(3), KeyError("k"), ValueError("v", 1), FileNotFoundError(2, "no", "f.txt"), Failure):
            try:
                raise error if isinstance(error, Exception) else error(4, "made")
            except Exception as caught:
                said.append((str(caught), repr(caught), caught.args, getattr(caught, "code", None)))
        try:
            raise SystemExit(4)
        except SystemExit as stop:
            said.append(stop.code)
        try:
            missing = FileNotFoundError(2, "no", "f.txt")
            missing.add_note("look elsewhere")
            raise missing
        except OSError as error:
            said.append((error.errno, error.strerror, error.filename, error.__notes__))
        return x + 1, said

    f = compile(fn)
    return [f(X) for _ in range(2)]


@program
def exits_see_tracebacks(compile):
    class Manager:
        def __init__(self, log):
            self.log = log

        def __enter__(self):
            return self

        def __exit__(self, kind, error, traceback):
            self.log.append((kind, error is None, traceback is None, bool(traceback)))
            return True

    def fn(x):
        log = []
        with Manager(log):
            x = x + 1
        with Manager(log):
            raise ValueError("v")
        with contextlib.suppress(ZeroDivisionError), contextlib.ExitStack() as stack:
            stack.callback(log.append, "left")
            stack.callback(lambda: 1 / 0)
        return x, log

    f = compile(fn)
    return [f(X) for _ in range(2)]


@program
def calls_that_do_not_fit(compile):
    def scale(x, /, a=2, *, b):
        return x * a

    def fn(x, how):
        y = x + 1
        try:
            if how == 0:
                scale(x=y, b=1)
            if how == 1:
                first, second = 5  # noqa: RUF059
            if how == 2:
                first, *rest, last = [1]
            if how == 3:
                scale(y)
        except (TypeError, ValueError) as error:
            return y, type(error), str(error)

    f = compile(fn)
    return [call(f, X, how) for how in range(4)]


@program
def deleted_globals(compile):
    def fn(x):
        global SHORT_LIVED
        SHORT_LIVED = x.sin()
        y = SHORT_LIVED * 2
        del SHORT_LIVED
        try:
            return y, SHORT_LIVED
        except NameError as error:
            return y, str(error)

    f = compile(fn)
    return [f(X) for _ in range(2)], "SHORT_LIVED" in globals()


@pytest.mark.parametrize("name", program)
def test_a_captured_program_is_the_program(name):
    check_whole(program[name])
