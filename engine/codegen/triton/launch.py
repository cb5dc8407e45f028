"""A generated group as a function that runs: on CUDA through compiled kernels, on the CPU through the interpreter.

Called as the C++ kernels are: data pointers (or tensors) in the order of the signature, then the size symbols, and an
int64 status comes back. On CUDA a call goes straight to torch's launcher for compiled kernels, written in C++: which
variant (alignment of the pointers, width of positions) is one dictionary look-up, and nothing of Triton runs, or is
even imported.
"""
from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy
import torch

from ....artifacts.records import Kernel
from ...ir.ir import Buffer, KernelSignature
from ...runtime.cuda_graphs.capture import is_kept
from ...runtime.kernel_tables import Table, Tables
from ...runtime.triton_launcher import ALIGNED, Launchable, static_launcher
from .building import Build, begin, parameter_types
from .compile import compile_launch, record_of
from .emit import OUT_OF_BOUNDS
from .foreach import unaligned
from .interpreter_library import as_on_a_device
from .load import load, load_interpreted
from .source import WIDE_FROM, Launch, TritonSource, function_of

_APART = 256  # bytes between the starts of workspaces, at least
_MOST_ARGUMENTS = 100  # that torch's launcher certainly accepts

Variant = Callable[[int, int, int, tuple[Any, ...]], None]  # (programs, programs, stream, arguments)


