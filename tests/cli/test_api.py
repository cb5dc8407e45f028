"""The Python interface against `torch.compile`'s habits: functions, modules, decorators, checkpoints, reports."""
from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.summary import summary
from ptdebug.cli import api, session
from ptdebug.cli.module import OptimizedModule
from ptdebug.tracer.frames import dispatch
from torch import nn


class Net(nn.Module):
    """A module with a buffer, a list and a method of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.register_buffer("scale", torch.full((4,), 2.0))
        self.calls = 0

    def forward(self, x: torch.Tensor, *, shift: float = 0.0) -> torch.Tensor:
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x * self.scale + shift

    def describe(self) -> str:
        return "own method"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing compiled before, and the same random numbers."""
    dispatch.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def quadratic(x: torch.Tensor, y: float = 1.0) -> torch.Tensor:
    """A function with a docstring."""
    return x * x + y


def test_function() -> None:
    compiled = ptdebug.compile(quadratic)
    x = torch.randn(5)
    assert torch.equal(compiled(x), quadratic(x)) and torch.equal(compiled(x, y=2.0), quadratic(x, 2.0))
    assert (compiled.__name__, compiled.__doc__) == ("quadratic", quadratic.__doc__)
    assert api.stats()["graphs"] >= 1


@pytest.mark.parametrize("decorate", [
    ptdebug.compile, ptdebug.compile(), ptdebug.compile(dynamic=False), ptdebug.compile(mode="max-autotune"),
    ptdebug.compile(options={"max_autotune": True}), ptdebug.compile(backend="inductor", fullgraph=True),
])
def test_decorators(decorate: Callable[..., Any]) -> None:
    @decorate
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + 1

    x = torch.randn(3)
    torch.testing.assert_close(function(x), x.sin() + 1)
    assert api.stats()["graphs"] == 1


