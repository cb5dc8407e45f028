"""Upsampling: by a scale factor at dynamic sizes, since `F.interpolate` computes the sizes in C++, which would
specialize each; and the rules of its operators."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch._decomp import decomposition_table
from torch._prims_common import suggest_memory_format

from .composite import blocks, inner_dims, own

aten = torch.ops.aten

_KERNELS: dict[tuple[str, int], Any] = {
    ("nearest", 3): aten.upsample_nearest1d.default, ("nearest", 4): aten.upsample_nearest2d.default,
    ("nearest", 5): aten.upsample_nearest3d.default, ("nearest-exact", 3): aten._upsample_nearest_exact1d.default,
    ("nearest-exact", 4): aten._upsample_nearest_exact2d.default,
    ("nearest-exact", 5): aten._upsample_nearest_exact3d.default, ("linear", 3): aten.upsample_linear1d.default,
    ("bilinear", 4): aten.upsample_bilinear2d.default, ("trilinear", 5): aten.upsample_trilinear3d.default,
    ("bicubic", 4): aten.upsample_bicubic2d.default,
}


def interpolate(
    input: torch.Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> torch.Tensor:
    """`F.interpolate`; where sizes vary and a scale is given, the sizes are its products, as C++ rounds them."""
    kernel, corners = _KERNELS.get((mode, input.dim())), () if mode.startswith("nearest") else (bool(align_corners),)
    odd = size is not None or recompute_scale_factor or antialias or not (corners or align_corners is None)
    fixed = all(type(n) is int for n in input.shape) or not input.is_floating_point()
    scales = None if kernel is None or odd or fixed else _scales(scale_factor, input.dim() - 2)
    if kernel is None or scales is None:
        return F.interpolate(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)
    sizes = [n * int(s) if s.is_integer() else torch.sym_int(n * s) for n, s in zip(input.shape[2:], scales)]
    result: torch.Tensor = kernel(input, sizes, *corners, *scales)
    return result


def _scales(given: Any, count: int) -> Sequence[float] | None:
    """A scale for each dimension of an image, each of one value; None where they are no numbers, or not as many."""
    each = list(given) if isinstance(given, (list, tuple)) else [given] * count
    fit = len(each) == count and all(isinstance(s, (int, float, torch.SymInt, torch.SymFloat)) for s in each)
    return [float(s) for s in each] if fit else None


# ---- rules
@own(aten.upsample_bicubic2d.default)
def upsample_bicubic2d(image: torch.Tensor, *rest: Any) -> Any:
    """torch's rule looks sixteen points up for each result, which takes half again as long as ATen's kernel on CPUs.
    A GPU's kernel copies an image that keeps its size, whatever the scales say (cuda/UpSampleBicubic2d.cu)."""
    if image.device.type == "cpu":
        return NotImplemented
    if all(type(n) is int and n == m for n, m in zip(image.shape[2:], rest[0])):
        return aten.clone.default(image, memory_format=suggest_memory_format(image))
    return decomposition_table[aten.upsample_bicubic2d.default](image, *rest)


def _nearest(operator: Any, innermost: torch.memory_format) -> Callable[..., Any]:
    """torch's rule, which knows one of the two kernels that ATen has (aten/src/ATen/native/cpu/UpSampleKernel.cpp).

    The other, for channels that are innermost and small planes, copies where sizes are equal and takes each element
    twice where they double, whatever the scales say (`nearest_idx`).
    """
    rule = decomposition_table[operator]

    def upsample_nearest(x: torch.Tensor, size: Sequence[Any], *scales: float | None) -> Any:
        given = list(x.shape[2:])
        if (filled := _blocks_of_one(x, size, scales)) is not None:
            return filled
        if x.device.type == "cuda":
            return rule(x, size, *_of_changed_sizes(given, size, scales))
        if all(s is None or (type(s) is float and s.is_integer()) for s in scales):
            return rule(x, size, *scales)
        if any(type(n) is not int for n in (*x.shape, *size)):
            return NotImplemented
        small = len(given) == 2 and sum(size) <= 128
        if small or (x.is_contiguous(memory_format=innermost) and x.shape[1] > 3):
            scales = tuple([None if out in (n, 2 * n) else s for n, out, s in zip(given, size, scales)])
        return rule(x, size, *scales)

    return upsample_nearest


