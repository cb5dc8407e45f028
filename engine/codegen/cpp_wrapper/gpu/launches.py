"""How a graph gets a wrapper for a GPU: the compiler that runs beside Triton's, and what the kernels are then."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
from ..state import NativeSource
from .load import NO_HANDLE, Handle, loaded
from .writer import written

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
            if context.compiled_for:
                return _runs_elsewhere
            runners = {name: kernels[name].runner() for name in self.by_python if name is not None}
            return loaded(path, self.native.native, source.names, python, handles_of(kernels, self.launches),
                          self.by_python, runners, functions())
        except (NoCppWrapper, CannotBuild, BuildFailed) as reason:
            context.decide("python-wrapper", "graph", ("python",), "python", str(reason))
            return python


def _runs_elsewhere(*inputs: object) -> Sequence[object]:
    raise RuntimeError("this graph was compiled for a GPU that is not here")


def begin(aten: AtenGraph, plan: Plan, kernels: Kernels, context: CompileContext) -> GpuWrapper | None:
    """The wrapper of a graph on a GPU, whose compilation has begun; None where Python's is to be used."""
    asked = context.cpp_wrapper
    wanted = GPU_BY_DEFAULT if asked is None else asked
    why = CPP_WRAPPER_ASKED if asked else AS_DEFAULT
    if not wanted and context.override("wrapper", "graph") != "cpp":
        context.decide("wrapper", "graph", OPTIONS, "python", "the option cpp_wrapper is off")
        return None
    try:
        if context.cuda_graphs and not conditions.why_not(aten, plan):
            raise NoCppWrapper("its kernels are launched by the replay of a CUDA graph")
        writer, source = written(aten, plan, kernels, context.without_python)
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


def handles_of(kernels: Kernels, launches: Sequence[tuple[str, int]]) -> list[tuple[Handle, Handle]]:
    """What the table has of each launch: Python launches what is not aligned, or has sizes of 64 bits, and compiles it
    then."""
    found = [(kernels[name], number) for name, number in launches]
    return [(kernel.handle(number) if isinstance(kernel, TritonKernel) else NO_HANDLE, NO_HANDLE)
            for kernel, number in found]
