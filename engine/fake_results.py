"""Where torch's fake kernels promise another result than ATen's kernels give: other strides, or a wrong size.

Kernels are generated for what was promised, so the promise is put right while a graph is traced.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .unsupported import EngineUnsupported

aten = torch.ops.aten

SIZED_BY_DATA = frozenset((aten._unique.default,))
"""Operators whose results are as large as the data says; torch before 2.12 takes the size for data of zeros."""


def corrected(func: Any, out: Any, args: Sequence[Any]) -> Any:
    """`out`, the fake result of `func(*args)`, with the layout that ATen's kernel gives it.

    Raises EngineUnsupported where its size is not known.
    """
    if func in SIZED_BY_DATA and all(type(n) is int for n in out[0].shape):
        raise EngineUnsupported(f"the size of the result of {func} depends on data")
    layout = LAYOUTS.get(func)
    if layout is None or any(type(n) is not int for n in args[0].shape):
        return out
    first = out[0] if isinstance(out, tuple) else out
    strides = layout(first, *args) if first.device.type == "cpu" else None
    if strides is None:
        return out
    first = first.new_empty_strided(first.shape, strides)
    return (first, *out[1:]) if isinstance(out, tuple) else first


def _max_unpool2d(out: torch.Tensor, x: torch.Tensor, *_: Any) -> list[int] | None:
    """The format of the input, as aten/src/ATen/native/MaxUnpooling.cpp has it."""
    if x.dim() != 4 or not x.is_contiguous(memory_format=torch.channels_last) or x.is_contiguous():
        return None
    channels, height, width = out.shape[1:]
    return [channels * height * width, 1, channels * width, channels]


def _fourier(keep_last: bool) -> Callable[..., list[int] | None]:
    def layout(out: torch.Tensor, x: torch.Tensor, dims: Sequence[int], *_: Any) -> list[int] | None:
        """Transformed dimensions innermost, the others around them in the order in which they lie in the input.

        As `_exec_fft` in aten/src/ATen/native/mkl/SpectralOps.cpp; torch's fake kernels say so from 2.12 on.
        """
        if not dims or not torch.backends.mkl.is_available():
            return None
        dims = [d % x.dim() for d in dims]
        moved = dims[:-1] if keep_last else dims
        inner = sorted(moved, key=x.stride, reverse=True) + dims[len(moved) :]
        outer = sorted([d for d in range(x.dim()) if d not in dims], key=x.stride, reverse=True)
        strides, stride = [0] * x.dim(), 1
        for d in reversed(outer + inner):
            strides[d] = stride
            stride *= out.shape[d]
        return strides

    return layout


def _unique(position: int) -> Callable[..., list[int] | None]:
    def layout(out: torch.Tensor, x: torch.Tensor, *rest: Any) -> list[int] | None:
        """Slices along `dim`, the argument at `position`, one after the other (aten/src/ATen/native/Unique.cpp)."""
        dim = rest[position - 1] if len(rest) >= position else None
        if dim is None or x.numel() == 0:
            return None
        strides, stride = [0] * x.dim(), 1
        for d in (*[d for d in reversed(range(x.dim())) if d != dim % x.dim()], dim % x.dim()):
            strides[d] = stride
            stride *= x.shape[d]
        return strides

    return layout


LAYOUTS: dict[Any, Callable[..., list[int] | None]] = {
    aten.max_unpool2d.default: _max_unpool2d,
    aten._fft_r2c.default: _fourier(keep_last=True),
    aten._fft_c2c.default: _fourier(keep_last=False),
    aten.unique_dim.default: _unique(1),
    aten.unique_consecutive.default: _unique(3),
}
"""The strides of an operator's (first) result on the CPU, from its fake and its arguments; None: those it has."""
