"""What programs read of functions (closures, defaults by name), of packed bytes, and parameters that they make."""
# mypy: ignore-errors

from __future__ import annotations

import inspect
import struct

import pytest
import torch
from torch import nn

from ..checking import Programs, call, check, check_whole

WHOLE, PROGRAMS = Programs(), Programs()
X = torch.arange(3.0)
PACKED = struct.Struct("<2h")


@WHOLE
def variables_of_a_closure(compile):
    scale, shift = torch.ones(3) * 2, 3

    def g(x):
        return x * scale + shift

    def fn(x):
        free = dict(zip(g.__code__.co_freevars, (cell.cell_contents for cell in g.__closure__)))
        return x * free["scale"] + free["shift"], len(g.__closure__), fn.__closure__ is not None, call.__closure__

    fast = compile(fn)
    results = [fast(X)]
    shift = 5
    return [*results, fast(X)]


@WHOLE
def a_closure_of_a_function_made_inside(compile):
    def fn(x):
        k = 2

        def g(y):
            return y * k

        def plain(y):
            return y

        before = g.__closure__[0].cell_contents
        k = 5
        return x * g.__closure__[0].cell_contents, before, plain.__closure__, plain.__kwdefaults__

    return compile(fn)(X)


@WHOLE
def a_closure_that_was_assigned(compile):
    count = 1

    def g():
        return count

    def fn(x):
        nonlocal count
        count += 1
        return x * g.__closure__[0].cell_contents

    fast = compile(fn)
    return fast(X), fast(X), count


@PROGRAMS
def an_empty_cell(compile):
    def fn(x):
        if x is None:
            late = 1

        def g():
            return late

        try:
            return x * g.__closure__[0].cell_contents
        except ValueError as error:
            return x, str(error)

    return compile(fn)(X)


@WHOLE
def defaults_by_name(compile):
    def g(x, a=2, *, scale=3, other=X):
        return x * scale

    def fn(x):
        given = g.__kwdefaults__
        return x * given["scale"] + given["other"] + g.__defaults__[0], given.get("none", 7), sorted(given), g(x)

    fast = compile(fn)
    results = [fast(X)]
    g.__kwdefaults__["scale"] = 5
    results.append(fast(X))
    g.__kwdefaults__ = {"scale": 9, "other": X}
    return [*results, fast(X)]


@PROGRAMS
def defaults_by_name_that_traced_code_changes(compile):
    def g(x, *, scale=3):
        return x * scale

    def fn(x):
        before = g(x)
        g.__kwdefaults__["scale"] = 4
        return before, g(x)

    return compile(fn)(X), g.__kwdefaults__


@WHOLE
def a_signature_that_is_kept(compile):
    def g(x, a, b=2, *more, d, **words):
        return x

    signature = inspect.signature(g)

    def fn(x):
        bound = signature.bind(x, 3, 4, d=5, z=6)
        bound.apply_defaults()
        return bound.arguments["x"] * bound.kwargs["z"], bound.args[1:], [*signature.parameters]

    return compile(fn)(X)


@PROGRAMS
def a_default_in_a_signature_that_changes(compile):
    numbers, words = [2], {"a": 1}

    def g(x, by=numbers, *, more=(words,)):
        return x

    kept = inspect.signature(g)
    by_kept = compile(lambda x: x * kept.parameters["by"].default[0] + kept.parameters["more"].default[0]["a"])
    by_new = compile(lambda x: x * inspect.signature(g).parameters["by"].default[0])
    results = [by_kept(X), by_new(X)]
    numbers[0], words["a"] = 5, 7
    return [*results, by_kept(X), by_new(X)]


@PROGRAMS
def defaults_by_name_that_come_later(compile):
    def g(x, *, k):
        return x * k

    fast, results = compile(lambda x: x * (g.__kwdefaults__ or {"k": 9})["k"]), []
    for defaults in (None, {"k": 3}, None, {"k": 4}):
        g.__kwdefaults__ = defaults
        results.append(fast(X))
    return results


@WHOLE
def packed_numbers(compile):
    def fn(x, bits):
        (number,) = struct.unpack("<i", struct.pack("<f", 1.5))
        first, second = PACKED.unpack(PACKED.pack(3, 4))
        many = [pair[0] for pair in struct.iter_unpack("<h", b"\1\0\2\0")]
        try:
            struct.unpack("<i", bits)
        except struct.error as error:
            return x + number, x * first + second, many, str(error), PACKED.size, struct.calcsize("if")

    return compile(fn)(X, b"ab")


@WHOLE
def parameters_made_without_gradients(compile):
    @torch.no_grad()
    def fn(x):
        w = nn.Parameter(x.clone())
        b = nn.Parameter(torch.ones(3), requires_grad=False)
        nn.init.constant_(b, 2.0)
        kinds = isinstance(w, nn.Parameter), type(w).__name__, w.requires_grad, b.requires_grad, w.is_leaf
        return torch.nn.functional.linear(x, w.diag(), b) + w.data, kinds

    return compile(fn)(X)


@WHOLE
def a_parameter_that_shares_the_memory_of_its_data(compile):
    def fn(x):
        data = x * 2
        w = nn.Parameter(data, requires_grad=False)
        data.add_(1)
        w.mul_(3)
        return data, w + 0

    return compile(fn)(X)


@PROGRAMS
def parameters_that_leave(compile):
    layer = nn.Linear(3, 3)

    def returned(x):
        return nn.Parameter(x.clone()), nn.Parameter(x.clone(), False)

    def multiplied(x):
        return nn.Parameter(x * 2) * x

    def stored(x):
        layer.weight = nn.Parameter(torch.eye(3))
        return layer(x).shape

    def listed(x):
        made = [nn.Parameter(x + 1, requires_grad=False)]
        made.append(made[0] * 2)
        return made

    def of_integers(x):
        return nn.Parameter(x.long())

    def alike(x):
        w = nn.Parameter(x, requires_grad=False)
        w.add_(1)
        return x * 1

    found = [call(compile(fn), X.clone()) for fn in (returned, multiplied, stored, listed, of_integers, alike)]
    kinds = [type(tensor) for tensor in (*found[0], found[1], *found[3])]
    return found, kinds, [tensor.requires_grad for tensor in (*found[0], found[1])], type(layer.weight)


@PROGRAMS
def gradients_of_a_made_parameter(compile):
    def fn(x):
        w = nn.Parameter(x * 2)
        (w * x).sum().backward()
        return w.grad + 1

    def grad(x):
        w = nn.Parameter(x * 2)
        return torch.autograd.grad((w * x).sin().sum(), w)[0]

    return compile(fn)(X), compile(grad)(X)


@pytest.mark.parametrize("name", WHOLE)
def test_whole(name: str) -> None:
    check_whole(WHOLE[name])


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    check(PROGRAMS[name])
