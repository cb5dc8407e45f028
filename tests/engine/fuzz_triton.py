"""The kernels of a GPU on the CPU, in Triton's interpreter: a graph is compiled as for a GPU, up to the text of its
kernels, and its plan runs on tensors of the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.engine.codegen.triton import kernels_for_plan
from ptdebug.engine.graphs.functional_graph import LAZY_VIEWS, AtenGraph, FromGraph
from ptdebug.engine.ir.interpreter import run_steps
from ptdebug.engine.ir.ir import Group

from .gpu_driver import plan_for_gpu
from .programs import Captured


def results_in(aten: AtenGraph, outputs: tuple[Any, ...]) -> list[Any]:
    """The results that the graph itself computes; None for views of inputs, and the like."""
    made = len(aten.mutations)
    lazily = [LAZY_VIEWS[o.lazily] if isinstance(o, FromGraph) and o.lazily else lambda x: x for o in aten.outputs]
    return [view(outputs[o.index - made]) if isinstance(o, FromGraph) else None
            for o, view in zip(aten.outputs, lazily)]


def in_tritons_interpreter(graph: Captured, context: CompileContext) -> Callable[[list[Any]], list[Any]]:
    """The graph, captured for a GPU, as a function of inputs on the CPU."""
    work = plan_for_gpu(graph, context)
    plan = work.plan
    kernels = kernels_for_plan(plan, context)

    def run_group(group: Group, memory: dict[str, torch.Tensor], symbols: Mapping[sympy.Symbol, Any]) -> None:
        kernel = kernels[group.kernel]
        sizes = [int(symbols[s]) for s in kernel.signature.symbols]
        status = kernel(*(memory[name] for name in kernel.signature.buffers), *sizes)
        if status:
            raise IndexError(kernel.signature.bounds[status - 1])

    return lambda inputs: results_in(work.aten, run_steps(plan.program, plan.items, inputs, run_group))
