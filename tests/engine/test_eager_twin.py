"""A compiled graph beside its eager twin: which one runs, what is recorded, and that nothing else changes."""
from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import ptdebug
import pytest
import torch
import torch.utils.checkpoint
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.records import Decision
from ptdebug.engine.runtime import eager_twin
from torch._subclasses.fake_tensor import FakeTensorMode


@pytest.fixture
def race(monkeypatch: pytest.MonkeyPatch):
    """Runs both once and says that eager takes as long as is set here; what ran is in `steps`."""
    def set_times(eager: float, compiled: float = 1e-3) -> list[str]:
        steps: list[str] = []

        def measured(calls, devices):
            for name, step in calls.items():
                step()
                steps.append(name)
            return {"compiled": compiled, "eager": eager}

        monkeypatch.setattr(eager_twin, "_race", measured)
        return steps
    return set_times


def _decision(folder: Path) -> Decision:
    with Recording.open(folder) as recording:
        (found,) = [decision for _, decision in recording.decisions() if decision.kind == "eager-twin"]
    return found


def _runs(function, *inputs: torch.Tensor, calls: int = 7):
    compiled = ptdebug.compile(function, mode="max-autotune-no-cudagraphs")
    return [compiled(*inputs) for _ in range(calls)]


@pytest.mark.parametrize("seconds, chosen", [(0.5e-3, "eager"), (0.98e-3, "compiled"), (2e-3, "compiled")])
def test_the_faster_one_runs(race, tmp_path: Path, seconds: float, chosen: str) -> None:
    steps, x = race(seconds), torch.randn(40)

    def function(x):
        return torch.sin(x) * torch.nn.functional.dropout(x, 0.5)

    torch.manual_seed(3)
    expected = [function(x) for _ in range(7)]
    torch.manual_seed(3)
    with ptdebug.record("twin", out=str(tmp_path)):
        results = _runs(function, x)
    assert all(torch.allclose(a, b) for a, b in zip(results, expected))  # the same random numbers, too
    decision = _decision(tmp_path / "twin")
    assert steps == ["compiled", "eager"] and (decision.id, decision.chosen) == ("eager-twin:graph", chosen)
    assert [(o.name, o.score, o.unit) for o in decision.options] == [
        ("compiled", 1000.0, "us"), ("eager", seconds * 1e6, "us")]
    assert "at its call 5" in decision.why


