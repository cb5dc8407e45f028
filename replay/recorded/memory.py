"""The memory that tensors share: each connected piece of it once, and where in it each tensor begins."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

ALIGNMENT = 16
"""Bytes: a piece that is seen with several dtypes begins and ends at a multiple of it."""


@dataclass(frozen=True)
class Piece:
    """A piece of memory that tensors see: `offsets` says by name where each begins, in elements of its own dtype.

    `flat` is all of it, one-dimensional: of the tensors' dtype, or bytes where they see it with several.
    """

    flat: torch.Tensor
    offsets: dict[str, int]

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.flat.numel() * self.flat.element_size()

    def values(self) -> torch.Tensor:
        """A copy on the CPU."""
        return self.flat.to("cpu", copy=True)


def pieces(tensors: Mapping[str, torch.Tensor]) -> list[Piece]:
    """The memory of strided tensors, by name. Storages that overlap (those of NumPy arrays may) are one piece."""
    order = {name: position for position, name in enumerate(tensors)}
    groups = [sorted(group, key=order.__getitem__) for group in _connected(tensors)]
    groups.sort(key=lambda group: order[group[0]])
    return [_piece({name: tensors[name] for name in group}) for group in groups]


def _connected(tensors: Mapping[str, torch.Tensor]) -> list[list[str]]:
    """Names of tensors whose storages overlap, together."""
    spans = sorted((str(t.device), *_storage(t), name) for name, t in tensors.items() if t.numel())
    groups: list[list[str]] = [[name] for name, tensor in tensors.items() if not tensor.numel()]
    where, end = "", 0
    for device, start, stop, name in spans:
        if device == where and start < end:
            groups[-1].append(name)
            end = max(end, stop)
        else:
            groups.append([name])
            where, end = device, stop
    return groups


def _piece(tensors: dict[str, torch.Tensor]) -> Piece:
    """What these tensors, whose storages overlap, touch of them."""
    touched = {name: _touched(tensor) for name, tensor in tensors.items()}
    start, end = min(first for first, _ in touched.values()), max(last for _, last in touched.values())
    dtypes = {tensor.dtype for tensor in tensors.values()}
    dtype = dtypes.pop() if len(dtypes) == 1 else torch.uint8
    if any((first - start) % tensors[name].element_size() for name, (first, _) in touched.items()) or (
            dtype is torch.uint8):
        dtype = torch.uint8
        start -= (start - min(_storage(tensor)[0] for tensor in tensors.values())) % ALIGNMENT
    memory = _memory(list(tensors.values()), start, end)
    if dtype is torch.uint8 and len(memory) % ALIGNMENT:
        memory = torch.nn.functional.pad(memory, (0, ALIGNMENT - len(memory) % ALIGNMENT))
    offsets = {name: (first - start) // tensors[name].element_size() for name, (first, _) in touched.items()}
    return Piece(memory.view(dtype), offsets)


def _memory(tensors: list[torch.Tensor], start: int, end: int) -> torch.Tensor:
    """The bytes from one address to another, which storages of these tensors cover."""
    for tensor in tensors:
        first, last = _storage(tensor)
        if first <= start and (end <= last or start == end):
            return _storage_bytes(tensor, start - first, end - start)
    memory = torch.zeros(end - start, dtype=torch.uint8, device=tensors[0].device)
    for tensor in tensors:
        first, last = (min(max(place, start), end) for place in _storage(tensor))
        memory[first - start : last - start] = _storage_bytes(tensor, first - _storage(tensor)[0], last - first)
    return memory


def _storage_bytes(tensor: torch.Tensor, start: int, length: int) -> torch.Tensor:
    """A part of a tensor's storage as bytes; a copy where it could not be seen with the tensor's dtype."""
    found = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    if length:
        found.set_(tensor.detach().untyped_storage(), start, (length,), (1,))
    return found if start % tensor.element_size() == 0 else found.clone()


def storage_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor's storage as bytes."""
    return _storage_bytes(tensor, 0, tensor.untyped_storage().nbytes())


def _storage(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses of the first byte of a tensor's storage, and of the one past the last."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def _touched(tensor: torch.Tensor) -> tuple[int, int]:
    """The same of the bytes that a tensor touches."""
    start = _storage(tensor)[0] + int(tensor.storage_offset()) * tensor.element_size()
    if tensor.numel() == 0:
        return start, start
    last = sum((size - 1) * int(stride) for size, stride in zip(tensor.shape, tensor.stride()))
    return start, start + (last + 1) * tensor.element_size()


def seen(flat: torch.Tensor, dtype: torch.dtype, shape: Sequence[int], stride: Sequence[int], offset: int,
         conjugated: bool = False, negated: bool = False) -> torch.Tensor:
    """A tensor of these sizes that sees a flat piece of memory."""
    if flat.dtype is not dtype:
        whole = len(flat) * flat.element_size() // dtype.itemsize * dtype.itemsize
        flat = flat.view(torch.uint8)[:whole].view(dtype)
    tensor = flat.as_strided(shape, stride, offset)
    if negated:
        tensor = torch._neg_view(tensor)
    return tensor.conj() if conjugated else tensor
