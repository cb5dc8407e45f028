"""What operators give where sizes vary, in the place of torch's fake kernels, which would take long or want numbers."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

aten = torch.ops.aten


def _group_norm(x: torch.Tensor, _w: Any, _b: Any, batch: Any, _c: Any, _inner: Any, groups: int, _eps: float) -> Any:
    """What torch's reference of group norm gives, without its thirty operators on symbolic sizes."""
    statistics = [x.new_empty((batch, groups)) for _ in range(2)]
    return torch.empty_like(x, memory_format=suggest_memory_format(x)), *statistics


def _of_an_image(gradient: torch.Tensor, _sizes: Any, sizes: Sequence[Any], *_: Any) -> torch.Tensor:
    """The gradient of what was upsampled: torch has it in C++ only (UpSample*.cpp, where some keep the layout)."""
    form = torch.contiguous_format if gradient.dim() == 3 else suggest_memory_format(gradient)
    return torch.empty_like(gradient.new_empty(sizes), memory_format=form)


def _in_rows(gradient: torch.Tensor, _sizes: Any, sizes: Sequence[Any], *_: Any) -> torch.Tensor:
    return gradient.new_empty(sizes)


FORMS: dict[Any, Callable[..., Any]] = {
    aten.native_group_norm.default: _group_norm,
    aten.upsample_nearest1d_backward.default: _of_an_image,
    aten._upsample_nearest_exact1d_backward.default: _of_an_image,
    aten.upsample_linear1d_backward.default: _of_an_image,
    aten.upsample_bilinear2d_backward.default: _of_an_image,
    aten.upsample_trilinear3d_backward.default: _of_an_image,
    aten.upsample_bicubic2d_backward.default: _in_rows,
    aten.upsample_nearest3d_backward.default: _in_rows,
    aten._upsample_nearest_exact3d_backward.default: _in_rows,
}
"""By operator; called where all arguments are given by position."""
