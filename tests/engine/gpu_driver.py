"""The driver of a GPU on the CPU: graphs compiled as for a GPU, with their C++ wrappers, whose launches run in Triton's
interpreter on memory at the addresses that they are given. torch's functions for the CPU stand in for the GPU's."""

from __future__ import annotations

import ctypes
import functools
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from ptdebug.artifacts.context import CompileContext, Stage, run_stages
from ptdebug.engine.codegen import wrapper
from ptdebug.engine.codegen.cpp_wrapper.gpu import launches, load
from ptdebug.engine.codegen.triton import TritonKernel, kernels_for_plan, launch
from ptdebug.engine.codegen.triton.load import load_interpreted
from ptdebug.engine.ir.ir import ExternCall, Plan
from ptdebug.engine.runtime.entry import EntryFacts, entry
from ptdebug.engine.stages import INFERENCE

from .programs import Captured

_CPU = torch.device("cpu")
_PROTOTYPE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint32] * 7, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)


class Driver:
    """Launches kernels, whose handles are numbers from 1; `launched` counts, `broken`: each launch fails."""

    def __init__(self) -> None:
        self.launched, self.broken = 0, False
        self._kernels: list[Callable[[list[int]], None]] = []
        self._function = _PROTOTYPE(self._launch)
        self.address = ctypes.cast(self._function, ctypes.c_void_p).value
        self.current = 0  # threads need no context

    def handle(self, kernel: TritonKernel, number: int) -> tuple[int, int, int]:
        """What the table of launches has of a kernel."""
        found = kernel.source.launches[number]
        dtypes = {name: buffer.dtype for name, buffer in kernel.buffers.items()}
        dtypes |= {workspace.name: workspace.dtype for workspace in kernel.source.workspaces}
        code = load_interpreted(kernel.source)[found.name]
        self._kernels.append(functools.partial(self._run, kernel, code, found, dtypes))
        return len(self._kernels), 32 * found.warps, 0

    def _launch(self, function: int, *rest: Any) -> int:
        self.launched += 1
        try:
            return 1 if self.broken else self._kernels[function - 1](rest[8])
        except BaseException:
            traceback.print_exc()
            return 1

    def _run(self, kernel: TritonKernel, code: Any, found: Any, dtypes: dict[str, torch.dtype], given: Any) -> int:
        count = len(found.pointers)
        at = [ctypes.c_void_p.from_address(given[k]).value or 0 for k in range(count)]
        memory = {name: launch._tensor_at(a, dtypes[name]) for name, a in zip(found.pointers, at)}
        sizes = {symbol: ctypes.c_int32.from_address(given[count + k]).value for k, symbol in enumerate(found.symbols)}
        symbols = [sizes.get(symbol, 1) for symbol in kernel.signature.symbols]
        return launch._interpret(code, found, memory, kernel.signature, symbols)


@contextmanager
def gpu_driver() -> Iterator[Driver]:
    """Graphs are loaded with this driver meanwhile."""
    driver = Driver()
    with patch.object(load, "driver_functions", lambda: (driver.address, driver.current)), \
            patch.object(TritonKernel, "handle", lambda kernel, number: driver.handle(kernel, number)):
        yield driver


def plan_for_gpu(graph: Captured, context: CompileContext) -> Any:
    """A graph, captured for a GPU, up to its plan, with all of its buffers on the CPU."""
    places = [s.name if isinstance(s, Stage) else "" for s in INFERENCE]
    work: Any = run_stages(INFERENCE[: places.index("scheduling") + 1], graph, context)
    return replace(work, plan=_on_the_cpu(work.plan))


def in_cpp(graph: Captured, context: CompileContext) -> Callable[..., Any] | None:
    """A graph, captured for a GPU, with its C++ wrapper, as a function of tensors on the CPU; None where it gets none.
    """
    work = plan_for_gpu(graph, context)
    kernels = kernels_for_plan(work.plan, context)
    made = launches.begin(work.aten, work.plan, kernels, context)
    if made is None:
        return None
    functions = {name: kernel.runner() for name, kernel in kernels.items()}
    source = wrapper.generate(
        work.aten, work.plan, functions, {name: kernel.signature for name, kernel in kernels.items()})
    call = made.load(source, kernels, wrapper.load(source, context), context)
    return entry(call, EntryFacts.of(work.aten), graph)


def _on_the_cpu(plan: Plan) -> Plan:
    buffers = {name: replace(buffer, device=_CPU) for name, buffer in plan.program.buffers.items()}
    items = [replace(item, args=_there(item.args), kwargs=_there(dict(item.kwargs)))
             if isinstance(item, ExternCall) else replace(item, device=_CPU) for item in plan.items]
    constants = {name: tensor.cpu() for name, tensor in plan.program.constants.items()}
    program = replace(plan.program, buffers=buffers, constants=constants)
    return Plan(program, tuple(items), plan.reuse)


def _there(tree: Any) -> Any:
    if isinstance(tree, torch.device):
        return _CPU
    if isinstance(tree, (tuple, list)):
        return type(tree)(_there(item) for item in tree)
    return {k: _there(v) for k, v in tree.items()} if isinstance(tree, dict) else tree
