"""Objects of classes that C++ extensions define: their operators, hashes and methods are those of the class."""
# mypy: ignore-errors

from __future__ import annotations

import pytest
import torch

from ..checking import Programs, call, check

program = Programs()
X = torch.ones(3)
KEYS = torch._C.DispatchKeySet
ROWS = {
    "dispatch_keys": tuple(KEYS(key) for key in (*[torch._C.DispatchKey.CPU] * 2, torch._C.DispatchKey.CUDA)),
    "members": (torch._C.DispatchKey.CPU, torch._C.DispatchKey.CPU, torch._C.DispatchKey.CUDA),
    "schemas": tuple(op._schema for op in (*[torch.ops.aten.add.Tensor] * 2, torch.ops.aten.sub.Tensor)),
    "types": (*[torch._C.ListType(torch._C.IntType.get()) for _ in range(2)], torch._C.FloatType.get()),
}


@pytest.mark.parametrize("kind", ROWS)
def test_they_are_compared_as_their_class_says(kind):
    def compared(x, a, b, c):
        return x + 1, a == b, a != b, a == c, a != c, a is b

    def after_a_break(x, a, b, c):
        torch._dynamo.graph_break()
        return x + 1, a == b, a != c, a in [c, b], [a].count(b), (a,) == (b,)

    def with_another(x, a, b, c):
        return x + 1, a == 5

    def as_keys(x, a, b, c):
        return x + 1, a in {b: 1}, len({a, b, c}), hash(a) == hash(b)

    functions = compared, after_a_break, with_another, as_keys
    check(lambda compile: [call(compile(f), X, *ROWS[kind]) for f in functions])


@program
def methods_and_operators(compile):
    keys, more, _ = ROWS["dispatch_keys"]

    def f(x):
        both = keys | torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)
        return x * 2, both.has(torch._C.DispatchKey.Meta), (both - keys) == more, both == keys

    return call(compile(f), X)


@pytest.mark.parametrize("name", program)
def test_a_program(name):
    check(program[name])
