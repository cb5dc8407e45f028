"""A wrapper and its kernels as data: what must be kept to run them again, and how that becomes callable.

Text and plain data only. The objects that a wrapper's names refer to are stored as references (an operator by its name,
a tensor by its elements); kernels come from the C++ file, which is found built or built again
(`../toolchain/cpp_build.py`), and on a GPU from Triton sources (`gpu.py`).
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import torch

from ...dependencies import msgspec
from ..codegen.cpp_wrapper.gpu.load import NO_HANDLE, Handle, loaded
from ..codegen.cpp_wrapper.load import load as load_native
from ..codegen.cpp_wrapper.state import Native
from ..graphs.functional_graph import LAZY_VIEWS
from ..runtime.cuda_graphs.facts import GraphFacts
from ..runtime.cuda_kernels import CudaKernel, KernelCode, for_this_machine
from ..runtime.runtime import STANDARD, callable_of, later, load
from ..toolchain.cpp_build import build, functions_of
from . import found_kernels
from .kernel_data import KernelData, LaunchesData
from .values import DEVICES, NAMESPACES, Uncacheable, bytes_of

Record = TypeVar("Record")
CONSTANTS_LIMIT = 16 << 20  # bytes of the tensors that one wrapper holds


class Reference(msgspec.Struct, frozen=True):
    """What a name of a wrapper refers to: "operator" NAME, "device" NAME, "view" (a key of LAZY_VIEWS), "nodes" (names
    of nodes, for messages), "tensor" (its dtype, its device, and `content`), "number" (a complex one)."""

    kind: str
    name: str = ""
    nodes: tuple[str, ...] = ()
    size: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    content: bytes = b""
    number: tuple[float, float] = (0.0, 0.0)
    device: str = "cpu"


class Half(msgspec.Struct, frozen=True):
    """One wrapper, the C++ file that its kernels are in ("" for none), and their names in the order of its table; and
    what the same wrapper in that file needs, where there is one. `graphs`: what CUDA graphs of it must know. `triton`
    are kernels on a GPU; where the wrapper in C++ launches them, `launches` says how, and `functions` is a wrapper that
    gives what it lets Python do. `code`: in the place of `triton` in a package, which has machine code."""

    text: str
    names: dict[str, Reference]
    source: str = ""
    kernels: tuple[str, ...] = ()
    native: Native | None = None
    graphs: GraphFacts | None = None
    triton: tuple[KernelData, ...] = ()
    launches: LaunchesData | None = None
    functions: Half | None = None
    code: tuple[KernelCode, ...] = ()


class FoldingPart(msgspec.Struct, frozen=True):
    """What makes further inputs of a graph from frozen ones, and where those stand among its inputs."""

    call: Half
    positions: tuple[int, ...]


def encode(parts: Any) -> bytes:
    """`parts`, or a record that holds some of them, as bytes; equal parts give equal bytes."""
    return msgspec.msgpack.encode(parts, enc_hook=str, order="deterministic")


def decode_as(content: bytes, kind: type[Record]) -> Record:
    """The record of this class that `encode` wrote. Raises msgspec.DecodeError for anything else."""
    found: Record = msgspec.msgpack.decode(content, type=kind, dec_hook=_from_text)
    return found


def _from_text(kind: type, text: Any) -> Any:
    return getattr(torch, text.removeprefix("torch.")) if kind is torch.dtype else kind(text)  # a torch.device

# ---- wrappers --------------------------------------------------------------------------------------------------------
class Source(Protocol):
    """A wrapper's text, and the objects that its names refer to (see `../codegen/wrapper.py`)."""

    @property
    def text(self) -> str: ...
    @property
    def names(self) -> Mapping[str, Any]: ...
    @property
    def operators(self) -> Mapping[str, str]: ...


def half_of(
    wrapper: Source, source: str = "", kernels: tuple[str, ...] = (), native: Native | None = None,
    graphs: GraphFacts | None = None, triton: Sequence[KernelData] = (), launches: LaunchesData | None = None,
    functions: Half | None = None,
) -> Half:
    """A wrapper as data, with its kernels. Raises Uncacheable for an object that has no description."""
    known = {*STANDARD, *kernels, *[kernel.name for kernel in triton]}
    own = {name: value for name, value in wrapper.names.items() if name not in known}
    found = {name: _reference(value, wrapper.operators.get(name)) for name, value in own.items()}
    if sum(len(reference.content) for reference in found.values()) > CONSTANTS_LIMIT:
        raise Uncacheable("the graph contains large tensors")
    return Half(wrapper.text, found, source, kernels, native, graphs, tuple(triton), launches, functions)


def _reference(value: Any, operator: str | None) -> Reference:
    if operator is not None:
        if operator.partition(".")[0] not in NAMESPACES:
            raise Uncacheable(f"the custom operator {operator}")
        return Reference("operator", operator)
    if isinstance(value, torch.device):
        return Reference("device", str(value))
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if type(value) is complex:
        return Reference("number", number=(value.real, value.imag))
    if type(value) is tuple and all(type(name) is str for name in value):
        return Reference("nodes", nodes=value)
    lazy = next((kind for kind, view in LAZY_VIEWS.items() if view is value), None)
    if lazy is not None:
        return Reference("view", lazy)
    raise Uncacheable(f"the wrapper refers to a value of type {type(value).__qualname__}")


