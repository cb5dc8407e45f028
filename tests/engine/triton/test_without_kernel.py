"""Groups that Triton has no kernel for: their statements call ATen, and the rest of the graph stays compiled."""
from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import ptdebug
import pytest
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.engine.codegen.triton import InterpretedGroup, TritonKernel, kernels_for_plan, launch, plan_kernels
from ptdebug.engine.ir.ir import Foreach, Group
from ptdebug.engine.runtime import triton_launcher
from ptdebug.engine.unsupported import TritonUnsupported

from .programs import PlanRunner, plan_of


def _function(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
    looked = x.transpose(0, 1)[i]
    return torch.softmax(looked.cumsum(0) + 1, -1), looked.sum(), (x * 2).matmul(x.t()).relu()


@pytest.mark.parametrize("refused", ["softmax", ""])
def test_a_group_that_triton_refuses_runs_statement_by_statement(refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generate = plan_kernels.generate

    def generate_or_refuse(group, *others):
        if refused in group.kernel:
            raise TritonUnsupported("nothing has a form")
        return generate(group, *others)

    monkeypatch.setattr(plan_kernels, "generate", generate_or_refuse)
    inputs = torch.randn(6, 5), torch.tensor([[0, 4], [-1, 2]])
    context = CompileContext()
    plan = plan_of(_function, inputs, context)
    kernels = kernels_for_plan(plan, context)
    kinds = {type(kernel) for kernel in kernels.values()}
    assert kinds == ({InterpretedGroup, TritonKernel} if refused else {InterpretedGroup})
    for got, known in zip(PlanRunner(plan, kernels)(*inputs), _function(*inputs)):
        torch.testing.assert_close(got, known)
    for kernel in kernels.values():  # of addresses, as wrappers call it
        if isinstance(kernel, InterpretedGroup):
            memory = [torch.zeros(200, dtype=plan.program.buffers[n].dtype) for n in kernel.signature.buffers]
            assert kernel(*[m.data_ptr() for m in memory]) == 0


def test_a_kernel_that_the_device_refuses_is_known_before_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """By waiting for it, whether its sizes are known or not."""
    def refuse(*_):
        raise RuntimeError("out of resource: shared memory")

    of_cuda = {"get_device_capability": lambda _: (9, 0), "device": nullcontext, "current_device": lambda: 0}
    for name, value in of_cuda.items():
        monkeypatch.setattr(torch.cuda, name, value)
    for module in (launch, triton_launcher):
        monkeypatch.setattr(module, "static_launcher", SimpleNamespace(_load_kernel=refuse, _launch_kernel=None))
    plan = plan_of(lambda x: torch.sin(x) + 1, (torch.randn(64),), CompileContext())
    (group,) = plan.items
    assert isinstance(group, Group)
    buffers = dict(plan.program.buffers)
    kernel = TritonKernel(plan_kernels.generate(group, buffers, CompileContext()), buffers, torch.device("cuda", 0))
    with pytest.raises(TritonUnsupported, match="cannot be loaded: out of resource"):
        kernel.wait()


def test_numbers_on_the_cpu_are_read_there() -> None:
    """A kernel that reads a table gets their addresses on the CPU; others get copies on their device."""
    scale, xs = torch.tensor(3.0), [torch.randn(k) for k in range(4, 9)]
    by_scale = lambda scale, a, b, c, d, e: tuple([x * scale for x in (a, b, c, d, e)])
    plan = plan_of(by_scale, (scale, *xs), CompileContext())
    (group,) = plan.items
    assert isinstance(group, Foreach)
    elsewhere = InterpretedGroup(replace(group, device=torch.device("meta")), plan.program.buffers, ())
    assert torch.equal(elsewhere._tensor(plan.program.inputs[0], scale.data_ptr(), {}), scale)
    there = InterpretedGroup(group, plan.program.buffers, ())
    memory = {name: torch.zeros(8) for name in there.signature.buffers} | dict(zip(plan.program.inputs, (scale, *xs)))
    assert there(*[memory[name].data_ptr() for name in there.signature.buffers]) == 0
    results = [memory[view.buffer] for view in plan.program.outputs]
    assert all(torch.equal(result[: len(x)], 3 * x) for result, x in zip(results, xs))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("stage", ["generate", "compile"])
def test_the_rest_of_a_graph_on_a_gpu_is_compiled(stage: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where code generation refuses a group, and where the compiler does."""
    if stage == "generate":
        generate = plan_kernels.generate

        def refuse(group, *others):
            if "softmax" in group.kernel:
                raise TritonUnsupported("nothing has a form")
            return generate(group, *others)

        monkeypatch.setattr(plan_kernels, "generate", refuse)
    else:
        wait = TritonKernel.wait

        def fail(kernel):
            if "softmax" in kernel.signature.name:
                raise TritonUnsupported("the compiler ran out of registers")
            wait(kernel)

        monkeypatch.setattr(TritonKernel, "wait", fail)
    inputs = torch.randn(6, 5, device="cuda"), torch.tensor([[0, 4], [-1, 2]], device="cuda")
    with ptdebug.record(out=str(tmp_path)) as recording:
        compiled = ptdebug.compile(_function)
        results = [compiled(*inputs) for _ in range(2)]
    (one,) = recording.compiles()
    assert (one.status, one.reason) == ("compiled", "")
    told = {d.why for _, d in recording.decisions(one.id) if d.kind == "fallback"}
    assert told & {"nothing has a form", "the compiler ran out of registers"}
    for result in results:
        for got, known in zip(result, _function(*inputs)):
            torch.testing.assert_close(got, known)
