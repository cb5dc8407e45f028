"""Kernels of a GPU as machine code: what a package has in the place of Triton's source, and how it is called.

Each launch is there twice: for aligned addresses and 32-bit sizes, as nearly all calls have them, and for all others,
since nothing can be compiled where a package runs.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ...dependencies import msgspec
from .cuda_driver import Driver, DriverError, driver
from .kernel_tables import Table, Tables

_ALIGNED = 15  # addresses whose low four bits are zero may be loaded 16 bytes at a time


class MachineCode(msgspec.Struct, frozen=True):
    """A kernel that was compiled: the name of its machine code, its function there, its threads, its bytes of shared
    memory."""

    file: str
    function: str
    threads: int
    shared: int


class LaunchCode(msgspec.Struct, frozen=True):
    """One launch. `pointers` are places among the buffers and then the workspaces of the kernel, `symbols` places among
    its symbols; `grid` are Python expressions in the symbols."""

    pointers: tuple[int, ...]
    symbols: tuple[int, ...]
    grid: tuple[str, ...]
    usual: MachineCode
    general: MachineCode


class KernelCode(msgspec.Struct, frozen=True):
    """The launches of one kernel of a graph, which is called with the addresses of `buffers` and the values of
    `symbols`.

    `workspaces` are (dtype, number of elements), `extents` what must stay below `narrow` for 32-bit sizes to do, both
    as Python expressions. With a `table` the one launch reads the buffers from it; `scalars` of them, (place, bytes),
    are in memory of the CPU. `capability`: of the GPU that it was compiled for, 90 for 9.0; 0 in older packages.
    """

    name: str
    device: torch.device
    buffers: int
    symbols: tuple[str, ...]
    launches: tuple[LaunchCode, ...]
    workspaces: tuple[tuple[torch.dtype, str], ...]
    extents: tuple[str, ...]
    narrow: int
    table: Table | None
    scalars: tuple[tuple[int, int], ...]
    capability: int = 0


def for_this_machine(codes: Sequence[KernelCode]) -> list[KernelCode]:
    """Of kernels that were compiled for several GPUs, those for the one that they are on here."""
    if len({code.capability for code in codes}) < 2:
        return list(codes)
    here = {device: torch.cuda.get_device_capability(device) for device in {code.device for code in codes}}
    return [code for code in codes if divmod(code.capability, 10) == here[code.device]]


class CudaKernel:
    """A kernel of machine code, callable; `binaries` has the machine code by name.

    Raises DriverError where the driver does not load it.
    """

    def __init__(self, code: KernelCode, binaries: Mapping[str, bytes]) -> None:
        self.code = code
        self._driver = _present_driver()
        with _current(code.device, self._driver):
            self._handles = [tuple([self._handle(each, binaries) for each in (launch.usual, launch.general)])
                             for launch in code.launches]

    def _handle(self, code: MachineCode, binaries: Mapping[str, bytes]) -> tuple[int, int, int]:
        key = code.file, code.function, self.code.device
        if key not in _LOADED:
            _LOADED[key] = self._driver.function(binaries[code.file], code.function, code.shared)
        return _LOADED[key], code.threads, code.shared

    def handles(self, number: int) -> tuple[tuple[int, int, int], ...]:
        """(function, threads, bytes of shared memory) of a launch: for aligned addresses and 32-bit sizes, and for all
        others. None for a launch over a table, which needs more."""
        return ((0, 0, 0), (0, 0, 0)) if self.code.table is not None else self._handles[number]

    def runner(self) -> Callable[..., int]:
        """A function of addresses (or tensors) and sizes, which launches it on the current stream and returns 0."""
        return self._over_table(self.code.table) if self.code.table is not None else self._plain()

    def _plain(self) -> Callable[..., int]:
        code, count = self.code, self.code.buffers
        sizes, extents = _function(code.symbols, [n for _, n in code.workspaces]), _function(code.symbols, code.extents)
        grids = [_function(code.symbols, launch.grid) for launch in code.launches]

        def run(*arguments: Any) -> int:
            pointers = [a if type(a) is int else a.data_ptr() for a in arguments[:count]]
            symbols = arguments[count:]
            wide = bool(symbols) and max(extents(*symbols), default=0) >= code.narrow
            with _current(code.device, self._driver) as stream:
                scratch = [torch.empty(n, dtype=dtype, device=code.device)
                           for (dtype, _), n in zip(code.workspaces, sizes(*symbols))]
                pointers += [memory.data_ptr() for memory in scratch]
                for launch, handles, grid in zip(code.launches, self._handles, grids):
                    given = [pointers[place] for place in launch.pointers]
                    general = wide or any(at & _ALIGNED for at in given)
                    given += [symbols[place] for place in launch.symbols]
                    self._launch(handles[general], grid(*symbols), stream, given)
            return 0

        return run

    def _over_table(self, table: Table) -> Callable[..., int]:
        code = self.code
        with _current(code.device, self._driver):
            tables = Tables(table, code.scalars, code.device)
        (grid,) = [_function((), launch.grid)() for launch in code.launches]

        def run(*arguments: Any) -> int:
            pointers = [a if type(a) is int else a.data_ptr() for a in arguments]
            with _current(code.device, self._driver) as stream:
                rows = tables.rows(pointers, stream)
                general = any(at & _ALIGNED for at in pointers)
                given = [rows.data_ptr(), tables.programs.data_ptr()]
                self._launch(self._handles[0][general], grid, stream, given)
            return 0

        return run

    def _launch(self, handle: tuple[int, int, int], grid: Sequence[int], stream: int, arguments: list[int]) -> None:
        if 0 not in grid:
            function, threads, shared = handle
            x, y = (*grid, 1)[:2]
            self._driver.launch(function, (x, y), threads, shared, stream, arguments)


_LOADED: dict[tuple[str, str, torch.device], int] = {}  # functions of the driver in this process


def _present_driver() -> Driver:
    found = driver()
    if found is None:
        raise DriverError("there is no driver of CUDA")
    return found


@contextmanager
def _current(device: torch.device, loaded: Driver) -> Iterator[int]:
    """Make a GPU the current one meanwhile; gives its current stream."""
    with torch.cuda.device(device):
        loaded.make_current(device.index)
        yield torch._C._cuda_getCurrentRawStream(device.index)


def _function(symbols: Sequence[str], values: Sequence[str]) -> Callable[..., tuple[int, ...]]:
    """A function of the symbols that returns the values."""
    made: Callable[..., tuple[int, ...]] = eval(f"lambda {', '.join(symbols)}: ({''.join(f'{v}, ' for v in values)})")
    return made
