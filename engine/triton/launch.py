"""A generated group as a function that runs: on CUDA through compiled kernels, on the CPU through the interpreter.

Called as the C++ kernels are: data pointers (or tensors) in the order of the signature, then the size symbols, and an
int64 status comes back. On CUDA a call goes straight to the compiled kernel's launcher: which variant (alignment of the
pointers, width of positions) is one dictionary look-up, and nothing of Triton's own dispatch runs.
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch

from ...artifacts.context import CompileContext
from ...artifacts.records import Kernel
from ..ir import Buffer, Group, KernelSignature, Plan
from .compile import compile_launch
from .emit import OUT_OF_BOUNDS
from .generate import generate
from .load import load, load_interpreted
from .source import WIDE_FROM, Launch, TritonSource, function_of

_ALIGNED = 15  # pointers whose low four bits are zero may be loaded 16 bytes at a time


class TritonKernel:
    """The kernels of one group, callable. `buffers` of the program give the dtypes."""

    def __init__(self, source: TritonSource, buffers: dict[str, Buffer], device: torch.device) -> None:
        self.source = source
        self.signature: KernelSignature = source.signature
        self.device = device
        self._buffers = buffers
        self._run: Callable[..., int] | None = None

    def __call__(self, *arguments: Any) -> int:
        """Run on buffers (tensors, or addresses as ints), then size symbols as ints; returns the status."""
        if self._run is None:
            self._run = self._cuda_runner() if self.device.type == "cuda" else self._interpreter_runner()
        return self._run(*arguments)

    def record(self) -> Kernel:
        """The record of stage `kernels`: the source, without products of a compiler (see `describe_for_target`)."""
        target = "cuda" if self.device.type == "cuda" else "interpreter"
        names = tuple(k.name for k in self.source.launches)
        return Kernel(self.signature.name, "triton", self.source.lines, names, target=target,
                      facts={"launches": self.source.meta})

    def _cuda_runner(self) -> Callable[..., int]:
        namespace = load(self.source)
        launchers = [_CudaLauncher(k, self.source, namespace[k.name], self.device) for k in self.source.launches]
        buffers, workspaces = self.signature.buffers, self.source.workspaces
        count = len(buffers)
        sizes = function_of(self.signature.symbols, [w.numel for w in workspaces])
        spans = function_of(self.signature.symbols, self.source.extents)
        plans = [
            (k, [buffers.index(p) if p in buffers else count + [w.name for w in workspaces].index(p)
                 for p in k.launch.pointers]) for k in launchers
        ]
        device = self.device
        index = device.index if device.index is not None else torch.cuda.current_device()
        stream_of = torch._C._cuda_getCurrentRawStream

        current_device = torch._C._cuda_getDevice

        def run(*arguments: Any) -> int:
            if current_device() != index:
                with torch.cuda.device(index):
                    return run(*arguments)
            pointers = [a if type(a) is int else a.data_ptr() for a in arguments[:count]]
            symbols = arguments[count:]
            scratch = []
            if workspaces:
                scratch = [torch.empty(n, dtype=w.dtype, device=device) for w, n in zip(workspaces, sizes(*symbols))]
                pointers += [t.data_ptr() for t in scratch]
            wide = bool(symbols) and max(spans(*symbols), default=0) >= WIDE_FROM // 2
            stream = stream_of(index)
            for launcher, places in plans:
                launcher(stream, wide, [pointers[p] for p in places], symbols)
            return 0

        if len(launchers) > 1 or workspaces or self.signature.symbols:
            return run
        return self._static_runner(launchers[0], index, run)

    @staticmethod
    def _static_runner(launcher: _CudaLauncher, index: int, general: Callable[..., int]) -> Callable[..., int]:
        """The common case, one kernel of fixed sizes on well-aligned addresses, with nothing left to decide."""
        grid = launcher.static_grid or ()
        if 0 in grid:
            return lambda *pointers: 0
        x, y = grid[0], grid[1] if len(grid) > 1 else 1
        stream_of, current_device = torch._C._cuda_getCurrentRawStream, torch._C._cuda_getDevice
        run, function, metadata, constants = launcher.variant((True,) * len(launcher.launch.pointers), False)

        def run_static(*pointers: Any) -> int:
            low = 0
            for p in pointers:
                if type(p) is not int:
                    return general(*pointers)
                low |= p
            if low & _ALIGNED or current_device() != index:
                return general(*pointers)
            run(x, y, 1, stream_of(index), function, metadata, None, None, None, *pointers, *constants)
            return 0

        return run_static

    def _interpreter_runner(self) -> Callable[..., int]:
        kernels = load_interpreted(self.source)
        signature, workspaces = self.signature, self.source.workspaces
        sizes = function_of(signature.symbols, [w.numel for w in workspaces])

        def run(*arguments: Any) -> int:
            count = len(signature.buffers)
            symbols = arguments[count:]
            memory = {
                name: a if isinstance(a, torch.Tensor) else _tensor_at(a, self._buffers[name].dtype)
                for name, a in zip(signature.buffers, arguments)
            }
            memory |= {w.name: torch.empty(n, dtype=w.dtype) for w, n in zip(workspaces, sizes(*symbols))}
            for launch in self.source.launches:
                status = _interpret(kernels[launch.name], launch, memory, signature, symbols)
                if status:
                    return status
            return 0

        return run


class _CudaLauncher:
    """One kernel on one device: a compiled variant for each (alignment, width) that has come up."""

    def __init__(self, launch: Launch, source: TritonSource, function: Any, device: torch.device) -> None:
        self.launch = launch
        self._function = function
        self._device = device
        self._grid = function_of(source.signature.symbols, launch.grid)
        self.static_grid = tuple(int(g) for g in launch.grid) if not source.signature.symbols else None
        self._variants: dict[Any, Any] = {}

    def __call__(self, stream: int, wide: bool, pointers: list[int], symbols: Sequence[int]) -> None:
        grid = self.static_grid or self._grid(*symbols)
        if 0 in grid:
            return
        aligned = tuple(not p & _ALIGNED for p in pointers)
        run, function, metadata, constants = self.variant(aligned, wide)
        y = grid[1] if len(grid) > 1 else 1
        run(grid[0], y, 1, stream, function, metadata, None, None, None, *pointers, *symbols, *constants)

    def variant(self, aligned: tuple[bool, ...], wide: bool) -> Any:
        """What a launch needs of the kernel compiled for these alignments and this width of positions."""
        found = self._variants.get((aligned, wide))
        if found is None:
            found = self._variants[aligned, wide] = self._compile(aligned, wide)
        return found

    def _compile(self, aligned: tuple[bool, ...], wide: bool) -> Any:
        with torch.cuda.device(self._device):
            kernel = compile_launch(self.launch, self._function, aligned=aligned, wide=wide)
            run = kernel.run  # loads the binary onto the device
        constants = list(kernel.src.constants.values())
        return run, kernel.function, kernel.packed_metadata, constants


def kernels_for_plan(plan: Plan, context: CompileContext) -> dict[str, TritonKernel]:
    """A callable for each group of the plan, by kernel name. Raises TritonUnsupported with the reason."""
    buffers = dict(plan.program.buffers)
    return {
        g.kernel: TritonKernel(generate(g, buffers, context), buffers, g.device)
        for g in plan.items if isinstance(g, Group)
    }


def _tensor_at(address: int, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of one element at `address`: the interpreter takes only the pointer from it."""
    memory = (ctypes.c_char * dtype.itemsize).from_address(address)
    return torch.frombuffer(memory, dtype=dtype)


def _interpret(
    kernel: Any, launch: Launch, memory: dict[str, torch.Tensor], signature: KernelSignature, symbols: Sequence[Any]
) -> int:
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterError

    values = dict(zip((s.name for s in signature.symbols), symbols))
    grid = function_of(signature.symbols, launch.grid)(*symbols)
    if 0 in grid:
        return 0
    constants: dict[str, Any] = dict(launch.constants)
    if launch.index == "dynamic":
        constants["INDEX"] = tl.int64
    pointers = [memory[p] for p in launch.pointers]
    sizes = [int(values[s.name]) for s in launch.symbols]
    try:
        with numpy.errstate(all="ignore"):  # infinities and NaN are values here
            kernel[grid](*pointers, *sizes, **constants)
    except InterpreterError as error:
        message = str(error)
        if OUT_OF_BOUNDS not in message:
            raise
        return 1 + int(message.split(OUT_OF_BOUNDS)[1].split(":")[0])
    return 0
