"""What is traced for a cumulative product, whose gradient is one formula for rows with zeros and without.

ATen's backward looks for zeros in the data, and has a fast way where there are none (`cumprod_backward` in
aten/src/ATen/native/ReduceOps.cpp). Traced, it cannot look, and takes the other way for all: three scans and a scatter.
Two positions say as much as the scans: those of the first zero and of the second.
"""
from __future__ import annotations

from typing import Any

import torch
from torch._C import _functorch
from torch.autograd import forward_ad

aten = torch.ops.aten


def cumprod(input: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None, **options: Any) -> torch.Tensor:
    """`torch.cumprod`."""
    x = input if dtype is None or not isinstance(input, torch.Tensor) else input.to(dtype)
    if options or type(dim) is not int or not _differentiated(x) or x.dim() == 0:
        return torch.cumprod(input, dim, dtype=dtype, **options)
    result: torch.Tensor = _CumulativeProduct.apply(x, dim % x.dim() if -x.dim() <= dim < 0 else dim)
    return result


def _differentiated(x: Any) -> bool:
    """Whether the traced autograd, and nothing else, asks for the gradient of real numbers."""
    plain = isinstance(x, torch.Tensor) and x.is_floating_point() and all(type(n) is int for n in x.shape)
    alone = _functorch.peek_interpreter_stack() is None and forward_ad._current_level < 0
    return plain and alone and torch.is_grad_enabled() and x.requires_grad


class _CumulativeProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int) -> torch.Tensor:
        """The products."""
        result = torch.cumprod(x, dim)
        ctx.save_for_backward(x, result)
        ctx.dim = dim
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The gradient of `x`."""
        x, result = ctx.saved_tensors
        return cumprod_backward(gradients[0], x, ctx.dim, result), None


def cumprod_backward(grad: torch.Tensor, x: torch.Tensor, dim: int, result: torch.Tensor) -> torch.Tensor:
    """The gradient of `x`: before the first zero, all later products by the element; at it, what is multiplied with
    it up to the second one; behind it nothing."""
    size = x.shape[dim]
    places = torch.arange(size, dtype=torch.int32, device=x.device).view([-1] + [1] * (x.dim() - 1 - dim))
    zero = x == 0
    first = torch.where(zero, places, size).amin(dim, keepdim=True)
    second = torch.where(zero & (places > first), places, size).amin(dim, keepdim=True)
    later = torch.where(places < first, grad * result, 0.0).flip(dim).cumsum(dim).flip(dim)
    rest = torch.where(places > first, x, 1.0).cumprod(dim)
    shared = torch.where((places >= first) & (places < second), rest * grad, 0.0).sum(dim, keepdim=True)
    until = result.gather(dim, (first - 1).clamp(min=0).to(torch.int64))
    at = shared * torch.where(first == 0, 1.0, until)
    return torch.where(places < first, later / x, torch.where(places == first, at, 0.0))
