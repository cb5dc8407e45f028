"""Autograd functions, checkpoints and transforms of torch.func that the tracer captured, through the whole engine."""
from __future__ import annotations

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import grad, hessian, jvp, vjp, vmap
from torch.utils.checkpoint import checkpoint

from .checking import P, check


class Steep(torch.autograd.Function):
    """Its gradient is ten times that of its forward."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return (x @ w).sin()

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        d = g * (x @ w).cos() * 10
        return d @ w.t(), x.t() @ d


class Scaled(torch.autograd.Function):
    """Its gradient reads what its forward does not."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(w)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0].sum(), None


def region(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """What is checkpointed."""
    return F.gelu(x @ w).softmax(-1) * x


TRAINING = {
    "function": (lambda x, w: Steep.apply(x * 2, w).relu(), (3, 4), (4, 4)),
    "function whose gradient reads more": (lambda x, w: Scaled.apply(x.sin(), w.detach()), (3, 4), (4, 4)),
    "checkpoint": (lambda x, w: checkpoint(region, x, w, use_reentrant=False) @ w, (3, 4), (4, 4)),
    "reentrant": (lambda x, w: checkpoint(region, x.sin(), w, use_reentrant=True) @ w, (3, 4), (4, 4)),
    "vmap": (lambda x, w: vmap(lambda row: (row @ w).tanh())(x), (3, 4), (4, 4)),
    "gradient of a gradient": (lambda x, w: grad(lambda t: (t @ w).pow(3).sum())(x) * x, (3, 4), (4, 4)),
    "jvp": (lambda x, w: jvp(lambda t: (t @ w).sin(), (x,), (x * 2,))[1], (3, 4), (4, 4)),
}


@pytest.mark.parametrize("name", TRAINING)
def test_gradients(name: str) -> None:
    program, *shapes = TRAINING[name]
    check(program, *[P(*shape) for shape in shapes])


def test_values_without_gradients() -> None:
    m = nn.Linear(4, 4).requires_grad_(False)

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        out, pull = vjp(lambda t: m(t).tanh(), x)
        return out, pull(torch.ones(3, 4))[0], hessian(lambda t: m(t).pow(3).sum())(x[0]), Steep.apply(x, m.weight)

    check(program, torch.randn(3, 4))
