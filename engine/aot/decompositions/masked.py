"""Writes to chosen elements: `x[mask] = value` as a `torch.where`, if the value does not depend on how many elements
the mask selects, and a diagonal.

ATen computes the indices of the True elements, and autograd does so again for the gradient of the value: two unbacked
sizes. `torch.where` is equivalent, and so is its gradient.
"""
from __future__ import annotations

from typing import Any

import torch


def assign(x: torch.Tensor, key: Any, value: Any) -> None:
    """`x[key] = value`."""
    mask = _mask(x, key)
    if mask is not None and type(value) in (bool, int, float):
        value = torch.scalar_tensor(value, dtype=x.dtype, device=x.device)
    if mask is None or not _fits(x, mask, value):
        x[key] = value
        return
    x.copy_(torch.where(mask.reshape(*mask.shape, *[1] * (x.dim() - mask.dim())), value, x))


def fill_diagonal(x: torch.Tensor, value: Any, wrap: bool = False) -> torch.Tensor:
    """`x.fill_diagonal_(value, wrap)` as a view of the diagonal: ATen's `as_strided` of what is a view itself cannot be
    functionalized."""
    plain = not (wrap and x.shape[0] > x.shape[1]) if x.dim() == 2 else all(n == x.shape[0] for n in x.shape)
    if x.dim() < 2 or not plain or isinstance(value, torch.Tensor):
        return x.fill_diagonal_(value, wrap)
    diagonal = x.diagonal()
    while diagonal.dim() > 1:
        diagonal = diagonal.diagonal(0, 0, -1)
    diagonal.fill_(value)
    return x


def _mask(x: torch.Tensor, key: Any) -> torch.Tensor | None:
    """The mask that chooses elements by the first dimensions of `x`; None where `key` is something else."""
    if isinstance(key, tuple) and len(key) == 1:
        (key,) = key
    if not isinstance(key, torch.Tensor) or key.dtype is not torch.bool or key.device != x.device:
        return None
    return key if 0 < key.dim() <= x.dim() and key.shape == x.shape[: key.dim()] else None


def _fits(x: torch.Tensor, mask: torch.Tensor, value: Any) -> bool:
    """Whether all chosen elements get what `value` says, whatever their number."""
    if not isinstance(value, torch.Tensor) or value.dtype is not x.dtype or value.device != x.device:
        return False
    rest = x.shape[mask.dim():]
    own = list(value.shape)
    if len(own) == len(rest) + 1 and type(own[0]) is int and own[0] == 1:
        own = own[1:]
    pairs = zip(reversed(own), reversed(rest))
    return len(own) <= len(rest) and all((type(n) is int and n == 1) or n == m for n, m in pairs)
