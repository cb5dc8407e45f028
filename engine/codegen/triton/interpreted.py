"""A group that has no Triton kernel: its bodies run as ATen operators on the group's device, one for each statement, so
that the rest of the graph stays compiled."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ....artifacts.context import CompileContext
from ...ir.interpreter import allocate, integer, run_body
from ...ir.ir import Buffer, Foreach, Group, KernelSignature


class InterpretedGroup:
    """Called as the kernel would be that is missing: with addresses (or tensors), then the values of size symbols."""

    def __init__(self, group: Group, buffers: Mapping[str, Buffer], symbols: tuple[Any, ...]) -> None:
        touched = dict.fromkeys(name for body in group.bodies for name in (*body.reads, *body.writes))
        self.group, self.buffers = group, buffers
        self.signature = KernelSignature(group.kernel, tuple(n for n in touched if n not in group.internal), symbols)

    def __call__(self, *arguments: Any) -> int:
        """Run; the status is 0: an index out of bounds raises IndexError."""
        signature, count = self.signature, len(self.signature.buffers)
        symbols = dict(zip(signature.symbols, arguments[count:]))
        memory = {n: self._tensor(n, a, symbols) for n, a in zip(signature.buffers, arguments)}
        memory |= {n: allocate(self.buffers[n], symbols) for n in self.group.internal}
        for body in self.group.bodies:
            run_body(body, memory, symbols)
        return 0

    def runner(self) -> InterpretedGroup:
        """What a wrapper calls."""
        return self

    def _tensor(self, name: str, argument: Any, symbols: Mapping[Any, int]) -> torch.Tensor:
        if isinstance(argument, torch.Tensor):
            return argument
        buffer = self.buffers[name]
        size, stride = ([integer(n, symbols) for n in numbers] for numbers in (buffer.size, buffer.stride))
        span = 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride))
        # A kernel gets copies of numbers on the CPU; one that reads a table gets where they are.
        device = buffer.device if isinstance(self.group, Foreach) else self.group.device
        storage = torch._C._construct_storage_from_data_pointer(argument, device, span * buffer.dtype.itemsize)
        return torch.empty(0, dtype=buffer.dtype, device=device).set_(storage, 0, size, stride)


def interpreted(
    group: Group, buffers: Mapping[str, Buffer], symbols: tuple[Any, ...], why: str, context: CompileContext
) -> InterpretedGroup:
    """`group` without a kernel, and why, as a decision."""
    context.decide("fallback", group.kernel, ("extern",), "extern", why, origins=group.origins)
    return InterpretedGroup(group, buffers, symbols)
