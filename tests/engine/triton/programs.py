"""Small programs, and a way to run their scheduled plans through the Triton kernels on any device.

Used by the tests here and by benchmarks/gpu_check.py, which needs neither pytest nor a test runner.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from ptdebug.artifacts.context import CompileContext
from ptdebug.engine import passes, scheduler
from ptdebug.engine.aot.aten_graph import trace
from ptdebug.engine.codegen.triton import TritonKernel, kernels_for_plan
from ptdebug.engine.ir import interpreter
from ptdebug.engine.ir.ir import ExternCall, Plan
from ptdebug.engine.lowering import LOWERINGS, lower
from torch._subclasses.fake_tensor import FakeTensorMode


def plan_of(function: Callable[..., Any], inputs: Sequence[torch.Tensor], context: CompileContext) -> Plan:
    """The scheduled plan of a function of tensors, sizes as they are."""
    module = torch.fx.symbolic_trace(function)
    output = module.graph.output_node()
    if not isinstance(output.args[0], (tuple, list)):  # a captured graph always returns several
        output.args = ((output.args[0],),)
    mode = FakeTensorMode()
    fakes = tuple(mode.from_tensor(t) for t in inputs)
    aten = trace(SimpleNamespace(module=module, inputs=fakes, grad_enabled=False), context, LOWERINGS)
    return scheduler.schedule(lower(passes.run(aten, context).module, context), context)


class PlanRunner:
    """A plan with its Triton kernels; call it with the inputs. Memory for intermediates is allocated on each call."""

    def __init__(self, plan: Plan, kernels: Mapping[str, TritonKernel]) -> None:
        self.plan, self.kernels = plan, kernels

    def __call__(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        program = self.plan.program
        symbols = interpreter.symbol_values(program, inputs)
        memory = dict(program.constants)
        memory.update({n: t for n, t in zip(program.inputs, inputs) if n in program.buffers})
        for item in self.plan.items:
            if isinstance(item, ExternCall):
                interpreter.call(item, memory, symbols)
                continue
            kernel = self.kernels[item.kernel]
            for name in kernel.signature.buffers:
                if name not in memory:
                    memory[name] = interpreter.allocate(program.buffers[name], symbols)
            sizes = [symbols[s] for s in kernel.signature.symbols]
            status = kernel(*(memory[n] for n in kernel.signature.buffers), *sizes)
            if status:
                raise IndexError(kernel.signature.bounds[status - 1])
        return tuple(interpreter.resolve(out, memory, symbols) for out in program.outputs)


def compiled(
    function: Callable[..., Any], inputs: Sequence[torch.Tensor], overrides: Mapping[str, str] | None = None
) -> PlanRunner:
    """`function` through the engine into Triton kernels for the inputs' device. `overrides` are of kernels' choices:
    the plan is one for a CPU where the inputs are there, whose options of the same decisions are others."""
    plan = plan_of(function, inputs, CompileContext())
    return PlanRunner(plan, kernels_for_plan(plan, CompileContext(overrides=dict(overrides or {}))))


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], dim=-1) * sin


def _rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight


def _floats(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def _with_nan(x: torch.Tensor) -> torch.Tensor:
    x[1, 3] = float("nan")
    x[2, 4] = float("inf")
    x[3, 5] = float("-inf")
    return x


# name: (function, inputs). Sizes are odd where masks matter.
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "softmax": (lambda x: torch.softmax(x, -1), (_floats(6, 40),)),
    "softmax_nan": (lambda x: torch.softmax(x, -1), (_with_nan(_floats(6, 40)),)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (40,), w, b), (_floats(2, 3, 40), _floats(40), _floats(40))),
    "gelu_bias": (lambda x, b: F.gelu(x + b), (_floats(6, 40), _floats(40))),
    "rms_norm": (_rms_norm, (_floats(6, 40), _floats(40))),
    "rotary": (_rotate, (_floats(2, 3, 5, 16), _floats(5, 16), _floats(5, 16))),
    "cat": (lambda x, y: torch.cat([x, y * 2], -1), (_floats(6, 8), _floats(6, 3))),
    "embedding": (lambda i, w: F.embedding(i, w) * 2, (torch.tensor([[1, 2], [9, 0]]), _floats(10, 8))),
    "gather": (lambda x, i: x.gather(1, i), (_floats(4, 7), torch.tensor([[0, 6], [1, 1], [5, 3], [2, 2]]))),
    "column_sum": (lambda x: x.sum(0), (_floats(20, 12),)),
    "column_max": (lambda x: x.amax(0), (_with_nan(_floats(20, 12)),)),
    "full_sum": (lambda x: x.sum(), (_floats(20, 12),)),
    "mean_of_all": (lambda x: (x - x.mean()).relu(), (_floats(20, 12),)),
    "argmax": (lambda x: x.argmax(-1), (_with_nan(_floats(6, 40)),)),
    "argmin": (lambda x: x.argmin(0), (_with_nan(_floats(6, 13)),)),
    "variance": (lambda x: tuple(torch.var_mean(x, -1)[i] for i in (0, 1)), (_floats(6, 40) + 100,)),
    "any_all": (lambda x: ((x > 2).any(-1), (x > -2).all(-1)), (_floats(6, 40),)),
    "prod": (lambda x: x.prod(-1), (_floats(6, 9),)),
    "integer_sum": (lambda x: x.sum(-1), (torch.arange(60, dtype=torch.int32).reshape(4, 15) - 30,)),
    "bfloat16": (lambda x, b: F.gelu(x + b), (_floats(6, 40).bfloat16(), _floats(40).bfloat16())),
    "half_softmax": (lambda x: torch.softmax(x, -1), (_floats(6, 40).half(),)),
    "double": (lambda x: torch.exp(x) / (1 + x * x).sqrt(), (_floats(6, 40).double(),)),
    "double_sigmoid": (lambda x: (torch.sigmoid(x), F.glu(x)), (_floats(6, 40).double(),)),
    "masks_of_scalars": (lambda x: F.pad(x, (1, -1, 1, 2, 2, 0, 0, 0), value=0.1), (_floats(1, 1, 1, 1).double(),)),
    "scalars_compared": (lambda x, y: torch.logaddexp2(x, y), (_floats(8), torch.tensor(0.5).half())),
    "transposed": (lambda x: x.t().contiguous() + 1, (_floats(33, 40),)),
    "masked": (lambda x: x.masked_fill(x < 0, float("-inf")).tril(), (_floats(9, 9),)),
    "integers": (lambda a, b: (a // b, a % b, a ^ b, a << 2), (torch.arange(-12, 12), torch.full((24,), 5))),
    "float_mod": (lambda a, b: (a % b, torch.fmod(a, b), a // b), (_floats(6, 40) * 9, _floats(40))),
    "booleans": (lambda a, b: ((a > b) & ~(a > 1)) | (b > 2), (_floats(6, 40), _floats(40))),
    "extremes": (lambda a, b: (torch.maximum(a, b), torch.minimum(b, a)), (_with_nan(_floats(6, 40)), _floats(40))),
    "padding": (lambda x: F.pad(x, (1, 2), value=3.0), (_floats(4, 5),)),
    "clamp_negative_zero": (lambda x: torch.neg(x.relu()), (_floats(6, 40),)),
    "group_norm": (lambda x: F.group_norm(x, 2), (_floats(2, 4, 3, 5),)),
    "batch_norm": (
        lambda x, m, v: F.relu(F.batch_norm(x, m, v)), (_floats(2, 4, 3, 5), _floats(4), _floats(4).abs())
    ),
}
