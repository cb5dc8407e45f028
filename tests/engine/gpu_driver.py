"""The driver of a GPU on the CPU: graphs compiled as for a GPU, with their C++ wrappers, whose launches run in Triton's
interpreter on memory at the addresses that they are given. torch's functions for the CPU stand in for the GPU's."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from ptdebug.artifacts.context import CompileContext, Stage, run_stages
from ptdebug.engine import stages
from ptdebug.engine.codegen import wrapper
from ptdebug.engine.codegen.cpp_wrapper.gpu import launches, load
from ptdebug.engine.codegen.triton import TritonKernel, kernels_for_plan, launch
from ptdebug.engine.codegen.triton.building import Binary
from ptdebug.engine.codegen.triton.dtypes import _NAMES, pointer_type
from ptdebug.engine.codegen.triton.load import load_interpreted
from ptdebug.engine.codegen.triton.source import Launch, TritonSource, assemble
from ptdebug.engine.graph_cache import machine_code
from ptdebug.engine.ir.ir import ExternCall, KernelSignature, Plan
from ptdebug.engine.runtime import cuda_kernels
from ptdebug.engine.runtime.entry import EntryFacts, entry
from ptdebug.engine.stages import INFERENCE
from ptdebug.engine.toolchain.cpp_build import find_compiler

from .programs import Captured

_CPU = torch.device("cpu")
_DTYPES = {pointer_type(dtype): dtype for dtype in _NAMES}
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
        self.by_python = 0  # how many of them Python launched from machine code
        self.names: list[str] = []  # of those from machine code that were launched
        self._texts: dict[bytes, tuple[Launch, bool]] = {}
        self._folder = tempfile.TemporaryDirectory()

    def handle(self, kernel: TritonKernel, number: int) -> tuple[int, int, int]:
        """What the table of launches has of a kernel."""
        found = kernel.source.launches[number]
        dtypes = {name: buffer.dtype for name, buffer in kernel.buffers.items()}
        dtypes |= {workspace.name: workspace.dtype for workspace in kernel.source.workspaces}
        code = load_interpreted(kernel.source)[found.name]
        wide = found.index == "int64"
        self._kernels.append(functools.partial(self._run, kernel.source, code, found, dtypes, wide))
        return len(self._kernels), 32 * found.warps, 0

    def _launch(self, function: int, *rest: Any) -> int:
        self.launched += 1
        try:
            return 1 if self.broken else self._kernels[function - 1](rest[8])
        except BaseException:
            traceback.print_exc()
            return 1

    def _run(
        self, source: TritonSource, code: Any, found: Launch, dtypes: dict[str, torch.dtype], wide: bool, given: Any
    ) -> int:
        count, size = len(found.pointers), ctypes.c_int64 if wide else ctypes.c_int32
        at = [ctypes.c_void_p.from_address(given[k]).value or 0 for k in range(count)]
        memory = {name: launch._tensor_at(a, dtypes[name]) for name, a in zip(found.pointers, at)}
        sizes = {symbol: size.from_address(given[count + k]).value for k, symbol in enumerate(found.symbols)}
        symbols = [sizes.get(symbol, 1) for symbol in source.signature.symbols]
        return launch._interpret(code, found, memory, source.signature, symbols)


    # ---- machine code: here the text of a kernel
    def build(self, launch: Launch, capability: int, aligned: Sequence[bool], wide: bool) -> Any:
        """In the place of `building.begin`: what is compiled, and what `load_function` gets."""
        text = f"{launch.name} {list(aligned)} {wide}\n" + "\n".join(line.text for line in assemble([launch]))
        self._texts[text.encode()] = launch, wide
        path = Path(self._folder.name, f"{len(self._texts)}.cubin")
        path.write_text(text)
        return SimpleNamespace(wait=lambda: Binary(str(path), launch.name, launch.warps, 0, 0))

    def load_function(self, code: bytes, name: str, shared: int) -> int:
        """In the place of `cuda_driver.Driver.function`."""
        launch, wide = self._texts[code]
        assert launch.name == name
        source = TritonSource(KernelSignature(name, (), launch.symbols), (launch,), (), (), assemble([launch]))
        kernel = load_interpreted(source)[name]
        dtypes = dict(zip(launch.pointers, [_DTYPES[kind] for kind in launch.types]))
        run = functools.partial(self._run, source, kernel, launch, dtypes, wide)
        general = b"False" in code.partition(b"]")[0]

        def noted(given: Any) -> int:
            self.names.append(f"{name} {'general' if general else 'usual'}")
            return run(given)

        self._kernels.append(noted)
        return len(self._kernels)

    def launch(self, function: int, grid: Any, threads: int, shared: int, stream: int, arguments: list[int]) -> None:
        """In the place of `cuda_driver.Driver.launch`: a launch by Python."""
        self.by_python += 1
        values = (ctypes.c_uint64 * len(arguments))(*arguments)
        places = [ctypes.addressof(values) + 8 * k for k in range(len(arguments))]
        assert self._launch(function, *[0] * 8, places) == 0


@contextmanager
def package_driver() -> Iterator[Driver]:
    """Packages are made, and loaded, with this driver meanwhile: graphs on the CPU as if that were a GPU."""
    with gpu_driver() as driver, patch.object(stages, "_device_kinds", lambda plan: {"cuda"}), \
            patch.multiple(machine_code, begin=driver.build, capability_of=lambda device: 90), \
            patch.multiple(cuda_kernels, _current=lambda device, driver: nullcontext(0), _LOADED={},
                           driver=lambda: SimpleNamespace(function=driver.load_function, launch=driver.launch)):
        yield driver


@contextmanager
def gpu_driver() -> Iterator[Driver]:
    """Graphs are loaded with this driver meanwhile."""
    driver = Driver()
    with patch.object(load, "driver_functions", lambda: (driver.address, driver.current)), \
            patch.object(TritonKernel, "handle", lambda kernel, number: driver.handle(kernel, number)):
        yield driver


def driver_library(folder: Path) -> Path:
    """`fake_driver.cpp` as a library, in the place of the driver's."""
    library, source = folder / "libcuda.so.1", Path(__file__).parent / "fake_driver.cpp"
    command = [find_compiler(), "-std=c++17", "-shared", "-fPIC", "-Wall", "-Werror", str(source), "-o", str(library)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return library


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
