"""Memory that shows what a kernel does wrong with it: filled with a pattern beforehand, with guard zones around it.

A read of memory that nothing wrote makes results depend on the pattern; a write outside of a buffer changes a guard
zone; a read there makes results depend on the zone's pattern.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

ZONE = 4096
"""Bytes before and after a buffer: a multiple of any alignment."""
PATTERNS = (0x7F, 0x35)
"""Bytes: as float32, NaN-free numbers of very different size (3.4e38 and 6.8e-07)."""


@dataclass
class Arena:
    """The memory of one run: `inside` fills buffers, `around` their guard zones. `overrun` are the buffers whose zones
    were written, each with the step that did it."""

    inside: int = PATTERNS[0]
    around: int = PATTERNS[0]
    zones: list[tuple[str, torch.Tensor, torch.Tensor]] = field(default_factory=list)
    overrun: dict[str, str] = field(default_factory=dict)

    def guarded(self, name: str, value: torch.Tensor, fresh: bool = False) -> torch.Tensor:
        """A copy of `value` between guard zones, or, where it is `fresh`, memory like it filled with the pattern."""
        if value.layout is not torch.strided or value.is_meta or not value.numel() or 0 in value.stride():
            return value
        span = (1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride()))) * value.element_size()
        whole = torch.empty(span + 2 * ZONE + 64, dtype=torch.uint8, device=value.device)
        start = ZONE + -(whole.data_ptr() + ZONE) % 64
        before, after = whole[:start], whole[start + span:]
        whole[start:start + span].fill_(self.inside)
        before.fill_(self.around)
        after.fill_(self.around)
        self.zones.append((name, before, after))
        flat = whole[start:start + span].view(value.dtype)
        made = flat.as_strided(value.shape, value.stride(), flat.storage_offset())
        return made if fresh else made.copy_(value)

    def check(self, step: str) -> None:
        """Note which guard zones the step just run has written."""
        for name, before, after in self.zones:
            if name not in self.overrun and bool((before != self.around).any() | (after != self.around).any()):
                self.overrun[name] = step

    def give_back(self, names: Sequence[str], given: Sequence[Any], memory: dict[str, torch.Tensor]) -> None:
        """Copy what kernels wrote to inputs back to the tensors that were given."""
        for name, value in zip(names, given):
            if isinstance(value, torch.Tensor) and memory[name] is not value and not torch.equal(
                    _bytes(value), _bytes(memory[name])):
                value.copy_(memory[name])


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
