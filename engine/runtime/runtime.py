"""What a generated wrapper calls besides its kernels: allocation, views, checks, and ATen operators.

Wrappers refer to these by the names of `STANDARD`; ATen operators have names of their own, and `callable_of` says what
is called for each. Nothing here needs the compiler: it is all that a graph loaded from disk runs with.
"""
from __future__ import annotations

import linecache
import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch

from ...artifacts.context import CompileContext
from ..graphs.random_fills import fill_of
from ..kernels import attention, depthwise, int8_depthwise, sgemm, unaligned_product


def out_of_bounds(node: str) -> None:
    """Raise the IndexError that eager raises for an index that `node` found out of range."""
    raise IndexError(f"index out of range in `{node}`")


def with_strides(tensor: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    """`tensor` with the strides of its fake tensor, for which kernels were generated."""
    if tuple(tensor.shape) != size:
        raise RuntimeError(f"a library call returned shape {tuple(tensor.shape)} where {size} was inferred")
    result = torch.empty_strided(size, stride, dtype=tensor.dtype, device=tensor.device)
    return result.copy_(tensor)


def made_as(view: torch.Tensor, creation: str) -> torch.Tensor:
    """`view` with a CreationMeta (by name), for which autograd may refuse in-place writes."""
    autograd: Any = torch._C._autograd
    autograd._set_creation_meta(view, getattr(autograd.CreationMeta, creation))
    return view


def _with_workspace(operator: Any) -> Callable[..., Any]:
    """An operator that gives its backward a workspace only where gradients are enabled."""

    def call(*args: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd(), torch.enable_grad():
            return operator(*args)

    return call


CALLED: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.mkldnn_rnn_layer.default: _with_workspace(torch.ops.aten.mkldnn_rnn_layer.default),
    # The same operators, whose arguments Python's bindings read in a third of the time.
    torch.ops.aten.mm.default: torch.mm, torch.ops.aten.addmm.default: torch.addmm,
    torch.ops.aten.bmm.default: torch.bmm, torch.ops.aten.baddbmm.default: torch.baddbmm,
    torch.ops.aten.convolution.default: torch.convolution,
    depthwise.OPERATOR: depthwise.depthwise_weight_gradient, attention.OPERATOR: attention.attention,
    int8_depthwise.OPERATOR: int8_depthwise.convolution, sgemm.OPERATOR: sgemm.product,
    unaligned_product.OPERATOR: unaligned_product.unaligned_product,
}
"""What is called in place of an operator."""


def is_lazy(tensor: torch.Tensor) -> bool:
    """Whether its memory holds other values than the tensor (lazily conjugated, negated), or it has none (zeros that
    derivatives are, a ZeroTensor): kernels cannot read it."""
    return tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor()


def tangent(
    tensor: torch.Tensor | None, size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor:
    """A tangent in the layout of its fake: zeros for None, a copy only where the strides differ."""
    if tensor is None:
        return torch.empty_strided(size, stride, dtype=dtype, device=device).zero_()
    if not is_lazy(tensor):
        if all(n == 1 or a == b for n, a, b in zip(size, tensor.stride(), stride)) or tensor.numel() == 0:
            return tensor.as_strided(size, stride)
    return with_strides(tensor, size, stride)


def callable_of(operator: Any) -> Callable[..., Any]:
    """What a wrapper calls for an ATen operator: torch's own binding, below its Python."""
    return CALLED.get(operator) or fill_of(operator) or getattr(operator, "_op", operator)


def _reinterpret(tensor: torch.Tensor, size: Any, stride: Any, offset: int) -> torch.Tensor:
    return tensor.as_strided(size, stride, tensor.storage_offset() + offset)


_guards = getattr(torch._C._dynamo, "guards", None)
_empty_cpu = getattr(_guards, "_empty_strided_cpu", None) or (
    lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype, device="cpu")
)
empty_cuda = getattr(_guards, "_empty_strided_cuda", None)
"""Allocates on the current CUDA device; None where torch has no such function."""
_gpu = getattr(torch._C, "_cuda_getDevice", lambda: 0)


def _on_gpu(index: int, call: Callable[..., Any], *inputs: Any) -> Any:
    with torch.cuda.device(index):
        return call(*inputs)


STANDARD: Mapping[str, Any] = {
    "torch": torch, "math": math, "empty_cpu": _empty_cpu,
    "reinterpret": getattr(_guards, "_reinterpret_tensor", _reinterpret),
    "with_strides": with_strides, "made_as": made_as, "out_of_bounds": out_of_bounds, "tangent": tangent,
    "is_lazy": is_lazy,
    "gpu": _gpu, "on_gpu": _on_gpu,
    "changed": torch._C._increment_version, **({"empty_cuda": empty_cuda} if empty_cuda else {}),
}
"""The names that every wrapper knows."""


def wrapper_file(context: CompileContext) -> str:
    """The name under which tracebacks show the wrapper of this compilation."""
    return f"<ptdebug wrapper {context.id}{context.part and f' {context.part}'}>"


def later(make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """What `make` gives, made by the first call: Python compiles the wrapper of a large model for 0.1 s, and few calls
    of one that is C++ need it."""
    made = cache(make)

    def call(*inputs: Any) -> Any:
        return made()(*inputs)

    return call


def load(text: str, names: Mapping[str, Any], filename: str) -> Callable[..., tuple[Any, ...]]:
    """Compile the text of a wrapper, which defines `call`, and maybe `views`, which then is an attribute of that;
    tracebacks show its lines under `filename`."""
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    namespace = {**STANDARD, **names}
    exec(compile(text, filename, "exec"), namespace)
    call: Callable[..., tuple[Any, ...]] = namespace["call"]
    if "views" in namespace and "views" not in names:
        call.views = namespace["views"]  # type: ignore[attr-defined]
    return call