def test_eager_really_runs(race, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    real = eager_twin.eager_form

    def told(module):
        form = real(module)
        return lambda *inputs: seen.append("eager") or form(*inputs)

    monkeypatch.setattr(eager_twin, "eager_form", told)
    race(0.1e-3)
    _runs(lambda x: torch.sin(x) + 1, torch.randn(3), calls=8)
    assert seen == ["eager"] * (1 + 4)  # beside the fifth call, and from then on


def test_training_is_timed_with_its_gradients(race, tmp_path: Path) -> None:
    steps, layer, x = race(0.1e-3), torch.nn.Linear(4, 4), torch.randn(2, 4, requires_grad=True)
    with ptdebug.record("twin", out=str(tmp_path)):
        compiled = ptdebug.compile(lambda x: torch.tanh(layer(x)), mode="max-autotune-no-cudagraphs")
        for number in range(7):
            x.grad = layer.weight.grad = None
            compiled(x).sum().backward()
            grads = x.grad.clone(), layer.weight.grad.clone()
            torch.tanh(layer(x)).sum().backward()
            assert torch.allclose(2 * grads[0], x.grad) and torch.allclose(2 * grads[1], layer.weight.grad), number
    decision = _decision(tmp_path / "twin")
    assert steps == ["compiled", "eager"] and decision.chosen == "eager" and "forward and backward" in decision.why


def test_what_a_checkpoint_saves_is_left_alone(race) -> None:
    """Timed inside, all that the twins save would be the checkpoint's, too, and its recomputation another."""
    steps, x = race(0.1e-3), torch.randn(6, requires_grad=True)
    compiled = ptdebug.compile(lambda x: torch.tanh(x) * x.sin(), mode="max-autotune-no-cudagraphs")
    for _ in range(3):
        x.grad = None
        torch.utils.checkpoint.checkpoint(compiled, x, use_reentrant=False).sum().backward()
    assert steps == []
    compiled(x).sum().backward()
    assert steps == ["compiled", "eager"]
    own = x.detach().requires_grad_()
    (torch.tanh(own) * own.sin()).sum().backward()
    assert torch.allclose(x.grad, 2 * own.grad)


def test_the_gpus_of_a_graph_that_gets_nothing_from_one() -> None:
    """Their random numbers are put back, and their work is waited for."""
    with FakeTensorMode():
        graph = torch.fx.Graph()
        node = graph.call_function(torch.rand, (3,), {"device": "cuda:1"})
        node.meta["val"] = torch.empty(3, device="cuda:1")
        graph.output((node,))
    captured = SimpleNamespace(module=torch.fx.GraphModule({}, graph), inputs=(torch.ones(2), 4))
    assert eager_twin._gpus(captured) == [1]


@pytest.mark.parametrize("function, inputs, why", [
    (lambda x: x.add_(1), (torch.zeros(4),), "writes to its inputs"),
    (lambda x: torch.ops.twin_test.told(x) + 1, (torch.zeros(4),), "may have effects"),
])
def test_what_must_run_once_is_not_timed(race, tmp_path: Path, function, inputs, why: str) -> None:
    ran: list[int] = []
    with torch.library._scoped_library("twin_test", "FRAGMENT") as library:
        library.define("told(Tensor x) -> Tensor")
        library.impl("told", lambda x: ran.append(1) or x.clone(), "CPU")
        library.impl("told", lambda x: torch.empty_like(x), "Meta")
        steps = race(0.1e-3)
        with ptdebug.record("twin", out=str(tmp_path)):
            _runs(function, *inputs)
    assert steps == [] and len(ran) in (0, 7)
    assert inputs[0].sum() in (0, 28)  # written once for each call
    decision = _decision(tmp_path / "twin")
    assert decision.chosen == "compiled" and re.search(rf"not timed beside eager: .*{why}", decision.why)


def test_sizes_that_vary_and_what_fails_stay_compiled(race, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = race(0.1e-3)
    compiled = ptdebug.compile(lambda x: torch.sin(x) + 1, mode="max-autotune", dynamic=True)
    with ptdebug.record("vary", out=str(tmp_path)):
        for number in range(8):
            compiled(torch.randn(4 + number))
    assert steps == [] and "sizes vary" in _decision(tmp_path / "vary").why

    def fails(calls, devices):
        raise torch.OutOfMemoryError("no memory for both\nat all")

    monkeypatch.setattr(eager_twin, "_race", fails)
    with ptdebug.record("fails", out=str(tmp_path)):
        _runs(lambda x: torch.cos(x) + 1, torch.randn(4))
    why = _decision(tmp_path / "fails").why
    assert why == "not timed beside eager: OutOfMemoryError: no memory for both"


def test_an_override_chooses_without_timing(race, tmp_path: Path) -> None:
    steps = race(0.1e-3)
    with ptdebug.record("forced", out=str(tmp_path), overrides={"eager-twin:graph": "eager"}):
        compiled = ptdebug.compile(lambda x: torch.sin(x) + 1)
        assert torch.equal(compiled(torch.ones(3)), torch.sin(torch.ones(3)) + 1)
    decision = _decision(tmp_path / "forced")
    assert steps == [] and decision.chosen == "eager" and decision.forced
    with ptdebug.record("written", out=str(tmp_path), overrides={"eager-twin:graph": "compiled"}):
        ptdebug.compile(lambda x: x.add_(1))(torch.ones(3))
    decision = _decision(tmp_path / "written")
    assert decision.chosen == "compiled" and "refused" not in decision.why


def test_both_are_timed() -> None:
    """The real race: the slower call has the longer time."""
    times = eager_twin._race({"compiled": lambda: sum(range(20_000)), "eager": lambda: None}, [])
    assert times["eager"] < times["compiled"]
