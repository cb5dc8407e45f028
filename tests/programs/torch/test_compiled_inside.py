"""`torch.compile`, and scripted functions, inside of a compiled function, under `fullgraph=True`."""
from __future__ import annotations

import ptdebug
import pytest
import torch

from ..checking import Programs, check, check_engine

whole = Programs()
X = torch.arange(1.0, 5.0)


def double(x):
    return x * 2


@torch.jit.script
def scaled(x: torch.Tensor, n: int = 2):
    return x * n


@torch.jit.script
def branching(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if x.size(0) > 2:
        return x + y, y
    return x * y, x


TRACED = torch.jit.trace(lambda x: x.sin() + 1, torch.ones(4))
LINEAR = torch.nn.Linear(4, 4)
LINEAR.load_state_dict({"weight": torch.arange(16.0).view(4, 4), "bias": torch.ones(4)})  # no sum is rounded
OURS, STOCK = ptdebug.compile(double), torch.compile(double, backend="eager")
OUR_MODULE, STOCK_MODULE = ptdebug.compile(LINEAR), torch.compile(LINEAR, backend="eager")


class Holds(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scaled, self.compiled = scaled, torch.compile(double, backend="eager")

    def forward(self, x):
        return self.scaled(x, 3) + self.compiled(x)


HOLDS = Holds()


@whole
def compiled_before(x):
    return OURS(x) + STOCK(x), OUR_MODULE(x) + STOCK_MODULE(x)


@whole
def compiled_here(x):
    @torch.compile
    def first(y):
        return y * 3

    @torch.compile(fullgraph=True)
    def second(y):
        return y - 1

    third = torch.compile(double, backend="eager")
    return first(x) + second(x), third(x), third.__name__, ptdebug.compile(double)(x), torch.compile(LINEAR)(x)


@whole
def disabled(x):
    return torch.compile(double, disable=True)(x)


@whole
def scripted(x):
    return scaled(x), scaled(x, 3), scaled(x, n=4), branching(x, x + 1), scaled.name


@whole
def traced(x):
    return TRACED(x)


@whole
def in_a_module(x):
    return HOLDS(x)


@pytest.mark.parametrize("name", whole)
def test_captured_whole(name):
    check(lambda compile: [compile(whole[name], fullgraph=True)(X.clone()) for _ in range(2)])


@pytest.mark.parametrize("name", ["scripted", "traced", "in_a_module"])
def test_compiled_to_the_end_with_gradients(name):
    def program(compile):
        x = X.clone().requires_grad_()
        out = compile(whole[name], fullgraph=True)(x)
        total = sum(leaf.sum() for leaf in torch.utils._pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor))
        total.backward()
        return total, x.grad

    check_engine(program)


def test_a_compiled_function_that_leaves_is_one():
    def f(x):
        g = torch.compile(double, backend="eager")
        return g(x), g

    result, g = ptdebug.compile(f, fullgraph=True)(X)
    assert torch.equal(result, X * 2) and torch.equal(g(X), X * 2)
    assert g._torchdynamo_orig_callable is double


def test_scripted_functions_of_varying_sizes():
    def program(compile):
        f = compile(lambda x: branching(x, x + 1), fullgraph=True)
        return [f(torch.ones(n)) for n in (3, 4, 2, 5, 1)]

    check(program)
