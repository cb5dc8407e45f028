"""Replay of graphs that hold graphs: autograd functions, hooks of tensors."""
# mypy: ignore-errors

from __future__ import annotations

import ptdebug
import pytest
import torch
from ptdebug.artifacts.fx_graphs import PLAN
from ptdebug.replay.ladder.replay import replay
from ptdebug.replay.recorded.graphs import graph_module
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint


class Steep(torch.autograd.Function):
    """Its gradient is ten times that of its forward; of two results one has none."""

    @staticmethod
    def forward(ctx, x, w, scale):
        ctx.save_for_backward(x, w)
        ctx.scale = scale
        rounded = x.round()
        ctx.mark_non_differentiable(rounded)
        return (x @ w).sin() * scale, rounded

    @staticmethod
    @once_differentiable
    def backward(ctx, g, _):
        x, w = ctx.saved_tensors
        d = g * (x @ w).cos() * ctx.scale * 10
        return d @ w.t(), x.t() @ d, None


class Doubled(torch.autograd.Function):
    """Changes its input in place."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 3


class Flat(torch.autograd.Function):
    """Its backward relies on how the gradient lies in memory."""

    @staticmethod
    def forward(ctx, x):
        return x.t() * 2

    @staticmethod
    def backward(ctx, g):
        return g.t().contiguous() * 2


class Twice(torch.autograd.Function):
    """Calls another one, in both directions."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.half().float() * x.to(torch.float64).float()

    @staticmethod
    def backward(ctx, g):
        return Doubled.apply(g * ctx.saved_tensors[0])


def with_hooks(x, w):
    y = x.sin()
    y.register_hook(lambda g: g * w.sum())
    y.register_hook(lambda g: g + 1)
    return y @ w


PROGRAMS = {
    "results of several kinds": lambda x, w: sum(Steep.apply(x.sin(), w, 3.0)),
    "in place": lambda x, w: Doubled.apply(x.sin()) * 2,
    "strides": lambda x, w: Flat.apply(x).sum(1),
    "casts, and one in another": lambda x, w: Twice.apply(x * 2) + 1,
    "two of one name": lambda x, w: Steep.apply(x, w, 2.0)[0] + Steep.apply(x, w.t(), 1.0)[0],
    "checkpointed": lambda x, w: checkpoint(lambda t: Twice.apply(t.sin()), x, use_reentrant=False),
    "hooks": with_hooks,
}


def recorded(folder, program, *inputs, **options):
    with ptdebug.record(out=str(folder)) as recording:
        ptdebug.compile(program, fullgraph=True, **options)(*inputs).sum().backward()
    return recording


@pytest.mark.parametrize(("name", "dynamic"), [*((name, False) for name in PROGRAMS), ("two of one name", True)])
def test_every_rung_runs_untrusted(tmp_path, name, dynamic):
    x, w = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    if name == "strides":
        x = torch.randn(3, 4, requires_grad=True)
    recording = recorded(tmp_path, PROGRAMS[name], x, w, dynamic=dynamic)
    compilation = recording.compiles()[0].id
    report = replay(recording, compilation)
    absent = [rung.stage for rung in report.rungs if rung.verdict == "absent"]
    _, *stages = [rung.stage for rung in report.rungs]
    assert stages[:8] == ["capture", "joint", "forward", "backward", "passes", "loop_ir", "kernels", "wrapper"]
    assert stages[8:] == ([] if dynamic and name != "two of one name" else ["runtime"])
    assert absent in ([], ["program"])
    assert {rung.verdict for rung in report.rungs if rung.verdict != "absent"} <= {"equal", "rounding"}, report
    assert report.rungs[1].verdict == "equal"


def test_a_function_is_what_it_was(tmp_path):
    x, w = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    recording = recorded(tmp_path, PROGRAMS["results of several kinds"], x, w)
    record = recording.artifact(recording.compiles()[0].id, "capture")
    module = graph_module(record, {})
    plan = next(getattr(node.target, PLAN) for node in module.graph.nodes if hasattr(node.target, PLAN))
    assert (plan.name, plan.gradients, plan.fixed, plan.dirty, plan.once) == ("Steep", 2, (1,), (), True)
    first, rounded = plan.function()(x, w)
    assert first.grad_fn is not None and not rounded.requires_grad
    (found,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    torch.testing.assert_close(found, ((x @ w).cos() * 30) @ w.t())
    assert not found.requires_grad


def test_strides_come_with_it(tmp_path):
    recording = recorded(tmp_path, PROGRAMS["strides"], torch.randn(3, 4, requires_grad=True), None)
    record = recording.artifact(recording.compiles()[0].id, "capture")
    (held,) = record.inner.values()
    assert held.strides == ((1, 4),)


def test_forward_derivatives(tmp_path):
    """functorch's own functions, which pybind11 names by the class that holds them."""

    def program(x, w):
        return torch.func.jvp(lambda a: (a @ w).sin(), (x,), (torch.ones_like(x),))[1]

    recording = recorded(tmp_path, program, torch.randn(3, 3, requires_grad=True), torch.randn(3, 3))
    report = replay(recording, recording.compiles()[0].id)
    verdicts = {rung.stage: rung.verdict for rung in report.rungs}
    assert verdicts["capture"] == "equal" and verdicts["kernels"] in ("equal", "rounding"), report
