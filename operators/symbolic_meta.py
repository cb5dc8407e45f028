"""Meta kernels for sizes that vary, in the place of torch's fake kernels, which would take long or want numbers.

They are called where all arguments are given by position; `traits.py` says which operator has which.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format


def group_norm(x: torch.Tensor, _w: Any, _b: Any, batch: Any, _c: Any, _inner: Any, groups: int, _eps: float) -> Any:
    """What torch's reference of group norm gives, without its thirty operators on symbolic sizes."""
    statistics = [x.new_empty((batch, groups)) for _ in range(2)]
    return torch.empty_like(x, memory_format=suggest_memory_format(x)), *statistics


def of_an_image(gradient: torch.Tensor, _sizes: Any, sizes: Sequence[Any], *_: Any) -> torch.Tensor:
    """The gradient of what was upsampled: torch has it in C++ only (UpSample*.cpp, where some keep the layout)."""
    form = torch.contiguous_format if gradient.dim() == 3 else suggest_memory_format(gradient)
    return torch.empty_like(gradient.new_empty(sizes), memory_format=form)


def in_rows(gradient: torch.Tensor, _sizes: Any, sizes: Sequence[Any], *_: Any) -> torch.Tensor:
    """The same, row-major whatever the layout of the gradient."""
    return gradient.new_empty(sizes)
