"""The strides that results have in eager where sizes are one: torch's fake kernels give such dimensions others.

Nothing is read by them, but they decide whether a tensor passes for one with its channels innermost
(`suggest_memory_format`), and so the layout of all that convolutions and norms make of it: an image that a
transformer's block has made of its tokens, in a batch of one.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_aten = torch.ops.aten
_VIEWS = frozenset((_aten.view.default, _aten._unsafe_view.default))
_WITH_NUMBERS = frozenset((
    _aten.add.Tensor, _aten.sub.Tensor, _aten.mul.Tensor, _aten.div.Tensor,
    _aten.add.Scalar, _aten.sub.Scalar, _aten.mul.Scalar, _aten.div.Scalar,
))
"""With a number, torch's fast fake kernels take the tensor's memory format; eager looks at its strides."""


def as_in_eager(operator: Any, args: Sequence[Any], made: Any) -> tuple[int, ...] | None:
    """The strides of `made`, which is `operator(*args)`, where eager's are others; else, or for symbols, None."""
    if operator in _VIEWS:
        find: Any = _of_view
    elif operator in _WITH_NUMBERS and _is_number(args[1]) and not _is_number(args[0]):
        find = _with_number
    else:
        return None
    sizes = (*args[0].shape, *made.shape)
    if any(type(number) is not int for number in (*sizes, *args[0].stride())) or 1 not in sizes or 0 in sizes:
        return None
    strides: tuple[int, ...] = find(operator, args, made)
    return strides if strides != made.stride() else None


def is_view(operator: Any) -> bool:
    """Whether the result lies in the memory of the first argument."""
    return operator in _VIEWS


def _is_number(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or value.dim() == 0


def _with_number(operator: Any, args: Sequence[Any], made: torch.Tensor) -> tuple[int, ...]:
    """What ATen itself says, of tensors without memory."""
    like = torch.empty_strided(args[0].shape, args[0].stride(), dtype=torch.float32, device="meta")
    number = torch.empty((), dtype=torch.float32, device="meta")
    found: torch.Tensor = operator.overloadpacket.Tensor(like, number)
    return found.stride()


def _of_view(operator: Any, args: Sequence[Any], made: torch.Tensor) -> tuple[int, ...]:
    return _strides(args[0].shape, args[0].stride(), made.shape)


def _strides(sizes: Sequence[int], strides: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...]:
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
