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

        def measured(calls, devices, restore, most):
            for name, step in calls.items():
                step()
                steps.append(name)
                restore()
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


def test_what_may_have_effects_is_not_timed(race, tmp_path: Path) -> None:
    ran: list[int] = []
    with torch.library._scoped_library("twin_test", "FRAGMENT") as library:
        library.define("told(Tensor x) -> Tensor")
        library.impl("told", lambda x: ran.append(1) or x.clone(), "CPU")
        library.impl("told", lambda x: torch.empty_like(x), "Meta")
        steps = race(0.1e-3)
        with ptdebug.record("twin", out=str(tmp_path)):
            _runs(lambda x: torch.ops.twin_test.told(x) + 1, torch.zeros(4))
    assert steps == [] and len(ran) == 7
    decision = _decision(tmp_path / "twin")
    assert decision.chosen == "compiled" and re.search("not timed beside eager: .*may have effects", decision.why)


@pytest.mark.parametrize("seconds, chosen", [(0.1e-3, "eager"), (2e-3, "compiled")])
def test_what_is_written_is_written_once_for_each_call(race, tmp_path: Path, seconds: float, chosen: str) -> None:
    def function(x, y):
        x.add_(1)
        y.mul_(x)
        return torch.sin(x) + y.sum()

    steps, own, theirs = race(seconds), (torch.zeros(4), torch.ones(4)), (torch.zeros(4), torch.ones(4))
    with ptdebug.record("twin", out=str(tmp_path)):
        results = _runs(function, *own)
    assert all(torch.allclose(a, b) for a, b in zip(results, [function(*theirs) for _ in range(7)]))
    assert torch.equal(own[0], theirs[0]) and torch.equal(own[1], theirs[1])
    assert own[0]._version == theirs[0]._version  # what autograd has saved is as it was
    assert steps == ["compiled", "eager"] and _decision(tmp_path / "twin").chosen == chosen


def test_the_buffers_of_a_model_that_trains(race) -> None:
    torch.manual_seed(0)
    steps, x = race(0.1e-3), torch.randn(6, 3)
    models = [torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    run = ptdebug.compile(models[0], mode="max-autotune-no-cudagraphs"), models[1]
    for _ in range(7):
        for model, call in zip(models, run):
            model.zero_grad()
            call(x).sin().sum().backward()
        for (name, a), (_, b) in zip(models[0].state_dict().items(), models[1].state_dict().items()):
            assert torch.allclose(a, b), name
        assert all(torch.allclose(a.grad, b.grad, atol=1e-5) for a, b in zip(*(m.parameters() for m in models)))
    assert steps == ["compiled", "eager"]


def test_inputs_are_restored_where_the_race_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(calls, devices, restore, most):
        calls["eager"]()
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(eager_twin, "_race", fails)
    x = torch.zeros(4)
    _runs(lambda x: x.add_(1), x)
    assert x.tolist() == [7.0] * 4


def test_what_shares_memory_with_what_is_written_is_not_timed(race, tmp_path: Path) -> None:
    steps, x = race(0.1e-3), torch.zeros(8)
    with ptdebug.record("twin", out=str(tmp_path)):
        _runs(lambda x, y: x.add_(1) + y, x[:6], x[2:])
    assert steps == [] and x.tolist() == [7.0] * 6 + [0.0] * 2
    assert "shares memory with another" in _decision(tmp_path / "twin").why


def test_what_eager_raises_after_a_write_is_raised_and_not_run_again(race) -> None:
    def function(x, index):
        x.add_(1)
        return torch.index_select(x, 0, index) + 1

    steps, x = race(0.1e-3), torch.zeros(4)
    compiled = ptdebug.compile(function, mode="max-autotune-no-cudagraphs")
    for _ in range(7):
        compiled(x, torch.tensor([1]))
    assert steps == ["compiled", "eager"]
    with pytest.raises((IndexError, RuntimeError)):
        compiled(x, torch.tensor([9]))
    assert x.tolist() == [8.0] * 4


def _handling(x, index):
    x.add_(1)
    try:
        return torch.index_select(x, 0, index) + 1
    except (IndexError, RuntimeError):
        return x * 0


def test_a_frame_that_handles_errors_writes_at_the_end(race, tmp_path: Path) -> None:
    steps, x = race(0.1e-3), torch.zeros(4)
    with ptdebug.record("twin", out=str(tmp_path)):
        compiled = ptdebug.compile(_handling, mode="max-autotune-no-cudagraphs")
        for _ in range(7):
            compiled(x, torch.tensor([1]))
        assert compiled(x, torch.tensor([9])).tolist() == [0.0] * 4
    assert steps == [] and x.tolist() == [8.0] * 4
    assert "errors must come before it writes to its inputs" in _decision(tmp_path / "twin").why


def test_eager_is_refused_where_the_frame_handles_errors(race, tmp_path: Path) -> None:
    with ptdebug.record("forced", out=str(tmp_path), overrides={"eager-twin:graph": "eager"}):
        ptdebug.compile(_handling)(torch.ones(3), torch.tensor([1]))
    decision = _decision(tmp_path / "forced")
    assert decision.chosen == "compiled" and "refused" in decision.why and "before it writes" in decision.why
    with ptdebug.record("written", out=str(tmp_path), overrides={"eager-twin:graph": "eager"}):
        x = torch.ones(3)
        ptdebug.compile(lambda x: x.add_(1))(x)
    assert x.tolist() == [2.0] * 3 and _decision(tmp_path / "written").chosen == "eager"


def test_each_size_has_a_choice(race, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager_twin, "MOST_SIZES", 2)
    steps = race(0.1e-3)
    compiled = ptdebug.compile(lambda x: torch.sin(x) + 1, mode="max-autotune-no-cudagraphs", dynamic=True)
    with ptdebug.record("vary", out=str(tmp_path)):
        for _ in range(6):
            for size in (4, 5, 6):
                x = torch.randn(size)
                assert torch.allclose(compiled(x), torch.sin(x) + 1)
    assert steps == ["compiled", "eager"] * 2
    with Recording.open(tmp_path / "vary") as recording:
        found = [decision.id for _, decision in recording.decisions() if decision.kind == "eager-twin"]
    assert len(found) == 2 and all(re.fullmatch(r"eager-twin:graph:(\d+,)?[45]", one) for one in found), found


def test_what_cannot_be_timed_stays_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(calls, devices, restore, most):
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
    restored: list[int] = []
    pair = {"compiled": lambda: sum(range(20_000)), "eager": lambda: None}
    times = eager_twin._race(pair, [], lambda: restored.append(1), most=20)
    assert len(restored) >= 2 * 3
    assert times["eager"] < times["compiled"]
