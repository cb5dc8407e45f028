"""Variables of a compiled function that others look at: through the frame of their caller, or in a traceback."""

from __future__ import annotations

import inspect
import sys

import pytest
import torch

from tests.programs.checking import Programs, call, check

program = Programs()


def evaluated(text, depth=1):
    frame = sys._getframe(depth)
    return eval(text, frame.f_globals, frame.f_locals)


def names_of_caller():
    return sorted(inspect.currentframe().f_back.f_locals)


@program
def a_helper_evaluates_a_text_in_its_callers_variables(compile):
    @compile
    def scaled(x, k):
        a = x + 1
        b = k * 2  # noqa: F841
        c = a * 3  # noqa: F841
        return evaluated("a * b + c") + 1

    return [scaled(torch.ones(2), k) for k in (1, 2)]


@program
def such_a_helper_after_a_break(compile):
    @compile
    def scaled(x, k):
        a = x + 1
        b = k * 2
        print("scaled by", b)
        y = a * 3  # noqa: F841
        first = evaluated("a * b + y")
        return first + evaluated("first + b")

    return [scaled(torch.ones(2), k) for k in (1, 2)]


@program
def such_a_helper_called_by_a_helper(compile):
    def text(x):
        z = 3
        return x * z, names_of_caller()

    class Model(torch.nn.Module):
        def forward(self, x):
            a = 2
            y, names = text(x + a)
            return y, names, evaluated_above(y)

    def evaluated_above(y):
        return evaluated("a + 1", 2), y + 1

    return [compile(Model())(torch.ones(2)) for _ in range(2)]


@program
def a_function_looks_who_called_it_after_a_break(compile):
    def told_by_depth(x):
        y = x + 1
        print("before")
        return y, sys._getframe(1).f_code.co_name

    def told_step_by_step(x):
        y = x + 2
        print("before")
        return y, inspect.currentframe().f_back.f_code.co_name

    @compile
    def caller(x):
        return told_by_depth(x), told_step_by_step(x)

    return [caller(torch.ones(2)) for _ in range(2)]


@program
def a_traceback_has_the_variables_of_the_frame_that_raised(compile):
    def third(items, a):
        b = a + 1
        return items[b]

    @compile
    def raises(x, k):
        a = k + 1
        y = x * a
        z = [y, 2]
        if k == 2:
            raise ValueError("two")
        return z, third((x, x), a)

    found = []
    for k in (0, 1, 2, 2):
        try:
            raises(torch.ones(2), k)
        except (IndexError, ValueError) as error:
            place = error.__traceback__.tb_next
            while place is not None:
                variables = place.tb_frame.f_locals
                found.append({name: variables.get(name, "none") for name in "abkxy"})
                place = place.tb_next
    return found


@program
def the_code_of_its_own_frame(compile):
    def h(x, k=3):
        y = x * 2
        f = sys._getframe()
        return y, f.f_code.co_varnames, f.f_code.co_name

    return call(compile(h), torch.ones(2))


@program
def the_code_of_its_caller(compile):
    def show():
        return (
            sys._getframe(1).f_code.co_varnames,
            inspect.stack()[1].function,
            inspect.currentframe().f_back.f_code.co_varnames,
        )

    def h(x, k=3):
        y = x * 2
        z = show()
        return y + 1, z

    return call(compile(h), torch.ones(2))


@program
def the_code_of_a_traceback(compile):
    def h(x, k=3):
        y = x * 2
        try:
            raise ValueError
        except ValueError as e:
            f = e.__traceback__.tb_frame
            return y, f.f_code.co_varnames, f.f_code.co_names

    return call(compile(h), torch.ones(2))


@program
def the_code_after_a_break(compile):
    def h(x, k=3):
        y = x * 2
        torch._dynamo.graph_break()
        z = y + 1
        f = inspect.currentframe()
        w = z * 3
        return w, f.f_code.co_varnames, f.f_code.co_name

    return call(compile(h), torch.ones(2))


@pytest.mark.parametrize("name", program)
def test_program(name):
    check(program[name])
