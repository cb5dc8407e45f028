"""Each backend gets what it is to get: the engine a graph to run by kernels, by ATen or in eager, others Dynamo's form
of it."""
from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ptdebug
import pytest
import torch
from functorch.compile import make_boxed_func
from ptdebug.artifacts.recording import Recording
from ptdebug.cli import api

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    api.reset()
    torch._dynamo.reset()
    yield


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
        self.count.add_(1)
        h = self.inner(x).softmax(-1)
        return h.sum(0) * self.count, h[1:].transpose(0, 1), x.shape[0]


def results(model: Any, of: Model, x: torch.Tensor) -> list[torch.Tensor]:
    """What a call gives, changes and differentiates to."""
    of.count.zero_()
    of.zero_grad()
    first, second, size = model(x)
    (first.sum() + second.exp().sum() * size).backward()
    return [first.detach(), second.detach(), of.count.clone(), *(p.grad.clone() for p in of.parameters())]


def aot(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(fw_compiler=lambda inner, _: make_boxed_func(inner.forward))(graph, inputs)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "aot_eager_decomp_partition", "cudagraphs", aot])
def test_backends_compute_what_eager_does(backend: Any) -> None:
    """Also at a size that varies, for which the graph is captured again."""
    model = Model()
    compiled = ptdebug.compile(model, backend=backend)
    for size in (2, 5, 7):
        x = torch.rand(size, 3)
        for ours, eager in zip(results(compiled, model, x), results(model, model, x), strict=True):
            torch.testing.assert_close(ours, eager)
    assert api.stats()["graphs"] == 2  # the second serves every size


@pytest.mark.parametrize("backend", ["eager", "aot_eager", aot])
def test_a_written_input_that_shares_memory(backend: Any) -> None:
    def write(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return y + 1

    x, y = torch.ones(3), torch.ones(3)
    compiled = ptdebug.compile(write, backend=backend)
    assert compiled(x, y).tolist() == [2, 2, 2] and compiled(x, x).tolist() == [5, 5, 5]
    assert compiled(x[:3], x[:3]).tolist() == [9, 9, 9]


def test_how_a_graph_runs_is_a_decision(tmp_path: Path, warm: Command) -> None:
    """`aot_eager` makes no kernels, `eager` no ATen graph; replay follows."""
    (tmp_path / "program.py").write_text("""
import torch
def f(x):
    return (x.sin() * 2).sum()
for backend in ("eager", "aot_eager", "inductor"):
    torch.compile(f, backend=backend)(torch.ones(3))
""")
    done = warm("run", "program.py")
    assert done.returncode == 0, done.stderr
    recording = Recording.open(next((tmp_path / "recordings").iterdir()))
    ways = {owner: d.chosen for owner, d in recording.decisions() if d.id == "compile:graph"}
    assert list(ways.values()) == ["eager", "aten", "kernels"]
    eager, aten, kernels = ways
    stages = {owner: {a.stage for a in recording.artifacts(owner)} for owner in ways}
    assert "forward" not in stages[eager] and "capture" in stages[eager]
    assert {"forward", "wrapper"} <= stages[aten] and "kernels" not in stages[aten]
    assert "kernels" in stages[kernels]
    whys = {a.why for owner, a in recording.absents(eager) if a.stage == "forward"}
    assert whys == {"the backend asked for runs captured graphs in eager"}
    replayed = warm("replay", f"@:{aten}", "--json")
    assert json.loads(replayed.stdout)["verdict"] == "equal", replayed.stdout


def captured_by(compile: Callable[..., Any], dynamic: bool) -> tuple[torch.fx.GraphModule, list[Any]]:
    seen = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        seen.append((graph, inputs))
        return graph.forward

    compile(Model(), backend=backend, dynamic=dynamic)(torch.rand(4, 3))
    return seen[0]


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_graph_has_dynamos_form(dynamic: bool) -> None:
    """Names, inputs, metadata: what a backend written for Dynamo reads."""
    (ours, our_inputs), (stock, stock_inputs) = (captured_by(c, dynamic) for c in (ptdebug.compile, torch.compile))

    def inputs_of(graph: torch.fx.GraphModule, inputs: list[Any]) -> dict[str, Any]:
        nodes = graph.graph.find_nodes(op="placeholder")
        return {n.target if isinstance(v, torch.Tensor) else "size": (type(v), n.name == n.target.lower(),
                n.meta.get("tensor_dict"), type(n.meta["example_value"])) for n, v in zip(nodes, inputs, strict=True)}

    assert inputs_of(ours, our_inputs) == inputs_of(stock, stock_inputs)
    calls = [[n for n in graph.graph.nodes if n.op.startswith("call")] for graph in (ours, stock)]
    assert [n.target for n in calls[0]] == [n.target for n in calls[1]]
    for our, theirs in zip(*calls):
        assert set(theirs.meta) == set(our.meta), our
        classes = [[kind for _, kind in n.meta.get("nn_module_stack", {}).values()] for n in (our, theirs)]
        assert classes[0] == [kind for kind in classes[1] if kind is not Model]
        assert our.meta["source_fn_stack"][-1][1] == theirs.meta["source_fn_stack"][-1][1]
        lines = [[line for line in n.meta["stack_trace"].splitlines() if line.strip(" ^~")] for n in (our, theirs)]
        assert lines[0] == lines[1]
        assert our.meta["example_value"].dim() == theirs.meta["example_value"].dim()
    assert set(ours.meta) == set(stock.meta)


def test_example_inputs_are_those_of_the_call() -> None:
    x, seen = torch.rand(3), []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        seen.extend(inputs)
        assert torch._guards.CompileContext.current_compile_id() is not None
        assert torch._guards.TracingContext.get().fake_mode is not None
        return torch.jit.trace(graph, tuple(inputs))  # which needs tensors with values

    assert ptdebug.compile(lambda x: x * 2, backend=backend)(x).tolist() == (x * 2).tolist()
    assert seen[0] is x


def test_a_nested_tensor_is_an_input() -> None:
    """Its ragged size is no symbol, so it is none of the inputs."""
    seen = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        seen.extend(inputs)
        return graph.forward

    x = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged)
    compiled = ptdebug.compile(lambda x: (x * 2).sin(), backend=backend)
    assert torch.equal(compiled(x).values(), (x * 2).sin().values())
    assert [type(value) for value in seen] == [type(x)]
