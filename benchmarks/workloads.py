"""The workloads: each a function that makes a callable and its arguments, with random weights and a fixed seed.

To add one, write a function and decorate it with `@workload`; its name is the workload's.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Made = tuple[Callable[..., Any], tuple[Any, ...]]
WORKLOADS: dict[str, Callable[[], Made]] = {}


def workload(make: Callable[[], Made]) -> Callable[[], Made]:
    """Enter a workload into the table."""
    WORKLOADS[make.__name__] = make
    return make


@workload
def pointwise_chain() -> Made:
    """Twelve elementwise operations over a million numbers: one kernel where they fuse."""

    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = torch.sin(x) * torch.exp(-x * x) + torch.erf(y)
        return torch.where(z > 0, torch.tanh(z) + y, z * 0.5).clamp(-1, 1).abs().sqrt()

    return run, (torch.randn(1024, 1024), torch.randn(1024, 1024))


@workload
def softmax() -> Made:
    """A scaled softmax with a bias over rows: a reduction that is read twice."""

    def run(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 0.125 + bias, dim=-1)

    return run, (torch.randn(2048, 1024), torch.randn(1024))


@workload
def layer_norm() -> Made:
    """A residual and a layer norm written by hand."""
    weight, bias = torch.randn(1024), torch.randn(1024)

    def run(x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        x = x + residual
        mean = x.mean(dim=-1, keepdim=True)
        variance = (x - mean).square().mean(dim=-1, keepdim=True)
        return (x - mean) * torch.rsqrt(variance + 1e-5) * weight + bias

    return run, (torch.randn(2048, 1024), torch.randn(2048, 1024))


@workload
def mlp() -> Made:
    """Three linear layers with GELU between: matrix products with something fused behind them."""
    model = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 256))
    return model.eval(), (torch.randn(128, 512),)


@workload
def conv_net() -> Made:
    """Convolutions, batch norms and ReLUs."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1),
        nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )
    return model.eval(), (torch.randn(8, 3, 64, 64),)


class BertLayer(nn.Module):
    """Self-attention with a padding mask, written out, and a feed-forward part."""

    def __init__(self, width: int = 256, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(batch, length, width), (batch, length) of 0 and 1 -> (batch, length, width)."""
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads) + (1 - mask[:, None, None, :]) * -1e9
        mixed = (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(batch, length, width)
        x = self.norm1(x + self.out(mixed))
        return self.norm2(x + self.contract(F.gelu(self.expand(x))))


@workload
def bert_block() -> Made:
    """Two such layers."""

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([BertLayer(), BertLayer()])

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = layer(x, mask)
            return x

    mask = (torch.arange(64)[None, :] < torch.tensor([64, 40, 10, 64])[:, None]).float()
    return Encoder().eval(), (torch.randn(4, 64, 256), mask)


@workload
def small_call() -> Made:
    """A tiny function: what a call costs beyond its work."""

    def run(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1

    return run, (torch.randn(16),)
