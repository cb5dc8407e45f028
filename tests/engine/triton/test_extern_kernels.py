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
from ptdebug.engine.passes import extern_kernels
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


@pytest.mark.parametrize(("rows", "columns", "dtype", "way"), [
    (4096, 50257, torch.float16, "unaligned_product"), (64, 50257, torch.float16, "mm"),
    (8192, 30522, torch.bfloat16, "unaligned_product"), (8192, 30528, torch.bfloat16, "mm"),
    (4096, 50257, torch.float32, "mm"),  # on no tensor cores, unless the program allows TF32
])  # fmt: skip
def test_the_product_of_an_odd_vocabulary(rows, columns, dtype, way):
    """By the estimates of what each way takes."""
    module = torch.fx.symbolic_trace(lambda x, weight: (torch.nn.functional.linear(x, weight),))
    with FakeTensorMode():
        inputs = tuple(torch.empty(n, 768, device="cuda", dtype=dtype) for n in (rows, columns))
    context = CompileContext()
    aten = trace(SimpleNamespace(module=module, inputs=inputs, grad_enabled=False), context, LOWERINGS)
    chosen, _ = extern_kernels.choose(passes.run(aten, context), context)
    called = [n.target for n in chosen.module.graph.nodes if n.op == "call_function"]
    assert way in [target.overloadpacket.__name__ for target in called]
