"""Graphs of torch.fx as modules: written lazily, made by torch.export, and given to a backend."""
# mypy: ignore-errors

from __future__ import annotations

import copy

import ptdebug
import pytest
import torch
from torch.export import Dim, export
from torch.fx._lazy_graph_module import _LazyGraphModule

from ..checking import Programs, check

program = Programs()
X = torch.ones(2, 3)


def wave(x):
    return x.sin() + 1


def lazy():
    return _LazyGraphModule.from_graphmodule(torch.fx.symbolic_trace(wave))


class Holder(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) * 2


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        torch.nn.init.constant_(self.linear.weight, 0.5)
        torch.nn.init.constant_(self.linear.bias, 0.25)

    def forward(self, x):
        return self.linear(x).relu()


@program
def lazily_written(compile):
    graph, kept = lazy(), lazy()
    ways = lazy(), lazy().forward, lambda x: graph(x), kept.forward, Holder(lazy()), copy.deepcopy(lazy())
    return [compile(function, fullgraph=True)(X) for function in ways]


@program
def written_again(compile):
    graph = lazy()
    step = compile(graph, fullgraph=True)
    before = step(X)
    next(node for node in graph.graph.nodes if node.target == "sin").target = "cos"
    graph.recompile()
    return before, step(X)


@program
def exported(compile):
    module = export(Layer(), (torch.ones(4, 3),), dynamic_shapes=({0: Dim("rows", min=3, max=7)},)).module()
    step = compile(module, fullgraph=True)
    found = [step(torch.ones(rows, 3)) for rows in (4, 5)]
    found[-1].sum().backward()
    return found, [p.grad for p in module.parameters()], compile(Holder(module), fullgraph=True)(torch.ones(4, 3))


@program
def exported_and_called_wrongly(compile):
    step = compile(export(Layer(), (X,)).module())
    try:
        return step(torch.ones(5, 3))
    except AssertionError as error:
        return str(error)


@program
def settings_of_dynamo(compile):
    def inside(x):
        with torch._dynamo.dont_skip_tracing():
            return wave(x)

    decorated = torch._dynamo.patch_dynamo_config(verbose=True)(wave), torch._dynamo.dont_skip_tracing(wave)
    return [compile(f, fullgraph=True)(X) for f in (inside, *decorated)]


@program
def exported_with_dicts_by_name(compile):
    class Scaled(torch.nn.Module):
        def forward(self, pair, *, scales):
            return {"y": pair[0] * scales["b"] + scales["a"], "z": pair[1] * 2}

    args, kwargs = ((X, X + 1),), {"scales": {"b": torch.tensor(3.0), "a": torch.tensor(1.0)}}
    step = compile(export(Scaled(), args, kwargs).module(), fullgraph=True)
    return step(*args, **kwargs), step((X, X), scales={"b": torch.tensor(2.0), "a": torch.tensor(0.5)})


@pytest.mark.parametrize("name", program)
def test_a_graph_is_compiled_like_any_module(name):
    check(program[name])


def test_a_backend_may_compile_its_graph():
    step = torch.compile(wave, backend=lambda module, inputs: ptdebug.compile(module, fullgraph=True))
    torch.testing.assert_close(step(X), wave(X))
