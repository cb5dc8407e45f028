"""Several GPUs: the device of the inputs decides where buffers are, whatever GPU is the current one."""
from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.cli import session
from ptdebug.engine import scheduler
from ptdebug.engine.aot.aten_graph import trace
from ptdebug.engine.codegen import wrapper
from ptdebug.engine.codegen.triton import generate
from ptdebug.engine.lowering import LOWERINGS, lower
from ptdebug.engine.runtime import runtime
from ptdebug.tracer.graph.current_gpu import guard_current_gpu
from torch._subclasses.fake_tensor import FakeTensorMode

CURRENT = "torch.cuda.current_device() == 0"


def _call_of(device: str, made: list[str], monkeypatch: pytest.MonkeyPatch, current: int) -> Any:
    """The wrapper of a graph whose inputs are on a GPU that need not be there, and what it calls put in its place."""
    module = torch.fx.symbolic_trace(lambda x: (torch.sin(x).sum(-1, keepdim=True) * x + x.t(),))
    with FakeTensorMode():
        inputs = (torch.empty(8, 8, device=device),)
    context = CompileContext()
    aten = trace(SimpleNamespace(module=module, inputs=inputs, grad_enabled=False), context, LOWERINGS)
    plan = scheduler.schedule(lower(aten.module, context), context)
    sources = {g.kernel: generate(g, plan.program.buffers, context) for g in plan.items}
    now = [current]

    @contextmanager
    def on(index):
        before, now[0] = now[0], index
        yield
        now[0] = before

    def empty(size, stride, dtype):
        made.append(f"cuda:{now[0]}")
        return torch.empty_strided(size, stride, dtype=dtype)

    monkeypatch.setattr(torch.cuda, "device", on)
    kernels = {name: lambda *arguments: made.append(f"kernel on cuda:{now[0]}") or 0 for name in sources}
    names = {"empty_cuda": empty, "gpu": lambda: now[0]}
    monkeypatch.setattr(runtime, "STANDARD", {**runtime.STANDARD, **names})
    monkeypatch.setattr(runtime, "empty_cuda", empty)
    source = wrapper.generate(aten, plan, kernels, {name: s.signature for name, s in sources.items()})
    call = wrapper.load(source, context)
    call(torch.ones(8, 8))
    assert now == [current]
    return source.text


@pytest.mark.parametrize("current", [0, 1])
@pytest.mark.parametrize("index", [0, 1])
def test_buffers_are_where_the_inputs_are(index: int, current: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    text = _call_of(f"cuda:{index}", made, monkeypatch, current)
    assert f"    if gpu() != {index}: return on_gpu({index}, call, " in text
    assert made and {place.rpartition(" ")[2] for place in made} == {f"cuda:{index}"}, text


@pytest.mark.parametrize("count, device, argument, words", [
    (2, "cuda:0", None, CURRENT), (2, "cuda:1", "cuda:0", CURRENT), (2, "cuda:1", "cuda:1", ""),
    (1, "cuda:0", None, ""), (2, "cpu", None, ""),
])
def test_what_names_no_gpu_is_guarded(count: int, device: str, argument: str | None, words: str,
                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    guards: list[Any] = []
    tx: Any = SimpleNamespace(guards=SimpleNamespace(add=lambda source, kind, check: guards.append(check)))
    node = torch.fx.Graph().placeholder("x")
    with FakeTensorMode():
        node.meta["val"] = torch.empty(2, device=argument) if argument else None
        guard_current_gpu(tx, torch.empty(2, device=device), (node, 3))
    assert [text for _, text in guards] == ([words] if words else [])
    assert all(check(None) for check, _ in guards)


@pytest.mark.parametrize("function", [
    lambda x: torch.ones(4, device="cuda") * x, lambda x: torch.ones(4).cuda() * x,
    lambda x: torch.ones(4).to("cuda") * x, lambda x: torch.ones(4).to(torch.device("cuda"), torch.float64) * x,
])
def test_the_current_gpu_has_its_number_in_graphs(function: Any, monkeypatch: pytest.MonkeyPatch,
                                                  tmp_path: Path) -> None:
    """torch keeps fake results of creations, with the GPU that was the current one."""
    now, made = [0], []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: now[0])

    def graphs(captured: Any, context: CompileContext) -> Any:
        made.append([node.meta["val"].device for node in captured.module.graph.nodes if node.op != "output"][-1])
        return lambda *inputs: (torch.ones(4),)

    with ptdebug.record("recording", str(tmp_path)):
        session.current().graphs = graphs
        compiled = ptdebug.compile(function)
        for now[0] in (0, 1, 0, 1):
            compiled(2.0)
    assert made == [torch.device("cuda", 0), torch.device("cuda", 1)]


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_on_the_second_of_two() -> None:
    """Forward and backward on cuda:1 while cuda:0 is the current one, and the other way around."""
    def function(x, w):
        return torch.softmax(torch.nn.functional.gelu(x @ w) + 1, -1).sum(0)

    compiled = ptdebug.compile(function)
    for device, current in (("cuda:1", 0), ("cuda:0", 1), ("cuda:1", 1), ("cuda:0", 0)):
        with torch.cuda.device(current):
            x, w = (torch.randn(64, 64, device=device, requires_grad=True) for _ in range(2))
            expected, result = function(x, w), compiled(x, w)
            assert result.device == expected.device == torch.device(device)
            torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
            grads = torch.autograd.grad(result.square().sum(), (x, w))
            for got, want in zip(grads, torch.autograd.grad(expected.square().sum(), (x, w))):
                torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
            assert torch.cuda.current_device() == current
    named = ptdebug.compile(lambda x: torch.ones(4, device="cuda") * x)
    for current in (0, 1, 0):
        with torch.cuda.device(current):
            assert named(2.0).device == torch.device("cuda", current)
