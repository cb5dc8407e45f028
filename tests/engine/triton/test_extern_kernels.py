"""What has no Triton form is a call of ATen on a GPU, with its reason; the rest of the graph is compiled around it."""
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


@pytest.mark.parametrize(("function", "whole", "why"), [
    (lambda x: torch.digamma(x.exp()) * 2, "aten.digamma.default", "Triton's math library has no digamma"),
    (lambda x: torch.cumsum(x.exp(), 0) * 2, "aten.cumsum.default", "a scan on a GPU"),
    (lambda x: torch.bernoulli(x.sigmoid()) * 2, "aten.bernoulli.default",
     "random numbers, equal to eager's: left to ATen"),
])  # fmt: skip
def test_one_operator_is_left_to_aten(function, whole, why):
    module = torch.fx.symbolic_trace(function)
    output = module.graph.output_node()
    output.args = ((output.args[0],),)
    with FakeTensorMode():
        inputs = (torch.empty(5, 7, device="cuda"),)
    context = CompileContext()
    aten = trace(SimpleNamespace(module=module, inputs=inputs, grad_enabled=False), context, LOWERINGS)
    plan = scheduler.schedule(lower(passes.run(aten, context).module, context), context)
    before, call, after = plan.items
    assert isinstance(call, ExternCall) and str(call.target) == whole and call.why == why
    assert not isinstance(before, ExternCall) and not isinstance(after, ExternCall)
