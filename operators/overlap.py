"""Whether elements of a tensor overlap in memory: kernels must not write such a tensor, and new memory never copies
it."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .unbacked import unbacked_in


def overlapping(sizes: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether elements may overlap: a step in one dimension may land on what smaller steps reach.

    Sizes and strides are integers or symbols. Of those that are symbols only a stride of 0 is known to share memory; a
    symbolic size counts as larger than one. Nothing overlaps where a size is 0.
    """
    if any(type(size) is int and size == 0 for size in sizes):
        return False
    moving = [(stride, size) for size, stride in zip(sizes, strides) if not (type(size) is int and size == 1)]
    if any(type(stride) is int and stride == 0 for stride, _ in moving):
        return True
    reach = 0
    for stride, size in sorted(dim for dim in moving if type(dim[0]) is int and type(dim[1]) is int):
        if stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def repeats(tensor: torch.Tensor) -> bool:
    """Whether elements of a tensor may overlap: `overlapping` of its sizes and strides."""
    return overlapping(tensor.shape, tensor.stride())


def may_repeat(tensor: torch.Tensor) -> bool:
    """Whether elements of a fake tensor share memory at the sizes at hand; that they do not is a guard on dynamic
    sizes (for unbacked ones, as `repeats`).

    In any order of the dimensions it is enough that each step is longer than what those before it reach.
    """
    if unbacked_in(tensor):
        return repeats(tensor)
    if any(type(size) is int and size == 0 for size in tensor.shape):
        return False
    dims = zip(tensor.stride(), tensor.shape)
    moving = [(stride, size) for stride, size in dims if not (type(size) is int and size == 1)]
    reach: Any = 0
    for stride, size in sorted(moving, key=lambda dim: hinted(dim[0])):
        if stride <= reach:
            return True
        reach = reach + (size - 1) * stride
    return False


def same_places(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two fake views of one memory have the same elements at the current sizes. Unbacked
    sizes are not compared."""
    if unbacked_in([one, other]) or 0 in map(hinted, one.shape):
        return True
    return _steps(one) == _steps(other)


def _steps(tensor: torch.Tensor) -> tuple[int, list[tuple[int, int]]]:
    """Where a tensor starts in its memory, and the size and stride of each dimension that has more than one place."""
    dims = [(hinted(n), hinted(stride)) for n, stride in zip(tensor.shape, tensor.stride())]
    return hinted(tensor.storage_offset()), [dim for dim in dims if dim[0] != 1]


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor's elements are its storage, each once, in whatever order."""
    expected = 1
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape)):
        if extent != 1:
            if stride != expected:
                return False
            expected *= extent
    return tensor.storage_offset() == 0 and tensor.numel() > 0


def hinted(number: Any) -> int:
    """A size or stride as it is at this call."""
    return int(number.node.hint) if isinstance(number, torch.SymInt) else int(number)


def share_memory(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether an element of two tensors is in the same bytes; those between the elements do not count."""
    if first.untyped_storage().data_ptr() != second.untyped_storage().data_ptr() or not first.numel() * second.numel():
        return False
    used = torch.zeros(first.untyped_storage().nbytes(), dtype=torch.bool)
    _bytes_of(first, used).fill_(True)
    return bool(_bytes_of(second, used).any())


def _bytes_of(tensor: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
    """A view of what the tensor has of its storage, of which each byte is an element of `memory`."""
    width = tensor.element_size()
    return memory.as_strided(
        (*tensor.shape, width), (*(stride * width for stride in tensor.stride()), 1), tensor.storage_offset() * width)
