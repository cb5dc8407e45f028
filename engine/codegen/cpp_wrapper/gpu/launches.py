"""How a wrapper for a GPU becomes callable: the compiler that runs beside Triton's, and the table of launches."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .....artifacts.context import CompileContext
from .....artifacts.decision_kinds import CPP_WRAPPER_ASKED
from ....graphs.functional_graph import AtenGraph
from ....graphs.wrapper_source import WrapperSource
from ....ir.ir import ExternCall, Plan
from ....runtime.cuda_graphs import conditions
from ....toolchain.cpp_build import BuildFailed, Building, CannotBuild
from ....unsupported import NoCppWrapper
from ... import wrapper
from ...python_steps import steps
from ...triton import InterpretedGroup, TritonKernel
from ..load import load
from ..state import NativeSource
from .writer import GpuWriter

Kernels = Mapping[str, TritonKernel | InterpretedGroup]
OPTIONS = ("python", "cpp")
GPU_BY_DEFAULT = True
"""Whether graphs get one where the option cpp_wrapper says nothing."""
AS_DEFAULT = "a call launches its kernels in less time"


@dataclass(frozen=True)
class GpuWrapper:
    """A wrapper that is being built. `kernels` are those it was written for, `launches` and `steps` as the writer has
    them."""

    native: NativeSource
    building: Building
    kernels: Kernels
    launches: tuple[tuple[str, int], ...]
    steps: tuple[str | tuple[ExternCall, bool], ...]

    def load(
        self, aten: AtenGraph, plan: Plan, source: WrapperSource, kernels: Kernels,
        python: Callable[..., Sequence[Any]], context: CompileContext,
    ) -> Callable[..., Sequence[Any]]:
        """The wrapper as a function, with `kernels` as they were compiled; `python` where it cannot be used."""
        refused = [n for n, kernel in self.kernels.items() if kernels[n].signature != kernel.signature]
        launch, current = driver_functions()
        try:
            if refused or not launch:
                raise NoCppWrapper(f"{refused[0]} has no kernel" if refused else "the driver has no cuLaunchKernel")
            path = self.building.wait().path
        except (NoCppWrapper, CannotBuild, BuildFailed) as reason:
            why = str(reason)
            context.decide("python-wrapper", "graph", ("python",), "python", why)
            return python
        table = _table([launch, current], [_handle(kernels[name], number) for name, number in self.launches])
        state = (ctypes.addressof(table), self._by_python(aten, plan, kernels, context), table)
        return load(path, self.native.native, source.names, python, state)

    def _by_python(
        self, aten: AtenGraph, plan: Plan, kernels: Kernels, context: CompileContext
    ) -> tuple[Callable[..., Any], ...]:
        """What Python does for it."""
        calls = [step for step in self.steps if not isinstance(step, str)]
        signatures = {name: kernel.signature for name, kernel in kernels.items()}
        text = steps(aten, plan, signatures, calls)
        functions = iter(wrapper.load(text, context.for_part(f"{context.part}.steps".lstrip(".")))())
        found = [kernels[s].runner() if isinstance(s, str) else next(functions) for s in self.steps]
        return (*found, *functions)  # at last what makes views


def begin(aten: AtenGraph, plan: Plan, kernels: Kernels, context: CompileContext) -> GpuWrapper | None:
    """The wrapper of a graph on a GPU, whose compilation has begun; None where Python's is to be used."""
    asked = context.cpp_wrapper
    wanted = GPU_BY_DEFAULT if asked is None else asked
    why = CPP_WRAPPER_ASKED if asked else AS_DEFAULT
    if not wanted and context.override("wrapper", "graph") != "cpp":
        context.decide("wrapper", "graph", OPTIONS, "python", "the option cpp_wrapper is off")
        return None
    try:
        if context.without_python:
            raise NoCppWrapper("a program without Python launches no kernels on a GPU")
        if context.cuda_graphs and not conditions.why_not(aten, plan):
            raise NoCppWrapper("its kernels are launched by the replay of a CUDA graph")
        writer = GpuWriter(aten, plan, kernels)
        source = writer.write()
    except (NoCppWrapper, NotImplementedError) as reason:
        context.decide("python-wrapper", "graph", ("python",), "python", str(reason))
        return None
    if context.decide("wrapper", "graph", OPTIONS, "cpp", why) == "python":
        return None
    text = "\n".join([line.text for line in source.lines]) + "\n"
    return GpuWrapper(source, Building(text, ()), kernels, tuple(writer.launches), tuple(writer.steps))


def driver_functions() -> tuple[int, int]:
    """The addresses of the driver's functions that launch a kernel and tell the context of this thread; 0 without them.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        found = [ctypes.cast(f, ctypes.c_void_p).value for f in (driver.cuLaunchKernel, driver.cuCtxGetCurrent)]
        return found[0] or 0, found[1] or 0
    except (OSError, AttributeError):
        return 0, 0


def _handle(kernel: TritonKernel | InterpretedGroup, number: int) -> tuple[int, int, int]:
    """(function, threads, shared memory) of a launch; no function where Python has to launch."""
    return kernel.handle(number) if isinstance(kernel, TritonKernel) else (0, 0, 0)


def _table(functions: Sequence[int], kernels: Sequence[tuple[int, int, int]]) -> Any:
    """What the C++ calls a Table."""
    numbers = [*functions, *[number for kernel in kernels for number in kernel]]
    return (ctypes.c_uint64 * len(numbers))(*numbers)
