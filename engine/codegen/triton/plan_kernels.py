"""The kernels of a plan: generated, compiled at the same time, loaded; what has none is interpreted."""
from __future__ import annotations

from collections.abc import Mapping

import torch

from ....artifacts.context import CompileContext
from ...ir.ir import Buffer, Group, Plan
from ...unsupported import TritonUnsupported
from .generate import generate, symbols_of
from .interpreted import InterpretedGroup, interpreted
from .launch import TargetKernel, TritonKernel
from .source import TritonSource
from .timing import timing_on


def kernels_for_plan(plan: Plan, context: CompileContext) -> dict[str, TritonKernel | InterpretedGroup]:
    """A callable for each group of the plan, by kernel name, whose compilation has begun."""
    buffers = dict(plan.program.buffers)
    kernels: dict[str, TritonKernel | InterpretedGroup] = {}
    for group in plan.items:
        if isinstance(group, Group):
            try:
                measured = context.max_autotune and not context.compiled_for
                timing = timing_on(group.device, buffers) if measured else None
                source = generate(group, buffers, context, plan.program.sizes, timing)
                kernel = _kernel(source, buffers, group.device, context)
                kernel.begin()
                kernels[group.kernel] = kernel
            except TritonUnsupported as why:
                symbols = symbols_of(group, buffers)
                kernels[group.kernel] = interpreted(group, buffers, symbols, str(why), context)
    return kernels


def _kernel(
    source: TritonSource, buffers: Mapping[str, Buffer], device: torch.device, context: CompileContext
) -> TritonKernel:
    if context.compiled_for:
        return TargetKernel(source, buffers, device, context.compiled_for)
    return TritonKernel(source, buffers, device)


def finished(
    kernels: Mapping[str, TritonKernel | InterpretedGroup], plan: Plan, context: CompileContext
) -> dict[str, TritonKernel | InterpretedGroup]:
    """The kernels, compiled and loaded; a group whose kernel the compiler or the device refuses does without."""
    done: dict[str, TritonKernel | InterpretedGroup] = {}
    groups = {item.kernel: item for item in plan.items if isinstance(item, Group)}
    for number, (name, kernel) in enumerate(kernels.items(), 1):
        context.progress(f"compiling kernel {number} of {len(kernels)}")
        done[name] = kernel
        try:
            if isinstance(kernel, TritonKernel):
                kernel.wait()
                kernel.runner()
        except TritonUnsupported as why:
            symbols = kernel.signature.symbols
            done[name] = interpreted(groups[name], plan.program.buffers, symbols, str(why), context)
    return done
