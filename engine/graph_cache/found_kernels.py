"""Kernels of a graph from disk whose machine code is in the cache of kernels: what a usual call launches, without what
generates Triton's code, which takes a second of processor time to load."""
from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..runtime.cuda_graphs.capture import is_kept
from ..runtime.kernel_tables import Table, Tables
from ..runtime.triton_launcher import ALIGNED, Launchable, static_launcher
from ..toolchain.triton_cache import kept
from ..unsupported import TritonUnsupported
from .kernel_data import KernelData, LaunchData

Runner = Callable[..., int]
Found = dict[str, list[Launchable]]
"""The launches of each kernel, for aligned addresses and 32-bit sizes."""


def found(kernels: Sequence[KernelData]) -> Found | None:
    """The launches, loaded; None where one of them is not there, or is refused."""
    if static_launcher is None:
        return None
    loaded: dict[tuple[str, torch.device], Launchable] = {}
    try:
        for kernel in kernels:
            with torch.cuda.device(kernel.device):
                for launch in kernel.launches:
                    if (launch.key, kernel.device) not in loaded:
                        loaded[launch.key, kernel.device] = _loaded(launch)
    except (LookupError, TritonUnsupported):
        return None
    return {kernel.name: [loaded[launch.key, kernel.device] for launch in kernel.launches] for kernel in kernels}


def _loaded(launch: LaunchData) -> Launchable:
    binary = kept(launch.key) if launch.key else None
    if binary is None:
        raise LookupError(launch.name)
    types = [*launch.types, *["i64" if launch.index == "int64" else "i32"] * len(launch.symbols)]
    return Launchable(binary, types, torch.cuda.current_device())


def runner(kernel: KernelData, launches: Sequence[Launchable], general: Runner) -> Runner:
    """What Python calls in the place of a kernel: a kernel over a table is launched here, all else is `general`."""
    return general if kernel.table is None else _over_table(kernel, kernel.table, launches[0], general)


def _over_table(kernel: KernelData, table: Table, launch: Launchable, general: Runner) -> Runner:
    scalars = [(k, b.dtype.itemsize) for k, b in enumerate(kernel.buffers) if b.device.type != kernel.device.type]
    tables = Tables(table, scalars, kernel.device)
    index = kernel.device.index if kernel.device.index is not None else torch.cuda.current_device()

    def run(*arguments: int | torch.Tensor) -> int:
        pointers = [a if isinstance(a, int) else a.data_ptr() for a in arguments]
        if any(at & ALIGNED for at in pointers) or torch.cuda.current_device() != index:
            return general(*pointers)
        stream = torch._C._cuda_getCurrentRawStream(index)
        rows = tables.kept_rows(pointers) if is_kept() else tables.rows(pointers, stream)
        launch(len(tables.programs), 1, stream, (rows.data_ptr(), tables.programs.data_ptr()))
        return 0

    return run
