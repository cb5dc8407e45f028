"""Replay of training graphs: gradients at every rung, and where one first differs."""
from __future__ import annotations

from pathlib import Path

import ptdebug
import pytest
import torch
import torch.nn.functional as F
from ptdebug.replay.ladder.replay import replay
from ptdebug.replay.ladder.report import UNCHANGED

RUNGS = ["program", "capture", "joint", "forward", "backward", "passes", "loop_ir", "kernels", "wrapper", "runtime"]


def block(x, w, b, state):
    state.mul_(0.5).add_(x.detach().mean(0))
    y = F.gelu(F.linear(x.exp(), w, b))
    y = torch.tanh(y) * 2
    x.mul_(1.5)  # a tensor with history
    return F.dropout(F.softmax(y, -1), 0.5) + state, y.t(), y.view(-1), x[1:]


def linear(x, w):
    y = torch.relu(x @ w)
    return (torch.tanh(y) * 3).sum(0)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("home")
    with ptdebug.record(out=str(folder)) as recording:
        x, w, b, state = torch.randn(8, 16), torch.randn(16, 16), torch.randn(16), torch.randn(16)
        parameters = [t.requires_grad_() for t in (x, w, b)]
        results = ptdebug.compile(block)(x * 2, w, b, state)
        sum(r.sum() for r in results).backward()
        ptdebug.compile(linear)(*parameters[:2]).sum().backward()
    return recording


def by_function(recording, name):
    return next(c.id for c in recording.compiles() if c.function.endswith(name))


def test_results_and_gradients_agree_at_every_rung(recorded):
    report = replay(recorded, by_function(recorded, "block"))
    assert [r.stage for r in report.rungs] == RUNGS
    assert {r.verdict for r in report.rungs[1:]} <= {"equal", "rounding"}, report
    assert report.rungs[2].verdict == "equal" or "gradient of" in report.rungs[2].comparison.why
    assert report.first is None
    assert report.drift == ()


def test_a_row_that_a_number_in_a_tensor_chooses(tmp_path):
    with ptdebug.record(out=str(tmp_path)) as recording:
        compiled = ptdebug.compile(lambda x, i: x[i].sin() * 2, fullgraph=True)
        compiled(torch.randn(3, 4, requires_grad=True), torch.tensor(1)).sum().backward()
    report = replay(recording, recording.compiles()[0].id)
    assert {r.verdict for r in report.rungs[1:] if r.verdict != "absent"} <= {"equal", "rounding"}, report
    assert report.rungs[1].verdict == "equal" and report.rungs[-1].verdict != "absent"


def test_parameters_that_no_result_depends_on(tmp_path):
    """An optimizer's step beside a result with a gradient: those of the parameters are None, and the last is its."""
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(y):
        optimizer.step()
        return y.std()

    model(torch.randn(5, 4)).sum().backward()
    with ptdebug.record(out=str(tmp_path)) as recording:
        ptdebug.compile(step)(model(torch.randn(5, 4)).amax(-1))
    report = replay(recording, recording.compiles()[0].id)
    assert [r.stage for r in report.rungs] == RUNGS
    assert {r.verdict for r in report.rungs[1:]} <= {"equal", "rounding"}, report


def test_a_size_that_only_the_backward_needs(tmp_path):
    with ptdebug.record(out=str(tmp_path)) as recording:
        compiled = ptdebug.compile(lambda x: x.sum() * 2 + x.mean(0).sum(), dynamic=True)
        compiled(torch.randn(3, 4, requires_grad=True)).backward()
    report = replay(recording, recording.compiles()[0].id)
    assert {r.verdict for r in report.rungs[1:]} <= {"equal", "rounding"}, report


def test_a_wrong_gradient_is_found_with_its_node_and_line(recorded, monkeypatch):
    from ptdebug.engine.aot import aten_graph
    from ptdebug.engine.aot.decompositions import rule_for

    operator = torch.ops.aten.tanh_backward.default

    def wrong(found):
        return (lambda gradient, output: gradient * (1 - output)) if found is operator else rule_for(found)

    monkeypatch.setattr(aten_graph, "rule_for", wrong)
    report = replay(recorded, by_function(recorded, "linear"))
    verdicts = {r.stage: r.verdict for r in report.rungs}
    assert verdicts["joint"] != "different", "what was recorded is right"
    assert verdicts["loop_ir"] == verdicts["kernels"] == "different"
    assert "joint" in report.drift
    assert report.first is not None
    assert report.first.location is not None
    assert "tanh" in Path(report.first.location.file).read_text().splitlines()[report.first.location.line - 1]


def test_a_wrong_loop_of_the_backward_is_found(recorded, monkeypatch):
    from ptdebug.engine.ir import interpreter

    monkeypatch.setitem(interpreter.ELEMENTWISE, "mul", lambda a, b: a * b * 1.01)
    report = replay(recorded, by_function(recorded, "linear"))
    verdicts = {r.stage: r.verdict for r in report.rungs}
    assert verdicts["backward"] != "different"
    assert verdicts["loop_ir"] == "different"
    assert verdicts["kernels"] != "different"
    assert report.first is not None
    assert report.first.stage == "loop_ir"
    assert report.first.location is not None


@pytest.mark.parametrize("recorded_grad", [True, False])
def test_a_number_that_data_tells_is_followed_on_all_rungs(tmp_path, recorded_grad):
    def told(scale, x, w):
        return (x * scale.item()) * w, x[x > scale] * w[x > scale]

    with ptdebug.record(out=str(tmp_path)) as recording:
        ptdebug.compile(told)(torch.tensor(0.5), torch.arange(3.0), torch.ones(3, requires_grad=recorded_grad))
    report = replay(recording, recording.compiles()[0].id)
    assert {rung.verdict for rung in report.rungs[1:] if rung.why != UNCHANGED} <= {"equal", "rounding"}, report
    assert report.drift == () and report.rungs[-1].stage == ("runtime" if recorded_grad else "wrapper")
