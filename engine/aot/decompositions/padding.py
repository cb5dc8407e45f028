"""What is traced in the place of `torch.nn.functional.pad`: a padding that wraps around, as part of a repetition."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def pad(x: torch.Tensor, pad: Sequence[Any], mode: str = "constant", value: float | None = None) -> torch.Tensor:
    """`torch.nn.functional.pad`. In the mode "circular" ATen fills memory by a copy of the tensor and two of its edges
    for each dimension (`_pad_circular` in aten/src/ATen/native/PadNd.cpp); one loop reads a repeated tensor instead.

    Where gradients are wanted, those of the copies are the better.
    """
    if mode != "circular" or value or not _wraps_once(x, pad) or (torch.is_grad_enabled() and x.requires_grad):
        return torch.nn.functional.pad(x, pad, mode, value)
    sides = _sides(x, pad)
    repeats = [1] * len(x.shape)
    for dim, before, after in sides:
        repeats[dim] += (before > 0) + (after > 0)
    result = x.repeat(repeats)
    for dim, before, after in sides:
        start = x.shape[dim] - before if before else 0
        result = result.narrow(dim, start, before + x.shape[dim] + after)
    return result.clone(memory_format=torch.contiguous_format)


def _sides(x: torch.Tensor, pad: Sequence[int]) -> list[tuple[int, int, int]]:
    """(dimension, elements before, elements after), the last dimension first."""
    return [(len(x.shape) - 1 - k // 2, pad[k], pad[k + 1]) for k in range(0, len(pad), 2)]


def _wraps_once(x: torch.Tensor, pad: Sequence[Any]) -> bool:
    """Whether ATen takes these numbers, none of them symbolic, and none beyond the other edge."""
    rank = len(x.shape)
    if not all(type(n) is int for n in (*pad, *x.shape)) or 0 in x.shape:
        return False
    if len(pad) not in (2, 4, 6) or rank - len(pad) // 2 not in (1, 2):
        return False
    return all(0 <= n <= x.shape[dim] for dim, *wide in _sides(x, pad) for n in wide)
