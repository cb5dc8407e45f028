"""Warnings that the program filters, records and handles itself, under `fullgraph=True`."""
from __future__ import annotations

import inspect
import typing
import warnings

import pytest
import torch

from ..checking import Programs, check

whole = Programs()


def old():
    warnings.warn("old", DeprecationWarning)  # noqa: B028
    return 2


def called(a: int, b: str = "x", *args: int, c=4, **more) -> float:
    return a


class Annotated:
    number: int


@whole
def recorded(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.warn("new")  # noqa: B028
        number = old()
    shown = [(str(one.message), one.category, one.lineno, one.filename) for one in seen]
    return x + len(seen) + number, shown, seen[0].message.args


@whole
def ignored(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return x + old()


@whole
def raised(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old()
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="ol.*")
            try:
                old()
            except Warning as error:
                text = str(error)
        old()
    return x + 1, text


@whole
def signatures(x):
    bound = inspect.signature(called).bind(x, "q", 3, c=5, z=6)
    partly = inspect.signature(called).bind_partial(x)
    partly.apply_defaults()
    try:
        inspect.signature(called).bind()
    except TypeError as error:
        text = str(error)
    return called(*bound.args, **bound.kwargs), bound.arguments, partly.args, partly.kwargs, text


@whole
def type_hints(x):
    return x + 1, typing.get_type_hints(called), typing.get_type_hints(Annotated, include_extras=True)


@pytest.mark.parametrize("name", whole)
def test_captured_whole(name):
    check(lambda compile: [compile(whole[name], fullgraph=True)(torch.ones(3)) for _ in range(2)])


def test_breaks_and_operators_in_the_block():
    def broken(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            print("inside")
            old()
            x = x * 2
        return x + 1

    def around(x):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            x = x * 2
            old()
        return x, len(seen)

    check(lambda compile: [compile(function)(torch.ones(2)) for function in (broken, around)])


def test_hints_that_change():
    class Changing:
        number: int

    def program(compile):
        Changing.__annotations__.pop("text", None)
        f = compile(lambda x: (x + 1, list(typing.get_type_hints(Changing))), fullgraph=True)
        out = [f(torch.ones(1))]
        Changing.__annotations__["text"] = str
        return [*out, f(torch.ones(1))]

    check(program)