def _tensor(value: torch.Tensor) -> Reference:
    plain = type(value) is torch.Tensor and value.device.type in DEVICES and value.layout is torch.strided
    if not plain or value.is_quantized or value.is_conj() or value.is_neg() or value.requires_grad:
        raise Uncacheable("the wrapper refers to a tensor that is not strided")
    order = sorted(range(value.dim()), key=lambda i: (value.stride()[i], value.shape[i]), reverse=True)
    if not value.permute(order).is_contiguous():
        raise Uncacheable("the wrapper refers to a tensor that is not dense")
    name = str(value.dtype).removeprefix("torch.")
    return Reference("tensor", name, size=tuple(value.shape), stride=tuple(value.stride()), content=bytes_of(value),
                     device=str(value.device))


def call_of(
    half: Half, filename: str, path: Path | None = None, binaries: Mapping[str, bytes] = MappingProxyType({})
) -> Callable[..., Any]:
    """The wrapper as a function; tracebacks show it under `filename`. Its kernels are in the library at `path`; None:
    where the cache has it, or it is built. `binaries` is the machine code for a GPU, by name. Raises what `build`
    raises, and DriverError."""
    names = {name: _object(reference) for name, reference in half.names.items()}
    if half.triton or half.code or half.launches is not None:
        return _on_a_gpu(half, names, filename, path, binaries)
    if not half.kernels and half.native is None:
        return load(half.text, names, filename)
    if path is None:
        library = build(half.source, half.kernels)
        path, functions = library.path, library.functions
    else:
        functions = functions_of(path, half.kernels)
    if half.native is None:
        return load(half.text, {**names, **functions}, filename)
    return load_native(path, half.native, names, later(lambda: load(half.text, {**names, **functions}, filename)))


def _on_a_gpu(
    half: Half, names: dict[str, Any], filename: str, path: Path | None, binaries: Mapping[str, bytes]
) -> Callable[..., Any]:
    runners, handles = _of_triton(half) if half.triton else _of_machine_code(half, binaries)
    if half.launches is None or half.native is None:
        functions: Mapping[str, Callable[..., Any]] = {}
        if half.kernels:
            functions = build(half.source, half.kernels).functions if path is None else functions_of(path, half.kernels)
        return load(half.text, {**names, **functions, **runners}, filename)
    python = later(lambda: load(half.text, {**names, **runners}, filename))
    others = call_of(half.functions, f"{filename} steps")() if half.functions is not None else ()
    return loaded(build(half.source, ()).path if path is None else path, half.native, names, python, handles,
                  half.launches.by_python, runners, others)


_Kernels = tuple[dict[str, Callable[..., int]], Sequence[Sequence[Handle]]]
"""The kernels of a graph by name, and what the table of its C++ wrapper has of each launch."""


def _of_triton(half: Half) -> _Kernels:
    names = [kernel.name for kernel in half.triton]
    launched = half.launches.launches if half.launches is not None else ()
    generated = cache(lambda: _generated(half.triton))
    found = found_kernels.found(half.triton) if half.launches is not None else None
    if found is None:
        made = generated()
        handles = [(made[name].handle(number), NO_HANDLE) for name, number in launched]
        return {name: made[name].runner() for name in names}, handles
    late = {name: later(partial(_runner, generated, name)) for name in names}
    runners = {kernel.name: found_kernels.runner(kernel, found[kernel.name], late[kernel.name])
               for kernel in half.triton}
    return runners, [(found[name][number].handle, NO_HANDLE) for name, number in launched]


def _generated(kept: Sequence[KernelData]) -> dict[str, Any]:
    from .gpu import kernels_of  # which loads Triton's code generation

    return kernels_of(kept)


def _runner(kernels: Callable[[], dict[str, Any]], name: str) -> Callable[..., int]:
    runner: Callable[..., int] = kernels()[name].runner()
    return runner


def _of_machine_code(half: Half, binaries: Mapping[str, bytes]) -> _Kernels:
    kernels = {code.name: CudaKernel(code, binaries) for code in for_this_machine(half.code)}
    launches = half.launches.launches if half.launches is not None else ()
    handles = [kernels[name].handles(number) for name, number in launches]
    return {name: kernel.runner() for name, kernel in kernels.items()}, handles


def _object(reference: Reference) -> Any:
    match reference.kind:
        case "operator":
            found: Any = torch.ops
            for name in reference.name.split("."):
                found = getattr(found, name)
            return callable_of(found)
        case "device":
            return torch.device(reference.name)
        case "view":
            return LAZY_VIEWS[reference.name]
        case "nodes":
            return reference.nodes
        case "number":
            return complex(*reference.number)
    return tensor_of(reference)


def tensor_of(reference: Reference) -> torch.Tensor:
    """The tensor that a reference of kind "tensor" describes."""
    dtype = getattr(torch, reference.name)
    tensor = torch.empty_strided(reference.size, reference.stride, dtype=dtype)
    if reference.content:
        tensor.copy_(torch.frombuffer(bytearray(reference.content), dtype=dtype).reshape(reference.size))
    return tensor.to(reference.device)
