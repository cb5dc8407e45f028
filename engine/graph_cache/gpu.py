"""The Triton kernels of a graph as data, and back. Machine code is no part of it: it is found by its key, or by a
kernel's text, in the cache of compiled kernels (`../toolchain/triton_cache.py`), or compiled again."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
from torch.utils._sympy import functions

from ...artifacts.records import CodeLine
from ..codegen.cpp_wrapper.gpu.launches import GpuWrapper
from ..codegen.triton import InterpretedGroup, TritonKernel
from ..codegen.triton.source import Launch, TritonSource, Workspace, assemble
from ..ir.ir import Buffer, KernelSignature
from .kernel_data import BufferData, KernelData, LaunchData, LaunchesData, WorkspaceData
from .values import Uncacheable

_NAMES = {**vars(sympy), **vars(functions)}


def data_of(kernel: TritonKernel | InterpretedGroup) -> KernelData:
    """The kernels of a group as data. Raises Uncacheable for a group that has none."""
    if isinstance(kernel, InterpretedGroup):
        raise Uncacheable(f"{kernel.signature.name} has no Triton kernel")
    source, signature = kernel.source, kernel.signature
    own = [kernel.buffers[name] for name in signature.buffers]
    return KernelData(
        signature.name, kernel.device, tuple([BufferData(b.name, b.dtype, b.device) for b in own]),
        _texts(signature.symbols), signature.bounds, tuple(map(_launch_data, source.launches, kernel.keys())),
        tuple([WorkspaceData(w.name, w.dtype, sympy.srepr(w.numel)) for w in source.workspaces]),
        _texts(source.extents), source.table,
    )


def launches_of(wrapper: GpuWrapper) -> LaunchesData:
    """What a C++ wrapper launches, as data."""
    return LaunchesData(wrapper.launches, wrapper.by_python)


def _launch_data(launch: Launch, key: str) -> LaunchData:
    return LaunchData(
        launch.name, launch.pointers, launch.types, _texts(launch.symbols), tuple(launch.constants.items()),
        _texts(launch.grid), launch.warps, launch.index, tuple([line.text for line in launch.lines]), launch.tile,
        launch.stages, launch.copied, key)


def _texts(values: Sequence[sympy.Basic]) -> tuple[str, ...]:
    return tuple(map(sympy.srepr, values))


def kernels_of(kept: Sequence[KernelData]) -> dict[str, TritonKernel]:
    """The kernels, compiled and loaded, by name. Raises TritonUnsupported where the device refuses one."""
    kernels = {one.name: kernel_of(one) for one in kept}
    for kernel in kernels.values():
        kernel.begin()
    for kernel in kernels.values():
        kernel.wait()
    return kernels


def kernel_of(kept: KernelData) -> TritonKernel:
    """One kernel, not yet compiled."""
    buffers = {b.name: Buffer(b.name, b.dtype, b.device, (), ()) for b in kept.buffers}
    signature = KernelSignature(kept.name, tuple(buffers), _values(kept.symbols), kept.bounds)
    launches = tuple(map(_launch, kept.launches))
    workspaces = tuple([Workspace(w.name, w.dtype, _value(w.numel)) for w in kept.workspaces])
    source = TritonSource(signature, launches, workspaces, _values(kept.extents), assemble(launches), kept.table)
    return TritonKernel(source, buffers, kept.device)


def _launch(kept: LaunchData) -> Launch:
    return Launch(
        kept.name, kept.pointers, kept.types, _values(kept.symbols), dict(kept.constants), _values(kept.grid),
        kept.warps, kept.index, tuple(map(CodeLine, kept.lines)), kept.tile,
        kept.stages, kept.copied)


def _values(texts: Sequence[str]) -> tuple[Any, ...]:
    return tuple(map(_value, texts))


def _value(text: str) -> Any:
    return eval(text, dict(_NAMES))

