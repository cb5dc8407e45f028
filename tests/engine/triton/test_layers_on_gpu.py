"""Layers whose kernels a GPU chooses otherwise than a CPU, forward and backward: as near to the truth as eager."""
from __future__ import annotations

import copy
import math
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.devices import GPU

from ..programs import Keeping
from ..training.checking import compile

pytestmark = GPU


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
    "odd vocabulary": (lambda: _vocabulary(5021, False), (4, 512, 64), ["", "padded", "unpadded"]),
    "even vocabulary": (lambda: _vocabulary(5022, True), (4, 512, 64), ["", "padded", "unpadded"]),
    "residual": (lambda: _Residual(256), (32, 256, 28, 28), [""]),
    "depthwise": (lambda: _Depthwise(96), (8, 96, 28, 28), [""]),
}


@pytest.fixture
def tensor_cores() -> Iterator[None]:
    """Products of float32 by TF32, as the program may allow them."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.usefixtures("tensor_cores")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", LAYERS)
def test_a_step(name: str, dtype: torch.dtype) -> None:
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


def _written_out(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
def test_a_product_computes_the_activation(bias: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    weight, row, last = (torch.randn(n, device="cuda", dtype=torch.float64) / 8 for n in ((256, 64), (256,), (64, 256)))

    def program(x, weight, row, last):
        products = [F.linear(x + k, weight, row if bias else None) for k in range(3)]
        values = F.relu(products[0]), F.gelu(products[1], approximate="tanh"), _written_out(products[2])
        return tuple(F.linear(v, last) for v in values)

    inputs = [torch.randn(4, 128, 64, device="cuda", dtype=torch.float64), weight, row, last]
    rounded = [t.to(dtype) for t in inputs]
    with torch.no_grad():
        truth, eagers, keeping = program(*[t.double() for t in rounded]), program(*rounded), Keeping()
        found = compile(program, recorder=keeping, recording=True)(*rounded)
    assert [d.chosen for d in keeping.decisions if d.kind == "epilogue"] == ["loops", "library", "library"]
    for a, e, t in zip(found, eagers, truth, strict=True):
        assert _error(a, t) <= 1.2 * _error(e, t) + torch.finfo(dtype).eps, (_error(a, t), _error(e, t))
    with torch.no_grad():
        rounded[0][0, 0, 0], rounded[0][1, 1, 1] = float("nan"), float("inf")
        for ours, theirs in zip(compile(program)(*rounded), program(*rounded), strict=True):
            assert torch.equal(ours.isnan(), theirs.isnan()) and torch.equal(ours.isinf(), theirs.isinf())


def _step(program, x: torch.Tensor, module: nn.Module) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    module.zero_grad()
    result = program(x)
    result.square().mean().backward() if result.dtype is torch.float64 else result.float().square().mean().backward()
    return [result.detach(), x.grad, *[p.grad for p in module.parameters()]]


def _error(found: torch.Tensor, truth: torch.Tensor) -> float:
    size = truth.square().mean().sqrt().clamp_min(1e-30)
    return float((found.double() - truth).square().mean().sqrt() / size)
