"""Replay of graphs with torch.cond, while_loop, scan and map: all rungs, and where values first differ."""
# mypy: ignore-errors

from __future__ import annotations

from pathlib import Path

import ptdebug
import pytest
import torch
from ptdebug.replay.ladder.replay import replay
from ptdebug.replay.ladder.report import UNCHANGED
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

RUNGS = ["program", "capture", "forward", "passes", "loop_ir", "kernels", "wrapper"]
W = torch.linspace(0.1, 1, 9).reshape(3, 3)


def branches(x):
    def inner(a):
        return torch.cond(a.max() > 2, lambda b: b.sin() + 1, lambda b: b.cos() * 2, (a,)) * 3

    y = torch.cond(x.sum() > 0, lambda v: inner(v.sin() + 1), lambda v: (v @ W) - 1, (x * 2,))
    return torch.cond(y.mean() > 100, lambda: y.tanh(), lambda: (y * 1).exp(), ()) + x.t()


def loop(x):
    def goes_on(i, y):
        return (y.sum() < 50) & (i < 20)

    i, y = while_loop(goes_on, lambda i, y: (i + 1, y * 1.5 + W[0]), (torch.zeros((), dtype=torch.int64), x.abs()))
    return i, y + x


def rows(x):
    total, each = scan(lambda c, r: (c + r.sin() * 2, c * r), torch.zeros(3), x * 2)
    return mapped(lambda r, o: r * o + W[0], x, torch.ones(3)), total + 1, each


def in_place(x):
    y = x * 2
    x.add_(1)
    z = torch.cond(x.sum() > 0, lambda v: v.half().float() + 1, lambda v: v - 1, (y,))
    x.mul_(2)
    return z, x * 3


def recorded(folder, program, dynamic=None):
    with ptdebug.record(out=str(folder)) as recording:
        ptdebug.compile(program, fullgraph=True, dynamic=dynamic)(torch.linspace(-0.5, 1, 9).reshape(3, 3))
    return recording


@pytest.mark.parametrize("program, dynamic", [
    (branches, None), (loop, None), (rows, None), (in_place, None), (branches, True)])
def test_every_rung_runs(tmp_path, program, dynamic):
    recording = recorded(tmp_path, program, dynamic)
    report = replay(recording, recording.compiles()[0].id)
    assert [rung.stage for rung in report.rungs] == RUNGS
    verdicts = {rung.stage: rung.verdict for rung in report.rungs}
    if "passes" not in recording.stages(recording.compiles()[0].id):
        assert verdicts.pop("passes") == "absent"
    del verdicts["program"]
    assert set(verdicts.values()) <= {"equal", "rounding"}, [(r.stage, r.verdict, r.why) for r in report.rungs]
    assert verdicts["capture"] == "equal" and report.first is None and report.drift == ()


def test_a_wrong_loop_is_found_inside_of_a_branch(tmp_path, monkeypatch):
    from ptdebug.engine.ir import interpreter

    recording = recorded(tmp_path, branches)
    monkeypatch.setitem(interpreter.ELEMENTWISE, "exp", lambda a: a.exp() * 1.01)
    report = replay(recording, recording.compiles()[0].id)
    verdicts = {rung.stage: rung.verdict for rung in report.rungs}
    assert verdicts["loop_ir"] == "different" and verdicts["kernels"] != "different"
    assert report.first is not None and report.first.location is not None
    assert report.first.stage == "loop_ir" and report.first.node.startswith("cond_")
    assert ".exp()" in Path(report.first.location.file).read_text().splitlines()[report.first.location.line - 1]


def test_gradients_around_an_operator_climb(tmp_path, monkeypatch):
    def program(x, w):
        return (torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (x * w,)) * w).tanh().sum()

    with ptdebug.record(out=str(tmp_path)) as recording:
        ptdebug.compile(program, fullgraph=True)(torch.ones(3), torch.ones(3, requires_grad=True)).backward()
    report = replay(recording, recording.compiles()[0].id)
    assert [rung.stage for rung in report.rungs] == [*RUNGS[:3], "backward", *RUNGS[3:]]
    assert {rung.verdict for rung in report.rungs[1:] if rung.why != UNCHANGED} <= {"equal", "rounding"}, report
    assert [v.name for v in report.rungs[-1].values if v.role == "gradient"] == ["gradient of w"]
