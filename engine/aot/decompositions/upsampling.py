"""Upsampling by a scale factor at dynamic sizes: `F.interpolate` computes the sizes in C++, which would specialize
each."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

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
