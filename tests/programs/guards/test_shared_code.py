"""Functions that one decorator of a library made have one code: what happens to one of them happens to it alone."""
# mypy: ignore-errors

from __future__ import annotations

import gc
import weakref

import ptdebug
import pytest
import torch
from ptdebug.tracer.frames import dispatch
from ptdebug.tracer.runtime.statistics import STATISTICS

from ..checking import Programs, check

X = torch.ones(3)
program = Programs()


def captured(module, inputs):
    return module.forward


def scaled(k):
    return lambda x: x * k + 1


@pytest.mark.parametrize("decorate", [torch.no_grad(), torch.inference_mode(), torch.enable_grad()])
def test_the_limit_of_compilations_is_that_of_each(decorate):
    STATISTICS.clear()
    for k in range(20):
        f = decorate(scaled(k))
        assert torch.equal(ptdebug.compile(f, backend=captured, dynamic=False)(X), f(X))
    assert STATISTICS.graphs == 20 and not STATISTICS.reasons


def test_what_is_compiled_for_one_dies_with_it():
    graphs, ids = [], set(dispatch.runtimes())

    def watched(module, inputs):
        graphs.append(weakref.ref(module))
        return module.forward

    for k in (2, 3):
        compiled = ptdebug.compile(torch.no_grad()(scaled(k)), backend=watched)
        assert torch.equal(compiled(X), compiled(X))
    ptdebug.compile(torch.no_grad()(scaled(4)))  # never called
    del compiled
    gc.collect()
    assert len(graphs) == 2 and not [graph for graph in graphs if graph() is not None]
    new = set(dispatch.runtimes()) - ids
    assert [dispatch.runtimes()[id].calls for id in sorted(new)] == [2, 2]


def test_one_that_cannot_be_compiled_does_not_keep_the_next_from_it():
    def breaks(x):
        y = x * 2
        print(end="")
        return y + 1

    for f in (torch.inference_mode()(breaks), torch.inference_mode()(lambda x: 2)):
        for _ in range(5):
            ptdebug.compile(f, backend=captured)(X)
    STATISTICS.clear()
    good = torch.inference_mode()(scaled(3))
    assert torch.equal(ptdebug.compile(good, backend=captured, fullgraph=True)(X), good(X))
    assert STATISTICS.graphs == 1


def test_methods_that_are_decorated():
    class Scaled:
        def __init__(self, k):
            self.k = k

        @torch.no_grad()
        def call(self, x):
            return x * self.k

        @torch.no_grad()
        def other(self, x):
            return x + self.k

    STATISTICS.clear()
    for k in range(12):
        for method in (Scaled(k).call, Scaled(k).other):
            assert torch.equal(ptdebug.compile(method, backend=captured)(X), method(X))
    assert not [reason for reason in STATISTICS.reasons if "limit" in reason]


@torch.library.custom_op("ptdebug_programs::product_of_two_dtypes", mutates_args=())
def product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x @ weight.to(x.dtype)


@product.register_fake
def _(x, weight):
    return x @ weight  # which eager refuses: Python runs the operator, and torch disables its kernel


def test_a_disabled_function_that_is_compiled_leaves_the_others_disabled():
    """torch's own among them: the operator's kernel, which runs while the graph does, is one."""

    class Disabled(torch.nn.Module):
        @torch.compiler.disable
        def forward(self, x):
            return x + 1

    class Inner:
        @torch.compiler.disable
        def method(self, x):
            return x + 1

    for whole in (Disabled(), torch.compiler.disable(scaled(2)), Inner().method):
        ptdebug.compile(whole, backend=captured)(X)
        dispatch.reset()
        x, weight = torch.ones(3, 4).bfloat16(), torch.ones(4, 2)
        with torch.no_grad():
            found = ptdebug.compile(product, backend=captured, fullgraph=True)(x, weight)
            assert torch.equal(found, product(x, weight))


@program
def decorated_twice(compile):
    f = torch.no_grad()(torch.enable_grad()(scaled(2)))
    g = torch.no_grad()(compile(torch.enable_grad()(scaled(3))))
    x = X.clone().requires_grad_()
    return compile(f)(x), g(x), compile(g)(x), f.__name__, compile(f).__name__


@pytest.mark.parametrize("name", program)
def test_a_program(name):
    check(program[name])
