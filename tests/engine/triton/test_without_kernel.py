"""Groups that Triton has no kernel for: their statements call ATen, and the rest of the graph stays compiled."""
from __future__ import annotations

from pathlib import Path

import ptdebug
import pytest
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.engine.codegen.triton import InterpretedGroup, TritonKernel, kernels_for_plan, launch
from ptdebug.engine.unsupported import TritonUnsupported

from .programs import PlanRunner, plan_of


def _function(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
    looked = x.transpose(0, 1)[i]
    return torch.softmax(looked.cumsum(0) + 1, -1), looked.sum(), (x * 2).matmul(x.t()).relu()


@pytest.mark.parametrize("refused", ["softmax", ""])
def test_a_group_that_triton_refuses_runs_statement_by_statement(refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    generate = launch.generate

    def generate_or_refuse(group, buffers, context):
        if refused in group.kernel:
            raise TritonUnsupported("nothing has a form")
        return generate(group, buffers, context)

    monkeypatch.setattr(launch, "generate", generate_or_refuse)
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


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("stage", ["generate", "compile"])
def test_the_rest_of_a_graph_on_a_gpu_is_compiled(stage: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where code generation refuses a group, and where the compiler does."""
    if stage == "generate":
        generate = launch.generate

        def refuse(group, buffers, context):
            if "softmax" in group.kernel:
                raise TritonUnsupported("nothing has a form")
            return generate(group, buffers, context)

        monkeypatch.setattr(launch, "generate", refuse)
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
