"""Gradients of activations and losses, in the order in which ATen's kernels compute.

torch's references give the same numbers, but differ where intermediate values overflow.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._decomp.decompositions import pw_cast_for_opmath

from .composite import own

aten = torch.ops.aten

SIXTH = torch.tensor(1 / 6, dtype=torch.float32).item()
"""A sixth as eager's kernel has it, for doubles too (aten/src/ATen/native/cpu/Activation.cpp)."""

LEAST = torch.tensor(1e-12, dtype=torch.float32).item()
"""By what a binary cross entropy's gradient divides at least, for doubles too (aten/src/ATen/native/Loss.cpp)."""

MEAN = 1  # a `reduction`


@own(aten.hardsigmoid_backward.default)
def hardsigmoid_backward(grad: torch.Tensor, x: torch.Tensor) -> Any:
    """torch's reference has the sixth of a double."""
    return torch.where((x > -3) & (x < 3), grad * SIXTH, 0.0)


@own(aten.sigmoid_backward.default)
def sigmoid_backward(grad: torch.Tensor, result: torch.Tensor) -> Any:
    """The gradient comes first (aten/src/ATen/native/cpu/BinaryOpsKernel.cpp), but of complex numbers."""
    if grad.dtype.is_complex or result.dtype.is_complex:
        return decomposition_table[aten.sigmoid_backward.default](grad, result)
    return _sigmoid_backward(grad, result)


@pw_cast_for_opmath
def _sigmoid_backward(grad: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    return grad * (1 - result) * result


@own(aten.logit_backward.default)
@pw_cast_for_opmath
def logit_backward(grad: torch.Tensor, x: torch.Tensor, eps: float | None = None) -> Any:
    """That of a NaN is NaN, at the ends an infinity with the gradient's sign; torch's reference has 0 and x's sign."""
    inner = grad / (x * (1.0 - x))
    if eps is not None and eps >= 0:
        return torch.where((x < eps) | (x > 1.0 - eps), 0.0, inner)
    ends = torch.where((x == 0) | (x == 1), grad * math.inf, inner)
    return torch.where((x < 0) | (x > 1), math.nan, ends)


@own(aten.soft_margin_loss_backward.default)
def soft_margin_loss_backward(grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, reduction: int = MEAN) -> Any:
    """A quotient of powers, NaN where these overflow; torch's reference has a sigmoid, which does not."""
    power = torch.exp(-target * x)
    share = 1.0 / x.numel() if reduction == MEAN and x.numel() != 0 else 1.0
    return target * power * -share / (power + 1) * grad


@own(aten.binary_cross_entropy_backward.default)
@pw_cast_for_opmath
def binary_cross_entropy_backward(
    grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None,
    reduction: int = MEAN,
) -> Any:
    """torch's reference has the least divisor of a double."""
    result = grad * (x - target) / ((1 - x) * x).clamp_min(LEAST)
    result = result if weight is None else result * weight
    return result / x.numel() if reduction == MEAN else result


def _shared_format(*images: torch.Tensor) -> torch.memory_format | None:
    """The memory format that all of the images have: row-major, or with the channels innermost; None if they differ."""
    for form in (torch.contiguous_format, torch.channels_last, torch.channels_last_3d):
        fits = form is torch.contiguous_format or images[0].dim() == (4 if form is torch.channels_last else 5)
        if fits and all(image.is_contiguous(memory_format=form) for image in images):
            return form
    return None


def _max_pool_backward(rank: int) -> Callable[..., Any]:
    def max_pool_backward(
        grad: torch.Tensor, x: torch.Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
        dilation: Sequence[int], ceil_mode: bool, indices: torch.Tensor,
    ) -> Any:
        """Where windows overlap, each gives its gradient to one element, in the order of ATen's kernel; asking for
        each element which windows chose it takes several loads, along no line of memory."""
        wide = grad.dtype in (torch.float32, torch.float64)
        form = _shared_format(x, indices)
        if grad.device.type != "cpu" or not wide or form is None:
            return NotImplemented
        sizes, steps, widths = ([*given] * (rank // len(given)) for given in (kernel, stride or kernel, dilation))
        if not any(width * (size - 1) >= step for size, step, width in zip(sizes, steps, widths)):
            return NotImplemented
        if form is not torch.contiguous_format:  # the channels of a pixel are neighbours: they are rows of their own
            turned, (grad, indices) = x.movedim(1, -1), [t.movedim(1, -1) for t in (grad, indices)]
            plane, windows = ((t.shape[0], math.prod(t.shape[1:-1]), t.shape[-1]) for t in (turned, indices))
            start = torch.zeros(plane, dtype=grad.dtype, device=grad.device)
            added = start.scatter_add(1, indices.reshape(windows), grad.reshape(windows))
            return added.view(turned.shape).movedim(-1, 1)
        plane, windows = ((*tensor.shape[:-rank], math.prod(tensor.shape[-rank:])) for tensor in (x, indices))
        start = torch.zeros(plane, dtype=grad.dtype, device=grad.device)
        return start.scatter_add(-1, indices.reshape(windows), grad.reshape(windows)).view(x.shape)

    return max_pool_backward


for _rank in (2, 3):
    own(getattr(aten, f"max_pool{_rank}d_with_indices_backward").default)(_max_pool_backward(_rank))