def _blocks_of_one(x: torch.Tensor, size: Sequence[Any], scales: Sequence[float | None]) -> torch.Tensor | None:
    """Sizes that double, perhaps several times: each element fills a block, which no place need be computed for."""
    given = list(x.shape[2:])
    numbers = all(type(n) is int and n > 0 for n in (*x.shape, *size))
    if x.device.type == "cuda" or not numbers or not x.is_contiguous():
        return None
    if suggest_memory_format(x) is not torch.contiguous_format:
        return None
    factors = [out // n for n, out in zip(given, size)]
    exact = all(n * f == out and f & (f - 1) == 0 for n, f, out in zip(given, factors, size)) and max(factors) > 1
    if not exact or any(s is not None and s != f for s, f in zip(scales, factors)):
        return None
    apart = [part for n in given for part in (n, 1)]
    blocks = [part for n, f in zip(given, factors) for part in (n, f)]
    first = list(x.shape[:2])
    spread = aten.expand.default(aten.reshape.default(x, first + apart), first + blocks)
    filled = aten.clone.default(spread, memory_format=torch.contiguous_format)
    return aten._unsafe_view.default(filled, first + list(size))


own(aten.upsample_nearest2d.default)(_nearest(aten.upsample_nearest2d.default, torch.channels_last))
own(aten.upsample_nearest3d.default)(_nearest(aten.upsample_nearest3d.default, torch.channels_last_3d))


def _by_blocks(operator: Any) -> Callable[..., Any]:
    """torch's rule, but for blocks of one element: half a place further on is in the same block."""
    rule = decomposition_table[operator]

    def upsample_nearest(x: torch.Tensor, size: Sequence[Any], *scales: float | None) -> Any:
        if (filled := _blocks_of_one(x, size, scales)) is not None:
            return filled
        return rule(x, size, *(_of_changed_sizes(x.shape[2:], size, scales) if x.device.type == "cuda" else scales))

    return upsample_nearest


def _of_changed_sizes(given: Sequence[Any], size: Sequence[Any], scales: Sequence[float | None]) -> list[float | None]:
    """The scales that a GPU's kernel for images asks: where a size stays as it is, it takes each line for itself
    (cuda/UpSampleNearest2d.cu; those for rows and volumes always ask)."""
    if len(given) != 2:
        return list(scales)
    return [None if type(n) is type(out) is int and n == out else s for n, out, s in zip(given, size, scales)]


for _name in ("upsample_nearest1d", *(f"_upsample_nearest_exact{k}d" for k in (1, 2, 3))):
    own(getattr(aten, _name).default)(_by_blocks(getattr(aten, _name).default))


def _nearest_backward(grad: torch.Tensor, output_size: Sequence[Any], input_size: Sequence[Any], *scales: Any) -> Any:
    """Whole factors: each element of the input gets the sum of its block; others are ATen's."""
    inner = list(input_size)[2:]
    shape = blocks(grad.shape, inner) if all(type(n) is int for n in inner) else None
    if shape is None or not grad.is_contiguous():
        return NotImplemented
    for out, size, scale in zip(grad.shape[2:], inner, scales):
        if scale is not None and scale != out // size:
            return NotImplemented
    return aten.sum.dim_IntList(aten.reshape.default(grad, shape), inner_dims(len(inner)))


own(aten.upsample_nearest1d_backward.default, aten.upsample_nearest2d_backward.default,
    aten.upsample_nearest3d_backward.default, aten._upsample_nearest_exact1d_backward.default,
    aten._upsample_nearest_exact2d_backward.default, aten._upsample_nearest_exact3d_backward.default)(_nearest_backward)
