"""The stages of a compilation made again from its recording, and what each of its kernels is called with."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...artifacts.context import CompileContext, CompileId, run_stages
from ...artifacts.recorder import NullRecorder
from ...engine.aot.autograd.joint import trace_joint
from ...engine.aot.control_flow import compile_around, has_control_flow
from ...engine.graphs.functional_graph import AtenGraph, Captured
from ...engine.ir import interpreter
from ...engine.ir.ir import Group, Program
from ...engine.lowering import lowerings
from ...engine.runtime.runtime import load
from ...engine.stages import INFERENCE, TRAINING, Wrapped
from ..failures.case import Case
from ..failures.rebuild import rebuild
from ..ladder.rungs import run_aten
from ..recorded.graphs import ReplayError
from ..recorded.inputs import clones
from ..recorded.state import deterministic
from .tensors import meta_of, random_tensor

Memory = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Part:
    """A half (or the whole) of a compilation: its stages, and the values of its inputs."""

    name: str  # "", "backward", or that of a part around control flow
    work: Wrapped
    inputs: tuple[Any, ...]


@dataclass(frozen=True)
class KernelCall:
    """One call of a kernel: its group, and what the buffers hold before."""

    group: Group
    memory: Memory
    symbols: Mapping[Any, Any]
    part: Part

    def expected(self, memory: Memory) -> Memory:
        """The buffers that it writes, as the loop IR interpreter leaves them."""
        return interpreted(self.group, memory, self.symbols)


def interpreted(group: Group, memory: Memory, symbols: Mapping[Any, Any]) -> Memory:
    """The buffers that a group writes, as the loop IR interpreter leaves them."""
    own = copied(memory)
    for body in group.bodies:
        interpreter.run_body(body, own, symbols)
    written = [name for body in group.bodies for name in body.writes]
    return {name: own[name] for name in written if name not in group.internal}


def copied(memory: Memory, device: str = "cpu") -> Memory:
    """Copies of all buffers on `device`, with their strides; those that share memory go on sharing it. A weight in a
    library's own order is only read, and stays."""
    strided = [name for name, value in memory.items() if value.layout is torch.strided]
    return memory | dict(zip(strided, clones(tuple(memory[name] for name in strided), device)))


def parts(case: Case, device: str = "cpu", recorded: Mapping[str, str] = {}) -> list[Part]:
    """The halves of a graph's case, compiled for `device`, on its inputs there. `recorded` is what was chosen then, by
    decision: measured once more, other kernels may be the faster ones. Raises ReplayError where it cannot be compiled
    again."""
    saved = clones(case.inputs.values(), device)
    context = CompileContext(CompileId(0, 0), NullRecorder(), dict(case.forced), recorded=recorded, **case.options)
    try:
        captured = rebuild(case, saved)
        if has_control_flow(captured):
            return _around_control_flow(captured, saved, context, device)
        if not case.training:
            return [Part("", run_stages(INFERENCE, captured, context), saved)]
        joint = trace_joint(captured, context, lowerings())
        if joint is None:  # an optimizer's step changes what requires gradients, without any
            return [Part("", run_stages(INFERENCE, rebuild(replace(case, training=False), saved), context), saved)]
        trained = run_stages(TRAINING, joint, context)
        with deterministic():
            forward = run_aten(trained.halves.forward, trained.halves.forward.module, clones(saved, device))
    except ReplayError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise ReplayError(f"the graph cannot be compiled again from the recording: {why}") from error
    count = joint.forward_outputs - len(joint.forward.mutations)
    outputs: Any = joint.module.graph.output_node().args[0]
    tangents = [random_tensor(meta_of(torch.empty_like(outputs[k].meta["val"], device="meta"))).to(device)
                for k in joint.tangents]
    return [Part("", trained.forward, saved), Part("backward", trained.backward, (*forward.outputs[count:], *tangents))]


def _around_control_flow(
    captured: Captured, saved: tuple[Any, ...], context: CompileContext, device: str
) -> list[Part]:
    """The parts between and inside of torch.cond and loops that run on these inputs."""
    found: list[Part] = []

    def compile_part(inner: Captured, own: CompileContext) -> Callable[..., Any]:
        if has_control_flow(inner):
            return compile_around(inner, own, compile_part)
        work, name = run_stages(INFERENCE, inner, own), own.part

        def run(*inputs: Any) -> Any:
            found.append(Part(name, work, clones(inputs, device)))
            return work.call(*inputs)
        return run

    with torch.no_grad(), deterministic():
        compile_around(captured, context, compile_part)(*clones(saved, device))
    return found


def kernel_calls(part: Part) -> Iterator[KernelCall]:
    """The calls of a part's kernels, one after the other; what each computes is computed by the interpreter."""
    program, aten = part.work.plan.program, part.work.aten  # with the buffers that the scheduler adds
    memory, symbols = memory_of(program, aten, part.inputs)
    with torch.no_grad(), deterministic():
        for step in part.work.plan.items:
            if isinstance(step, Group):
                yield KernelCall(step, copied(memory), symbols, part)
            try:
                if isinstance(step, Group):
                    for body in step.bodies:
                        interpreter.run_body(body, memory, symbols)
                else:
                    interpreter.call(step, memory, symbols)
            except Exception as error:
                what = step.kernel if isinstance(step, Group) else step.target
                why = f"{type(error).__name__}: {error}"
                raise ReplayError(f"{what}, which runs before that kernel, fails: {why}") from error


def memory_of(
    program: Program, aten: AtenGraph, inputs: tuple[Any, ...], device: str = "cpu"
) -> tuple[Memory, dict[Any, Any]]:
    """The buffers of a program before its first step, and the values of its symbols."""
    if aten.folding is not None:  # inputs that are computed from frozen ones
        folding = aten.folding
        fold = load(folding.source.text, folding.source.names, "<ptdebug repro folding>")
        inputs = (*inputs, *fold(*(inputs[index] for index in folding.positions)))
    memory: Memory = dict(program.constants)
    memory |= copied({n: v for n, v in zip(program.inputs, inputs) if isinstance(v, torch.Tensor)}, device)
    symbols = interpreter.symbol_values(program, inputs)
    for buffer in program.buffers.values():
        if buffer.role == "intermediate":
            memory[buffer.name] = interpreter.allocate(buffer, symbols)
    return memory, symbols


def with_random(call: KernelCall) -> KernelCall:
    """The call with random numbers in place of what its buffers hold."""
    random = {name: random_tensor(meta_of(value)) for name, value in call.memory.items()}
    return replace(call, memory=random)
