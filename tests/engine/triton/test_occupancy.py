"""Loops that wait for a reduction share its kernel on a GPU only where rows, or tiles of columns, keep it busy."""
from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.engine import passes, scheduler
from ptdebug.engine.aot.aten_graph import trace
from ptdebug.engine.ir.ir import ExternCall
from ptdebug.engine.lowering import LOWERINGS, lower
from torch._subclasses.fake_tensor import FakeTensorMode

from ..programs import recording_context


def _plan(function, context: CompileContext, *shapes: tuple[int, ...], device: str = "cuda"):
    module = torch.fx.symbolic_trace(function)
    output = module.graph.output_node()
    output.args = (output.args if isinstance(output.args[0], tuple) else (output.args,))
    with FakeTensorMode():
        inputs = tuple(torch.empty(shape, device=device, dtype=torch.bfloat16) for shape in shapes)
    aten = trace(SimpleNamespace(module=module, inputs=inputs, grad_enabled=False), context, LOWERINGS)
    return scheduler.schedule(lower(passes.run(aten, context).module, context), context)


def _bodies(plan) -> list[int]:
    assert not any(isinstance(item, ExternCall) for item in plan.items)
    return [len(item.bodies) for item in plan.items]


@pytest.mark.parametrize(("shape", "dim", "kernels"), [
    ((50_176, 256), 0, 2),  # columns: 8 tiles of 32
    ((8, 100_000), 1, 2),  # long rows
    ((8192, 768), 1, 1), ((3000, 16_384), 0, 1), ((100, 64), 0, 1), ((128, 4096), 1, 1), ((128, 16_384), 1, 1),
])  # fmt: skip
def test_few_rows_or_columns_that_others_wait_for(shape, dim, kernels):
    def centered(x):
        mean = x.float().mean(dim, keepdim=True)
        return torch.exp(x - mean * 2), mean

    plan = _plan(centered, CompileContext(), shape)
    assert len(_bodies(plan)) == kernels


def test_statistics_are_one_pass_and_what_waits_another():
    def batch_norm(x, weight):
        variance, mean = torch.var_mean(x.float(), (0, 1, 2), correction=0)
        y = (x - mean) * torch.rsqrt(variance + 1e-5) * weight
        return torch.relu(y), y > 0, mean, variance

    context, keeping = recording_context()
    plan = _plan(batch_norm, context, (64, 28, 28, 128), (128,))
    first, second = plan.items
    assert any(b.reduction_axes for b in first.bodies) and not any(b.reduction_axes for b in second.bodies)
    assert [d.chosen for d in keeping.decisions if d.kind == "variance"] == ["welford"]
    said = [c.why for c in plan.candidates if not c.fused]
    assert any("128 columns of 50176 elements" in why for why in said), said
