"""The strides that results have in eager where sizes are one: torch's fake kernels give such dimensions others.

Nothing is read by them, but they decide whether a tensor passes for one with its channels innermost
(`suggest_memory_format`), and so the layout of all that convolutions and norms make of it: an image that a
transformer's block has made of its tokens, in a batch of one.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def of_view(operator: Any, args: Sequence[Any], made: torch.Tensor) -> tuple[int, ...]:
    """Of a view, and of what looks like one."""
    return strides_of_view(args[0].shape, args[0].stride(), made.shape)


def with_number(operator: Any, args: Sequence[Any], made: torch.Tensor) -> tuple[int, ...] | None:
    """Of a tensor and a number: torch's fast fake kernels take the tensor's memory format; eager looks at its strides.
    What ATen itself says, of tensors without memory."""
    if _is_number(args[0]) or not _is_number(args[1]):
        return None
    like = torch.empty_strided(args[0].shape, args[0].stride(), dtype=torch.float32, device="meta")
    number = torch.empty((), dtype=torch.float32, device="meta")
    found: torch.Tensor = operator.overloadpacket.Tensor(like, number)
    return found.stride()


def _is_number(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or value.dim() == 0


def strides_of_view(sizes: Sequence[int], strides: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...]:
    """ATen's computeStride (TensorUtils.cpp): dimensions that lie in line, from the innermost, are split anew."""
    found: list[int] = []
    left = list(wanted)
    base, run = (strides[-1] if strides else 1), 1
    for dim in reversed(range(len(sizes))):
        run *= sizes[dim]
        if dim and (sizes[dim - 1] == 1 or strides[dim - 1] == run * base):
            continue
        covered = 1
        while left and (covered < run or left[-1] == 1):
            found.append(covered * base)
            covered *= left.pop()
        base, run = strides[dim - 1], 1
    return tuple(reversed(found)) if len(found) == len(wanted) else (1,) * len(wanted)