def test_method_and_callable_object_and_partial() -> None:
    import functools

    class Scaler:
        factor = 3.0

        def scale(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

        __call__ = scale

    x, scaler = torch.randn(3), Scaler()
    assert torch.equal(ptdebug.compile(scaler.scale)(x), x * 3.0)
    assert torch.equal(ptdebug.compile(scaler)(x), x * 3.0)
    assert torch.equal(ptdebug.compile(functools.partial(quadratic, y=2.0))(x), quadratic(x, 2.0))
    assert torch.equal(ptdebug.compile(torch.abs)(x), x.abs())


def test_class() -> None:
    @ptdebug.compile
    class Small(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    module = Small()
    assert isinstance(module, Small)
    assert torch.equal(module(torch.ones(2)), torch.full((2,), 2.0))


def test_a_class_whose_instances_cannot_be_called_stays_so() -> None:
    compiled = ptdebug.compile(torch.Tensor)
    assert compiled is torch.Tensor and not callable(compiled(2))


def test_modules_of_other_classes_are_as_before_a_class_was_compiled() -> None:
    test_class()

    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x + 1
            print(end="")
            return y * 2

    report = ptdebug.explain(Broken())(torch.ones(2))
    assert [found.location.function.split(".")[-1] for found in report.graph_breaks] == ["forward"]


def test_disabled_and_refused() -> None:
    assert ptdebug.compile(quadratic, disable=True) is quadratic
    with pytest.raises(RuntimeError, match="mode or options"):
        ptdebug.compile(quadratic, mode="default", options={})
    with pytest.raises(TypeError, match="dynamc"):
        ptdebug.compile(quadratic, dynamc=True)
    with pytest.raises(RuntimeError, match="callable function is expected"):
        ptdebug.compile(3)


def test_module_is_a_module_around_the_original() -> None:
    net = Net()
    compiled = ptdebug.compile(net)
    x = torch.randn(2, 4)
    assert isinstance(compiled, OptimizedModule) and isinstance(compiled, nn.Module)
    assert compiled._orig_mod is net and ptdebug.compile(compiled) is compiled
    torch.testing.assert_close(compiled(x, shift=1.0), net(x, shift=1.0))
    stock = torch.compile(net)
    assert list(compiled.state_dict()) == list(stock.state_dict())
    assert [n for n, _ in compiled.named_parameters()] == [n for n, _ in stock.named_parameters()]
    assert [n for n, _ in compiled.named_modules()] == [n for n, _ in stock.named_modules()]
    stock.load_state_dict(compiled.state_dict())
    compiled.load_state_dict(stock.state_dict())


def test_module_is_known_to_what_looks_for_compiled_modules() -> None:
    from torch._dynamo import OptimizedModule as Stock
    from torch.distributed.checkpoint.state_dict import get_model_state_dict

    net = Net()
    compiled = ptdebug.compile(net)
    assert isinstance(compiled, Stock) and isinstance(compiled, OptimizedModule) and type(compiled) is OptimizedModule
    assert list(get_model_state_dict(compiled)) == list(net.state_dict())
    x = torch.randn(2, 4)
    torch.testing.assert_close(compiled.dynamo_ctx(net.forward)(x), net(x))  # as Lightning compiles steps


def test_module_attributes_are_the_originals() -> None:
    net = Net()
    compiled = ptdebug.compile(net)
    compiled.calls = 7
    compiled.extra = nn.Linear(1, 1)
    assert (net.calls, net.extra) == (7, compiled.extra)
    del compiled.extra
    assert not hasattr(net, "extra") and not hasattr(compiled, "extra")
    assert compiled.describe() == "own method" and "calls" in dir(compiled)
    with pytest.raises(AttributeError):
        _ = compiled.nothing
    with pytest.raises(TypeError, match="does not support len"):
        len(compiled)
    assert len(ptdebug.compile(nn.Sequential(nn.ReLU(), nn.ReLU()))) == 2
    assert compiled and not ptdebug.compile(nn.Sequential())  # `compiled or net`, as in eager


def test_module_modes_and_moves() -> None:
    net = Net()
    compiled = ptdebug.compile(net)
    assert compiled.eval() is compiled and not net.training and not compiled.training
    compiled.train()
    assert net.training and net.layers[0].training
    compiled.to(torch.float64)
    assert net.scale.dtype == torch.float64
    x = torch.randn(2, 4, dtype=torch.float64)
    torch.testing.assert_close(compiled(x), net(x))
    compiled.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())


def test_module_hooks() -> None:
    net, seen = Net(), []
    compiled = ptdebug.compile(net)
    compiled.register_forward_hook(lambda m, args, out: seen.append(type(m).__name__))
    net.layers[0].register_forward_hook(lambda m, args, out: out * 2)
    x = torch.randn(2, 4)
    torch.testing.assert_close(compiled(x), net(x))
    assert seen == ["OptimizedModule"]


def test_module_copies_and_pickles() -> None:
    net = Net()
    compiled = ptdebug.compile(net, dynamic=False)
    x = torch.randn(2, 4)
    expected = compiled(x)
    twin = copy.deepcopy(compiled)
    assert isinstance(twin, OptimizedModule) and twin._orig_mod is not net
    twin.scale.zero_()
    assert torch.equal(compiled(x), expected) and not twin(x).any()
    file = io.BytesIO()
    torch.save(compiled.state_dict(), file)
    file.seek(0)
    fresh = ptdebug.compile(Net())
    fresh.load_state_dict(torch.load(file))
    torch.testing.assert_close(fresh(x), expected)
    again = pickle.loads(pickle.dumps(compiled))
    torch.testing.assert_close(again(x), expected)


def test_lazy_module() -> None:
    compiled = ptdebug.compile(nn.LazyLinear(3))
    assert compiled(torch.randn(2, 5)).shape == (2, 3)
    assert compiled.weight.shape == (3, 5)


def test_disable_and_graph_break() -> None:
    ran = []

    @ptdebug.disable
    def eager(x: torch.Tensor) -> torch.Tensor:
        ran.append(torch.compiler.is_compiling())
        return x * 2

    def function(x: torch.Tensor) -> torch.Tensor:
        x = eager(x + 1)
        ptdebug.graph_break()
        return x - 1

    x = torch.randn(3)
    torch.testing.assert_close(ptdebug.compile(function)(x), function(x))
    assert ran[0] is False
    assert api.stats()["graph_breaks"] == 2


def test_disable_one_frame_only() -> None:
    @ptdebug.disable(recursive=False)
    def outer(x: torch.Tensor) -> torch.Tensor:
        return quadratic(x) + 1

    x = torch.randn(3)
    torch.testing.assert_close(ptdebug.compile(outer)(x), quadratic(x) + 1)
    assert (api.stats()["graphs"], api.stats()["ops"]) == (1, 2)  # quadratic's own


def test_mark_dynamic() -> None:
    compiled = ptdebug.compile(lambda x: x.sum(0) * 2)
    for size in (5, 6, 9):
        x = torch.randn(size, 3)
        ptdebug.mark_dynamic(x, 0)
        torch.testing.assert_close(compiled(x), x.sum(0) * 2)
    assert api.stats()["recompiles"] == 0
    assert x._dynamo_dynamic_indices == {0}


def test_custom_backend() -> None:
    seen = []

    def backend(module: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        seen.append((type(module).__name__, len(example_inputs)))
        return module.forward

    x = torch.randn(3)
    torch.testing.assert_close(ptdebug.compile(quadratic, backend=backend)(x), quadratic(x))
    assert seen == [("GraphModule", 1)]


def test_an_error_of_the_engine_stays_inside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(captured: object, context: object, compiler: object) -> None:
        raise ZeroDivisionError("in the engine")

    monkeypatch.setattr("ptdebug.cli.wiring._engine", lambda: broken)
    with ptdebug.record("broken", out=str(tmp_path), inputs="none") as recording:
        torch.testing.assert_close(ptdebug.compile(quadratic)(torch.ones(3)), quadratic(torch.ones(3)))
    document = summary(recording)
    assert any("ZeroDivisionError: in the engine" in a["why"] for a in document["absent"] if a["stage"] == "kernels")
    assert [(c.status, "ZeroDivisionError" in c.reason) for c in recording.compiles()] == [("eager", True)]


def test_explain() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x = x.sin()
        print("between")
        return x.cos() + 1

    report = ptdebug.explain(function)(torch.ones(2))
    assert (len(report.graphs), len(report.graph_breaks), report.ops) == (2, 1, 3)
    assert "print" in str(report) and report.guards and report.decisions
    torch.testing.assert_close(report.result, torch.ones(2).sin().cos() + 1)
    assert session.current().settings == session.Settings()


def test_record(tmp_path: Path) -> None:
    compiled = ptdebug.compile(quadratic)
    with ptdebug.record("first", out=str(tmp_path), inputs="none") as recording:
        compiled(torch.ones(3))
        inside = summary(recording)
    assert inside["counts"]["graphs"] == 1
    after = summary(recording)
    [one] = after["compiles"]
    assert (one["function"], one["status"], one["calls"]) == ("quadratic", "compiled", 1)
    with ptdebug.record("second", out=str(tmp_path)) as recording:
        compiled(torch.ones(3))
    assert summary(recording)["counts"]["compiles"] == 0
    assert "before this recording and are not in it" in recording.notes()[0]


def test_dynamo_backend(tmp_path: Path) -> None:
    """In a process of its own: Dynamo takes seconds to load, and stays."""
    program = """
import torch, ptdebug
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.summary import summary
weight = torch.randn(4)
def function(x, n):
    return torch.tanh(x * weight) + n
compiled = torch.compile(function, backend="ptdebug")
with torch.no_grad(), ptdebug.record("run", out="recordings") as recording:
    for size in (2, 3, 7):
        x = torch.randn(size, 4)
        torch.testing.assert_close(compiled(x, 2.0), function(x, 2.0))
document = summary(recording)
assert document["counts"]["compiles"] == 2, document["counts"]
assert {"capture", "forward", "loop_ir", "kernels"} <= set(document["compiles"][0]["stages"]), document["compiles"]
assert document["counts"]["kernels"] >= 2

branches = torch.compile(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)) * 2, backend="ptdebug")
with torch.no_grad(), ptdebug.record("branches", out="recordings") as recording:
    torch.testing.assert_close(branches(torch.ones(3)), torch.ones(3).sin() * 2)
one, = summary(recording)["compiles"]
assert one["status"] == "compiled", one["reason"]
assert len(recording.artifact(one["id"], "capture").inner) == 2
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


def test_compiling_imports_no_stock_compiler(tmp_path: Path) -> None:
    program = """
import sys, torch, ptdebug
module = ptdebug.compile(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()))
with torch.no_grad():
    for size in (2, 3, 4):
        module(torch.ones(size, 3))
assert ptdebug.stats()["graphs"] > 0, ptdebug.stats()
loaded = [m for m in sys.modules if m.startswith(("torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd"))]
assert not loaded, loaded[:5]
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("make", [torch.jit.script, lambda module: torch.jit.trace(module, torch.ones(2))])
def test_a_scripted_module_is_compiled(make: Callable[[torch.nn.Module], torch.nn.Module]) -> None:
    scripted = make(torch.nn.Softplus())
    compiled = ptdebug.compile(scripted)
    assert torch.equal(compiled(torch.ones(2)), scripted(torch.ones(2)))


@pytest.mark.parametrize("started, argv, words", [
    (["python", "-u", "train.py", "--lr", "1"], ["train.py", "--lr", "1"], ["train.py", "--lr", "1"]),
    (["python", "-m", "pkg.train", "1"], ["/src/pkg/train.py", "1"], ["-m", "pkg.train", "1"]),
    (["python", "-W", "ignore", "-c", "pass", "1"], ["-c", "1"], ["-c", "pass", "1"]),
    (["python", "-"], ["-"], ["-"]),
    (["python"], [""], []),
])
def test_the_words_that_started_the_program(started, argv, words, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "orig_argv", started)
    monkeypatch.setattr(sys, "argv", argv)
    with ptdebug.record("r", out=str(tmp_path)) as recording:
        pass
    assert Recording.open(tmp_path / "r").meta["command"] == recording.meta["command"] == words