class TritonKernel:
    """The kernels of one group, callable. `buffers` of the program give the dtypes."""

    def __init__(self, source: TritonSource, buffers: Mapping[str, Buffer], device: torch.device) -> None:
        self.source = source
        self.signature: KernelSignature = source.signature
        self.device = device
        self.buffers = buffers
        self._run: Callable[..., int] | None = None
        self._launchers = [_CudaLauncher(k, source, device) for k in source.launches] if device.type == "cuda" else []

    def begin(self) -> None:
        """Start to compile what a usual call needs: aligned pointers, 32-bit indices."""
        for launcher in self._launchers:
            launcher.usual()

    def wait(self) -> None:
        """Until that is compiled, and loaded. Raises TritonUnsupported where Triton or the device refuses."""
        for launcher in self._launchers:
            launcher.wait()

    def __call__(self, *arguments: Any) -> int:
        """Run on buffers (tensors, or addresses as ints), then size symbols as ints; returns the status."""
        return self.runner()(*arguments)

    def runner(self) -> Callable[..., int]:
        """The launch of a call, with its kernels loaded: for frequent callers."""
        if self._run is None:
            if self.source.table is not None:
                self._run = self._table_runner(self.source.table)
            else:
                self._run = self._cuda_runner() if self.device.type == "cuda" else self._interpreter_runner()
        return self._run

    def handle(self, number: int) -> tuple[int, int, int]:
        """(function, threads, bytes of shared memory) of a launch as the driver has it: for aligned addresses and
        32-bit indices; no function where torch's launcher does not launch it."""
        if not self._launchers or self.source.table is not None:
            return 0, 0, 0
        launcher = self._launchers[number]
        variant = launcher.variant((True,) * len(launcher.launch.pointers), False)
        return variant.handle if isinstance(variant, Launchable) else (0, 0, 0)

    def keys(self) -> tuple[str, ...]:
        """Under which key the machine code of each launch is kept, of what a usual call needs; "" for none."""
        builds = [launcher.usual() for launcher in self._launchers]
        keys = tuple(["" if build is None else build.job["key"] for build in builds])
        return keys or ("",) * len(self.source.launches)

    def record(self) -> Kernel:
        """The record of stage `kernels`: the source, and on a GPU the forms of what was built; the SASS comes later."""
        builds = [build for launcher in self._launchers if (build := launcher.usual()) is not None]
        if builds and len(builds) == len(self._launchers):
            return record_of(self.source, builds, f"cuda:{capability_of(self.device)}")
        target = "cuda" if self.device.type == "cuda" else "interpreter"
        names = tuple(k.name for k in self.source.launches)
        return Kernel(self.signature.name, "triton", self.source.lines, names, target=target,
                      metrics={"launches": self.source.meta})

    def _cuda_runner(self) -> Callable[..., int]:
        buffers, workspaces = self.signature.buffers, self.source.workspaces
        count = len(buffers)
        sizes = function_of(self.signature.symbols, [w.numel for w in workspaces])
        spans = function_of(self.signature.symbols, self.source.extents)
        plans = [
            (k, [buffers.index(p) if p in buffers else count + [w.name for w in workspaces].index(p)
                 for p in k.launch.pointers]) for k in self._launchers
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

        return run if self.signature.symbols else self._static_runner(plans, index, run)

    def _table_runner(self, table: Table) -> Callable[..., int]:
        """For a kernel that reads its buffers from a table."""
        launch = self._table_launch()
        dtypes = [(k, self.buffers[n]) for k, n in enumerate(self.signature.buffers)]
        tables = Tables(table, [(k, b.dtype.itemsize) for k, b in dtypes if b.device.type != self.device.type],
                        self.device)

        def run(*arguments: Any) -> int:
            pointers = [a if type(a) is int else a.data_ptr() for a in arguments]
            low = 0
            for pointer in pointers:
                low |= pointer
            return launch(not low & ALIGNED, pointers, tables)

        return run

    def _table_launch(self) -> Callable[[bool, list[int], Tables], int]:
        """The launch for (whether all addresses are aligned, addresses, tables)."""
        first = self.source.launches[0]
        if self.device.type != "cuda":
            kernel = load_interpreted(self.source)[first.name]

            def interpret(aligned: bool, pointers: list[int], tables: Tables) -> int:
                memory = {"rows": tables.rows(pointers, 0), "programs": tables.programs}
                return _interpret(kernel, first if aligned else unaligned(first), memory, self.signature, ())

            return interpret
        launchers = (_CudaLauncher(unaligned(first), self.source, self.device), self._launchers[0])
        index = self.device.index if self.device.index is not None else torch.cuda.current_device()

        def launch(aligned: bool, pointers: list[int], tables: Tables) -> int:
            if torch._C._cuda_getDevice() != index:
                with torch.cuda.device(index):
                    return launch(aligned, pointers, tables)
            stream = torch._C._cuda_getCurrentRawStream(index)
            rows = tables.kept_rows(pointers) if is_kept() else tables.rows(pointers, stream)
            launchers[aligned](stream, False, [rows.data_ptr(), tables.programs.data_ptr()], ())
            return 0

        return launch

    def _static_runner(
        self, plans: Sequence[tuple[_CudaLauncher, list[int]]], index: int, general: Callable[..., int]
    ) -> Callable[..., int]:
        """The common case, kernels of fixed sizes on well-aligned addresses, without run-time checks.

        Arguments are all addresses, or all tensors.
        """
        if any(0 in (launcher.static_grid or ()) for launcher, _ in plans) or not self.signature.buffers:
            return general
        count, size = len(self.signature.buffers), 0
        offsets = []
        for workspace in self.source.workspaces:
            offsets.append(size)
            size += -(-int(workspace.numel) * workspace.dtype.itemsize // _APART) * _APART
        steps: list[tuple[Variant, int, int, list[int]]] = []
        for launcher, places in plans:
            programs, others, *_ = (*(launcher.static_grid or ()), 1, 1)
            usual = launcher.variant((True,) * len(launcher.launch.pointers), False)
            steps.append((usual, programs, others, places))
        stream_of, current_device = torch._C._cuda_getCurrentRawStream, torch._C._cuda_getDevice
        first, x, y, _ = steps[0]
        if len(steps) == 1 and not size and plans[0][1] == list(range(count)) and isinstance(first, Launchable) and (
                not first.memory):
            return first.for_addresses(count, x, y, index, general)
        device = torch.device("cuda", index)

        def run_static(*pointers: Any) -> int:
            if type(pointers[0]) is not int:
                return general(*pointers)
            low = 0
            for pointer in pointers:
                low |= pointer
            if low & ALIGNED or current_device() != index:
                return general(*pointers)
            stream = stream_of(index)
            if size:
                scratch = torch.empty(size, dtype=torch.uint8, device=device)
                start = scratch.data_ptr()
                pointers += tuple([start + offset for offset in offsets])
            for launch, programs, others, places in steps:
                launch(programs, others, stream, tuple([pointers[p] for p in places]))
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
                name: a if isinstance(a, torch.Tensor) else _tensor_at(a, self.buffers[name].dtype)
                for name, a in zip(signature.buffers, arguments)
            }
            memory |= {w.name: torch.empty(n, dtype=w.dtype) for w, n in zip(workspaces, sizes(*symbols))}
            for launch in self.source.launches:
                status = _interpret(kernels[launch.name], launch, memory, signature, symbols)
                if status:
                    return status
            return 0

        return run


class TargetKernel(TritonKernel):
    """The kernels of one group for GPUs that are not here, by their compute capabilities: compiled, and never launched.
    """

    def __init__(
        self, source: TritonSource, buffers: Mapping[str, Buffer], device: torch.device, capabilities: Sequence[int]
    ) -> None:
        super().__init__(source, buffers, device)
        self._capabilities = capabilities

    def begin(self) -> None:
        """Start to compile what a usual call needs there."""
        for capability in self._capabilities:
            self._builds(capability)

    def wait(self) -> None:
        """Until that is compiled. Raises TritonUnsupported where Triton refuses."""
        for capability in self._capabilities:
            for build in self._builds(capability):
                build.wait()

    def runner(self) -> Callable[..., int]:
        """A function that raises."""
        return _runs_elsewhere

    def handle(self, number: int) -> tuple[int, int, int]:
        """No function."""
        return 0, 0, 0

    def keys(self) -> tuple[str, ...]:
        """Those of the machine code for the first of the GPUs."""
        return tuple([build.job["key"] for build in self._builds(self._capabilities[0])])

    def record(self) -> Kernel:
        """The record of stage `kernels`, for the first of the GPUs."""
        capability = self._capabilities[0]
        return record_of(self.source, self._builds(capability), f"cuda:{capability}")

    def _builds(self, capability: int) -> list[Build]:
        return [begin(launch, capability, (True,) * len(launch.pointers), False) for launch in self.source.launches]


def _runs_elsewhere(*arguments: Any) -> int:
    raise RuntimeError("this graph was compiled for a GPU that is not here")


class _CudaLauncher:
    """One kernel on one device: a compiled variant for each (alignment, width) seen so far."""

    def __init__(self, launch: Launch, source: TritonSource, device: torch.device) -> None:
        self.launch = launch
        self._source = source
        self._device = device
        self._grid = function_of(source.signature.symbols, launch.grid)
        self.static_grid = tuple(int(g) for g in launch.grid) if not source.signature.symbols else None
        self._variants: dict[Any, Variant] = {}
        self._static = static_launcher is not None and len(launch.types) + len(launch.symbols) <= _MOST_ARGUMENTS

    def __call__(self, stream: int, wide: bool, pointers: list[int], symbols: Sequence[int]) -> None:
        grid = self.static_grid or self._grid(*symbols)
        if 0 in grid:
            return
        copies = {place: self._copy(pointers[place], count) for place, count in self.launch.copied
                  if pointers[place] & ALIGNED}  # freed when the launch is on its way
        pointers = [copies[k].data_ptr() if k in copies else p for k, p in enumerate(pointers)]
        aligned = tuple(not p & ALIGNED for p in pointers)
        self.variant(aligned, wide)(grid[0], grid[1] if len(grid) > 1 else 1, stream, (*pointers, *symbols))

    def _copy(self, address: int, count: int) -> torch.Tensor:
        """`count` bytes in memory that is aligned."""
        storage = torch._C._construct_storage_from_data_pointer(address, self._device, count)
        return torch.empty(0, dtype=torch.uint8, device=self._device).set_(storage, 0, (count,), (1,)).clone()

    def usual(self) -> Build | None:
        """The variant for aligned pointers and narrow indices, whose compilation begins; None where Triton launches."""
        return self._build((True,) * len(self.launch.pointers), False) if self._static else None

    def wait(self) -> None:
        """Until that variant is compiled, and loaded. Raises TritonUnsupported."""
        if self._static:
            self.variant((True,) * len(self.launch.pointers), False)

    def variant(self, aligned: tuple[bool, ...], wide: bool) -> Variant:
        """The kernel compiled for these alignments and this width of positions, loaded."""
        found = self._variants.get((aligned, wide))
        if found is None:
            with torch.cuda.device(self._device):
                if self._static:
                    types = parameter_types(self.launch, wide)
                    found = Launchable(self._build(aligned, wide).wait(), types, torch.cuda.current_device())
                else:
                    function = load(self._source)[self.launch.name]
                    found = _by_triton(compile_launch(self.launch, function, aligned=aligned, wide=wide))
            self._variants[aligned, wide] = found
        return found

    def _build(self, aligned: tuple[bool, ...], wide: bool) -> Build:
        return begin(self.launch, capability_of(self._device), aligned, wide)


def capability_of(device: torch.device) -> int:
    """The compute capability of a GPU: 90 for 9.0."""
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def _by_triton(kernel: Any) -> Variant:
    """Launch through Triton's own launcher, which is compiled for each list of types."""
    run = kernel.run  # loads the binary onto the device
    function, metadata, constants = kernel.function, kernel.packed_metadata, tuple(kernel.src.constants.values())

    def launch(x: int, y: int, stream: int, arguments: tuple[Any, ...]) -> None:
        run(x, y, 1, stream, function, metadata, None, None, None, *arguments, *constants)

    return launch


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
        with numpy.errstate(all="ignore"), as_on_a_device():  # infinities and NaN are values here
            kernel[grid](*pointers, *sizes, **constants)
    except InterpreterError as error:
        message = str(error)
        if OUT_OF_BOUNDS not in message:
            raise
        return 1 + int(message.split(OUT_OF_BOUNDS)[1].split(":")[0])
    return 0
