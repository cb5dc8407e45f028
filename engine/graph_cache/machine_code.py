"""The Triton kernels of a graph as machine code: what a package has in their place (`../runtime/cuda_kernels.py`)."""
from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import sympy

from ..codegen.triton import TritonKernel
from ..codegen.triton.building import Build, begin
from ..codegen.triton.foreach import unaligned
from ..codegen.triton.index import index_text
from ..codegen.triton.launch import capability_of
from ..codegen.triton.source import WIDE_FROM, Launch, TritonSource
from ..runtime.cuda_kernels import KernelCode, LaunchCode, MachineCode
from ..unsupported import TritonUnsupported
from .gpu import kernel_of
from .kernel_data import KernelData


def machine_code_of(
    kept: Sequence[KernelData], capabilities: Sequence[int] = ()
) -> tuple[tuple[KernelCode, ...], dict[str, bytes]]:
    """The kernels, and their machine code by name: for GPUs of each of these compute capabilities, or else for those of
    this machine. Raises TritonUnsupported."""
    wanted = [(kernel, capability) for kernel in map(kernel_of, kept)
              for capability in capabilities or (capability_of(kernel.device),)]
    begun = [[_begin(launch, kernel, capability) for launch in kernel.source.launches]
             for kernel, capability in wanted]  # several at a time
    binaries: dict[str, bytes] = {}
    return tuple([_code(*each, builds, binaries) for each, builds in zip(wanted, begun)]), binaries


def _begin(launch: Launch, kernel: TritonKernel, capability: int) -> tuple[Build, Build]:
    """A launch for aligned addresses and 32-bit sizes, and for all others."""
    count = len(launch.pointers)
    usual = begin(launch, capability, (True,) * count, False)
    if kernel.source.table is not None:  # the addresses that matter are in the table
        return usual, begin(unaligned(launch), capability, (True,) * count, False)
    return usual, begin(launch, capability, (False,) * count, bool(kernel.signature.symbols))


def _code(
    kernel: TritonKernel, capability: int, builds: Sequence[tuple[Build, Build]], binaries: dict[str, bytes]
) -> KernelCode:
    source, signature, table = kernel.source, kernel.signature, kernel.source.table
    launches = tuple([_launch(launch, source, [_built(build, binaries) for build in both])
                      for launch, both in zip(source.launches, builds)])
    own = [kernel.buffers[name] for name in signature.buffers]
    scalars = [(k, b.dtype.itemsize) for k, b in enumerate(own) if table is not None and b.device != kernel.device]
    return KernelCode(
        signature.name, kernel.device, len(own), tuple([symbol.name for symbol in signature.symbols]), launches,
        tuple([(workspace.dtype, _text(workspace.numel)) for workspace in source.workspaces]),
        tuple(map(_text, source.extents)), WIDE_FROM // 2, table, tuple(scalars), capability)


def _launch(launch: Launch, source: TritonSource, built: Sequence[MachineCode]) -> LaunchCode:
    names = [*source.signature.buffers, *[workspace.name for workspace in source.workspaces]]
    places = () if source.table is not None else tuple([names.index(name) for name in launch.pointers])
    symbols = tuple([source.signature.symbols.index(symbol) for symbol in launch.symbols])
    usual, general = built
    return LaunchCode(places, symbols, tuple(map(_text, launch.grid)), usual, general)


def _built(build: Build, binaries: dict[str, bytes]) -> MachineCode:
    binary = build.wait()
    if binary.memory:
        raise TritonUnsupported(f"{binary.name} needs memory of its own, which a package does not give it")
    content = Path(binary.path).read_bytes()
    name = hashlib.sha256(content).hexdigest()[:32]
    binaries[name] = content
    return MachineCode(name, binary.name, 32 * binary.warps, binary.shared)


def _text(value: sympy.Basic) -> str:
    return index_text(value, python=True)
