"""How a wrapper for a GPU becomes callable: the compiler that runs beside Triton's, and the table of launches."""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .....artifacts.context import CompileContext
from .....artifacts.decision_kinds import CPP_WRAPPER_ASKED
from ....graphs.functional_graph import AtenGraph
from ....graphs.wrapper_source import WrapperSource
from ....ir.ir import Plan
from ....runtime.cuda_graphs import conditions
from ....runtime.entry import Compiled
from ....toolchain.cpp_build import BuildFailed, Building, CannotBuild
from ....unsupported import NoCppWrapper
from ... import wrapper
from ...python_steps import steps
from ...triton import InterpretedGroup, TritonKernel
from ..load import load
from ..state import Native, NativeSource
from .writer import GpuWriter

Kernels = Mapping[str, TritonKernel | InterpretedGroup]
OPTIONS = ("python", "cpp")
GPU_BY_DEFAULT = True
"""Whether graphs get one where the option cpp_wrapper says nothing."""
AS_DEFAULT = "a call launches its kernels in less time"


@dataclass(frozen=True)
class GpuWrapper:
    """A wrapper that is being built. `kernels` are those it was written for; `launches` are (kernel, which of its
    launches). Python launches the kernels that `by_python` names and, where that is None, calls the next of the
    functions that `functions` defines."""

    native: NativeSource
    building: Building
    kernels: Kernels
    launches: tuple[tuple[str, int], ...]
    by_python: tuple[str | None, ...]
    functions: WrapperSource

    def load(self, source: WrapperSource, kernels: Kernels, python: Compiled, context: CompileContext) -> Compiled:
        """The wrapper as a function, with `kernels` as they were compiled; `python` where it cannot be used."""
        refused = [n for n, kernel in self.kernels.items() if kernels[n].signature != kernel.signature]
        functions = wrapper.load(self.functions, context.for_part(f"{context.part}.steps".lstrip(".")))
        try:
            if refused:
                raise NoCppWrapper(f"{refused[0]} has no kernel")
            path = self.building.wait().path
            return loaded(path, self.native.native, source.names, python, kernels, self.launches, self.by_python,
                          functions())
        except (NoCppWrapper, CannotBuild, BuildFailed) as reason:
            context.decide("python-wrapper", "graph", ("python",), "python", str(reason))
            return python


def loaded(
    path: Path, native: Native, names: Mapping[str, Any], python: Compiled, kernels: Kernels,
    launches: Sequence[tuple[str, int]], by_python: Sequence[str | None], functions: Sequence[Callable[..., Any]],
) -> Compiled:
    """The wrapper in the library at `path`, for the rest see GpuWrapper. Raises NoCppWrapper without a driver."""
    launch, current = driver_functions()
    if not launch:
        raise NoCppWrapper("the driver has no cuLaunchKernel")
    table = _table([launch, current], [_handle(kernels[name], number) for name, number in launches])
    rest = iter(functions)
    called = [next(rest) if name is None else kernels[name].runner() for name in by_python]
    state = (ctypes.addressof(table), (*called, *rest), table)  # at last what makes views
    return load(path, native, names, python, state)


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
    signatures = {name: kernel.signature for name, kernel in kernels.items()}
    functions = steps(aten, plan, signatures, [step for step in writer.steps if not isinstance(step, str)])
    by_python = tuple([step if isinstance(step, str) else None for step in writer.steps])
    return GpuWrapper(source, Building(text, ()), kernels, tuple(writer.launches), by_python, functions)


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
