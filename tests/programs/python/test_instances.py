"""What the program asks about objects: isinstance by all that has a say in it, vars, truth of classes, slices compared;
and globals that are stored by name, through the module and through its dict."""
from __future__ import annotations

import sys
import types
import typing
import warnings

import pytest
import torch
from ptdebug.tracer.runtime.statistics import STATISTICS

from ..checking import Programs, call, check

program = Programs()
X = torch.arange(6.0).view(2, 3)


class Counted(type):
    def __instancecheck__(cls, other):
        return super().__instancecheck__(other) or getattr(other, "count", 0) > 2

    def __len__(cls):
        return cls.size


class Full(metaclass=Counted):
    size = 1


class Empty(metaclass=Counted):
    size = 0


class Claims:
    """It says that it is another class."""

    count = 0

    @property
    def __class__(self):
        return Full


@typing.runtime_checkable
class Sized(typing.Protocol):
    size: int


class Slots:
    __slots__ = ("count",)

    def __init__(self, count):
        self.count = count


@program
def instances(compile):
    f = compile(lambda x, o, kinds: (x + 1, isinstance(o, kinds)))
    buffer, parameter = torch.nn.Buffer(X.clone()), torch.nn.Parameter(X.clone())
    objects = [Full(), Slots(1), Slots(3), Claims(), X, buffer, parameter, X.double(), 3, None]
    kinds = [Full, (int, Full), torch.FloatTensor, torch.nn.Buffer, torch.nn.Parameter, Sized, int | None]
    return [call(f, X, o, kind) for kind in kinds for o in objects]


@program
def classes_and_attributes(compile):
    f = compile(lambda x, o: (x * 2 if Full else x, bool(Empty), o.__class__ is Full, vars(o)))
    return [call(f, X, o) for o in (Claims(), Slots(1), Full())]


@program
def slices(compile):
    def fn(x, n):
        a, b = slice(1, n), slice(1, 2)
        return x + 1, a == b, a != b, a == slice(1, n), a < slice(1, 3), slice(n) == slice(None, n, None), a == 1

    f = compile(fn)
    return [f(X, n) for n in (1, 2, 3, 2, 7)]


@program
def one_global_by_several_ways(compile):
    other = types.ModuleType("ptdebug_test_other")
    sys.modules[other.__name__] = other
    exec("N = 0\ndef bump(n):\n    global N\n    N += n\n    return N", vars(other))

    def fn(x, how):
        if how == 0:
            other.N += 1
            return x + 1, other.bump(2), other.N
        if how == 1:
            return x + 2, other.bump(1), other.N
        vars(other)["N"] += 5
        return x + other.bump(1), other.N, vars(other)["N"]

    f = compile(fn)
    return [f(X, how) for how in (0, 0, 1, 2, 2, 0)], other.N


@program
def a_decorated_function_with_a_break(compile):
    def fn(x):
        @torch.autocast("cpu", dtype=torch.bfloat16)
        def inner(a):
            print("inside", torch.is_autocast_enabled("cpu"))
            return a @ a.t()

        return inner(x), inner(x + 1), x @ x.t()

    f = compile(fn)
    return [f(X) for _ in range(2)]


@program
def warnings_that_raise(compile):
    def fn(x):
        w = (x.detach() * 1).requires_grad_()
        y = w * 2
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            print("now")
            y = torch.sin(y) + x
            return y.detach(), y.is_leaf

    f = compile(fn)
    return [f(X) for _ in range(2)]


@pytest.mark.parametrize("name", program)
def test_a_compiled_program_is_the_program(name):
    STATISTICS.clear()
    check(program[name])
    assert not [reason for reason in STATISTICS.reasons if reason.startswith("internal error")]


def test_sizes_of_an_optimizers_state_vary():
    def use(compile):
        def fn(x):
            w = x.detach().clone().requires_grad_(True)
            optimizer = torch.optim.RMSprop([{"params": [w], "lr": 0.2}])
            (w * x).sum().backward()
            optimizer.step()
            return w.detach()

        f = compile(fn, dynamic=True)
        return [f(torch.ones(n, 3)) for n in (2, 4)]

    STATISTICS.clear()
    check(use)
    assert not [reason for reason in STATISTICS.reasons if reason.startswith("internal error")]
