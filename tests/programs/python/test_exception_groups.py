"""Programs about groups of exceptions."""

# mypy: ignore-errors

from __future__ import annotations

import pytest
import torch

from ..checking import Programs, call, check

program = Programs()
X = torch.ones(2)


@program
def a_group_that_is_its_own_context(compile):
    def h(x):
        try:
            raise ExceptionGroup("g", [ValueError(1), KeyError(2)])
        except ExceptionGroup as g:
            g.__context__ = g
            try:
                raise TypeError("z")
            except TypeError as t:
                return x * 2, [repr(e) for e in g.exceptions], repr(t.__context__)

    return call(compile(h), X)


@program
def groups_split_and_handled(compile):
    def h(x):
        out = []
        try:
            raise ExceptionGroup("g", [ValueError(1), TypeError(2), ExceptionGroup("h", [ValueError(3), KeyError(4)])])
        except* ValueError as g:
            out.append([repr(e) for e in g.exceptions])
        except* (TypeError, KeyError) as g:
            out.append(repr(g))
        eg = ExceptionGroup("z", [ValueError(1), KeyError(2)])
        a, b = eg.split(ValueError)
        c = eg.subgroup(lambda e: isinstance(e, KeyError))
        d = eg.derive([TypeError(5)])
        eg.add_note("note")
        return x * 2, out, repr(a), repr(b), repr(c), repr(d), eg.message, len(eg.exceptions), eg.__notes__

    return call(compile(h), X)


@program
def a_group_with_a_cause(compile):
    def h(x):
        try:
            try:
                raise ValueError("v")
            except ValueError as v:
                raise ExceptionGroup("g", [KeyError(1)]) from v
        except ExceptionGroup as g:
            return x * 2, repr(g.__cause__), repr(g.__context__)

    return call(compile(h), X)


@pytest.mark.parametrize("name", program)
def test_a_program(name):
    check(program[name])
