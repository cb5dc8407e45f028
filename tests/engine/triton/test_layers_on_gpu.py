"""Layers whose kernels a GPU chooses otherwise than a CPU, forward and backward: as near to the truth as eager."""
from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ..programs import Keeping
from ..training.checking import compile

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def _vocabulary(size: int, bias: bool) -> nn.Module:
    return nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, size, bias=bias))


class _Residual(nn.Module):
    """Two convolutions with batch norms, and what skips them, as in a ResNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, 64, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1),
            nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, channels, 1), nn.BatchNorm2d(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + x)


class _Depthwise(nn.Module):
    """A convolution of each channel, with a bias that the norm after it adds."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm, self.linear = nn.LayerNorm(channels), nn.Linear(channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.linear(F.gelu(self.norm(self.conv(x).permute(0, 2, 3, 1)))).permute(0, 3, 1, 2)


LAYERS = {
    "odd vocabulary": (lambda: _vocabulary(5021, False), (4, 512, 64), ["interleaved", "padded", "unpadded"]),
    "even vocabulary": (lambda: _vocabulary(5022, True), (4, 512, 64), ["interleaved", "padded", "unpadded"]),
    "residual": (lambda: _Residual(256), (32, 256, 28, 28), [""]),
    "depthwise": (lambda: _Depthwise(96), (8, 96, 28, 28), [""]),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", LAYERS)
def test_a_step(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
    make, shape, ways = LAYERS[name]
    torch.manual_seed(0)
    exact = make().double().cuda()
    x = torch.randn(shape, device="cuda", dtype=torch.float64)
    truth = _step(exact, x, exact)
    eager = copy.deepcopy(exact).to(dtype)
    eagers = _step(eager, x.to(dtype), eager)
    for way in ways:
        ours, keeping = copy.deepcopy(exact).to(dtype), Keeping()
        overrides = {"pad-mm:*": way} if way else {}
        compiled = compile(lambda t: ours(t), overrides=overrides, recorder=keeping, recording=True)  # noqa: B023
        found = _step(compiled, x.to(dtype), ours)
        assert not compiled.fallbacks
        for a, e, t in zip(found, eagers, truth, strict=True):
            assert a.stride() == e.stride() and a.dtype is e.dtype
            assert _error(a, t) <= 1.5 * _error(e, t) + torch.finfo(dtype).eps, (name, way, _error(a, t), _error(e, t))


def _step(program, x: torch.Tensor, module: nn.Module) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    module.zero_grad()
    result = program(x)
    result.square().mean().backward() if result.dtype is torch.float64 else result.float().square().mean().backward()
    return [result.detach(), x.grad, *[p.grad for p in module.parameters()]]


def _error(found: torch.Tensor, truth: torch.Tensor) -> float:
    size = truth.square().mean().sqrt().clamp_min(1e-30)
    return float((found.double() - truth).square().mean().sqrt() / size)
