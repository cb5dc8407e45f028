"""Padding: what is traced for `torch.nn.functional.pad`, circular padding as a window on a repetition, and the
gradients of reflection and replication padding."""
from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from .composite import own

aten = torch.ops.aten


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


@own(*[getattr(aten, f"reflection_pad{rank}d_backward").default for rank in (1, 2, 3)])
def reflection_pad_backward(grad: torch.Tensor, x: torch.Tensor, padding: Sequence[Any]) -> Any:
    """One dimension after the other, the inside and both edges folded onto it; torch's reference reads at indices, for
    all pairs (and triples) of edges."""
    if not all(type(n) is int and n >= 0 for n in padding):
        return NotImplemented
    for dim, before, after in sorted(_sides(x, padding)):  # the last two dimensions in one loop, after what is in parts
        fold = _folded_in_parts if dim == len(x.shape) - 3 else _folded
        grad = fold(grad, dim, x.shape[dim], before, after)
    return grad.contiguous(memory_format=suggest_memory_format(x))


def _folded(grad: torch.Tensor, dim: int, size: Any, before: int, after: int) -> torch.Tensor:
    """The inside, and what is folded onto it, of all elements: one loop does so for two dimensions."""
    total, inner = grad.narrow(dim, before, size), 2 * (len(grad.shape) - 1 - dim)
    for width, start, first in ((before, 0, 1), (after, before + size, size - 1 - after)):
        if width:
            edge = grad.narrow(dim, start, width).flip(dim)
            total = total + aten.constant_pad_nd(edge, [0] * inner + [first, size - first - width])
    return total


def _folded_in_parts(grad: torch.Tensor, dim: int, size: Any, before: int, after: int) -> torch.Tensor:
    """The same, where each part of the result has a loop of its own, which reads no more than it needs. What is folded
    is in memory then: for three dimensions one loop would sum 27 values."""
    if type(size) is not int:
        return _folded(grad, dim, size, before, after)
    parts = []
    for start, end in pairwise(sorted({0, 1, 1 + before, size - 1 - after, size - 1, size})):
        part = grad.narrow(dim, before + start, end - start)
        if 1 <= start and end <= 1 + before:
            part = part + grad.narrow(dim, before + 1 - end, end - start).flip(dim)
        if size - 1 - after <= start and end <= size - 1:
            part = part + grad.narrow(dim, before + 2 * size - 1 - end, end - start).flip(dim)
        parts.append(part)
    return torch.cat(parts, dim)


REPEATS = 8  # of an edge that are added up where its element is computed


@own(*[getattr(aten, f"replication_pad{rank}d_backward").default for rank in (1, 2, 3)])
def replication_pad_backward(grad: torch.Tensor, x: torch.Tensor, padding: Sequence[Any]) -> Any:
    """One dimension after the other, the repetitions of an edge added to it; ATen's kernel goes element by element."""
    static = all(type(n) is int and 0 <= n for n in (*padding, *x.shape)) and 0 not in x.shape
    if not static or max(padding) > REPEATS or grad.device.type != "cpu" or grad.dtype.itemsize < 4:
        return NotImplemented
    for dim, before, after in sorted(_sides(x, padding)):
        grad = _gathered(grad, dim, x.shape[dim], before, after)
    return grad.contiguous(memory_format=suggest_memory_format(x))


def _gathered(grad: torch.Tensor, dim: int, size: int, before: int, after: int) -> torch.Tensor:
    """The inside, and on its first and last elements what repeats them."""
    total, inner = grad.narrow(dim, before, size), 2 * (len(grad.shape) - 1 - dim)
    for width, start, place in ((before, 0, 0), (after, before + size, size - 1)):
        repeated = [grad.narrow(dim, start + k, 1) for k in range(width)]
        if repeated:
            edge = sum(repeated[1:], start=repeated[0])
            total = total + aten.constant_pad_nd(edge, [0] * inner + [place, size - 1 - place])
    return total
