"""What is kept of the Triton kernels of a graph, and of the C++ wrapper that launches them (see `gpu.py`)."""
from __future__ import annotations

import torch

from ...dependencies import msgspec
from ..runtime.kernel_tables import Table


class LaunchData(msgspec.Struct, frozen=True):
    """A `Launch`, its symbols and its grid as sympy's `srepr` has them, its lines without provenance. The order of the
    constants is that of the parameters: it must survive, and keys of a dict are sorted. `key` is that of its machine
    code in the cache of kernels, for aligned addresses and 32-bit sizes; "" where there is none."""

    name: str
    pointers: tuple[str, ...]
    types: tuple[str, ...]
    symbols: tuple[str, ...]
    constants: tuple[tuple[str, int], ...]
    grid: tuple[str, ...]
    warps: int
    index: str
    lines: tuple[str, ...]
    tile: str
    stages: int
    copied: tuple[tuple[int, int], ...]
    key: str


class BufferData(msgspec.Struct, frozen=True):
    """What a launch needs of a buffer."""

    name: str
    dtype: torch.dtype
    device: torch.device


class WorkspaceData(msgspec.Struct, frozen=True):
    """A `Workspace`."""

    name: str
    dtype: torch.dtype
    numel: str


class KernelData(msgspec.Struct, frozen=True):
    """A `TritonKernel`: the signature, and its source."""

    name: str
    device: torch.device
    buffers: tuple[BufferData, ...]
    symbols: tuple[str, ...]
    bounds: tuple[str, ...]
    launches: tuple[LaunchData, ...]
    workspaces: tuple[WorkspaceData, ...]
    extents: tuple[str, ...]
    table: Table | None


class LaunchesData(msgspec.Struct, frozen=True):
    """What a C++ wrapper launches, and what it lets Python do: see `GpuWrapper`."""

    launches: tuple[tuple[str, int], ...]
    by_python: tuple[str | None, ...]
