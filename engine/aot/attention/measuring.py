"""What the fused kernels for an attention take on its device."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from ...toolchain.device_benchmarking import device_costs
from ..real_tensors import without_modes
from .kernels import Attention, computed

LARGEST = 1 << 28  # elements of query, key, value and mask: of more, a part of the batch is measured
Layout = tuple[tuple[int, ...], tuple[int, ...]]
"""Sizes and strides."""


def measured(call: Attention, kernels: Sequence[str]) -> dict[str, float]:
    """Seconds of each kernel for a prepared call, with its backward, if there will be one; empty where nothing is to be
    chosen or known: random numbers are eager's kernel's, and an algorithm that has to be deterministic is, too."""
    device = call.query.device
    if len(kernels) < 2 or call.dropout or torch.are_deterministic_algorithms_enabled():
        return {}
    tensors = [t for t in (call.query, call.key, call.value, call.mask) if t is not None]
    layouts = [_layout(t) for t in tensors]
    if not torch.cuda.is_available() or any(layout is None for layout in layouts):
        return {}
    one = _Subject(_part([layout for layout in layouts if layout is not None]), call, call.needs_logsumexp)
    with without_modes():
        return device_costs(one.describe(), device, partial(one.calls, kernels))


@dataclass(frozen=True)
class _Subject:
    """What is measured: an attention of tensors with these layouts."""

    layouts: tuple[Layout, ...]
    call: Attention
    trained: bool

    def describe(self) -> str:
        """All that the time depends on, besides the device."""
        call = self.call
        return f"attention {self.layouts} {call.query.dtype} {call.causal} {call.grouped} {self.trained}"

    def calls(self, kernels: Sequence[str]) -> Mapping[str, Callable[[], object]]:
        """Each kernel, on made-up data."""
        query, key, value, *mask = [self._made_up(*layout) for layout in self.layouts]
        for tensor in (query, key, value):
            tensor.requires_grad_(self.trained)
        call = replace(self.call, query=query, key=key, value=value, mask=mask[0] if mask else None)
        run = _with_backward if self.trained else computed
        return {kernel: partial(run, call, kernel) for kernel in kernels}

    def _made_up(self, shape: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
        span, like = _span(shape, stride), self.call.query
        return torch.full((span,), 0.5, dtype=like.dtype, device=like.device).as_strided(shape, stride)


def _with_backward(call: Attention, kernel: str) -> object:
    with torch.enable_grad():
        result = computed(call, kernel)
        return torch.autograd.grad(result, [call.query, call.key, call.value], result)


def _layout(tensor: torch.Tensor) -> Layout | None:
    """Sizes and strides, those that vary as first seen; None where one is data-dependent."""
    numbers = [n.node.hint if isinstance(n, torch.SymInt) else n for n in (*tensor.shape, *tensor.stride())]
    if any(n is None for n in numbers):
        return None
    return tuple(numbers[: tensor.dim()]), tuple(numbers[tensor.dim() :])


def _part(layouts: Sequence[Layout]) -> tuple[Layout, ...]:
    """The same with the part of the batch that is measured."""
    batch = layouts[0][0][0]
    elements = sum(_span(*layout) for layout in layouts)
    most = max(1, batch * LARGEST // elements) if elements > LARGEST else batch
    return tuple([((min(n, most), *rest), stride) for (n, *rest), stride in layouts])


def _span(shape: Sequence[int], stride: Sequence[int]) -> int:
    return 1 + sum((n - 1) * step for n, step in zip(shape, stride))
