"""Depthwise convolutions on integers by ptdebug's kernel: the same integers as oneDNN's, and when it is chosen."""
from __future__ import annotations

import ptdebug
import pytest
import torch
import torch.ao.quantization.fx._decomposed
import torch.nn.functional as F
from ptdebug.artifacts.recording import Recording
from ptdebug.engine.kernels import int8_depthwise as kernel
from ptdebug.tracer.frames import dispatch

q = torch.ops.quantized_decomposed
U8, S8 = (0, 255, torch.uint8), (-128, 127, torch.int8)

needs_kernel = pytest.mark.skipif(not kernel.is_available(), reason="this machine has no VNNI, or no compiler")


def fake_quantized(x: torch.Tensor, scale: float, zero: int, bounds: tuple = U8) -> torch.Tensor:
    return q.dequantize_per_tensor.default(q.quantize_per_tensor.default(x, scale, zero, *bounds), scale, zero, *bounds)


class Depthwise(torch.nn.Module):
    """A depthwise convolution whose weight is quantized."""

    def __init__(self, channels: int, side: int = 3, bias: bool = True, zero: int = 0, **options) -> None:
        super().__init__()
        weight = torch.randn(channels, 1, side, side) / side
        self.register_buffer("scales", weight.abs().amax((1, 2, 3)) / 100)
        self.register_buffer("zeros", torch.full((channels,), zero))
        self.register_buffer("weight", q.quantize_per_channel.default(weight, self.scales, self.zeros, 0, *S8))
        self.bias = torch.nn.Parameter(torch.randn(channels)) if bias else None
        self.options = {"groups": channels, "padding": 1, **options}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = q.dequantize_per_channel.default(self.weight, self.scales, self.zeros, 0, *S8)
        return F.conv2d(x, weight, self.bias, **self.options)


def chosen(function, x, tmp_path) -> tuple[torch.Tensor, list]:
    """A compiled function's result, and the decisions about its kernels and its wrapper."""
    dispatch.reset()
    with torch.no_grad(), ptdebug.record("r", out=tmp_path):
        result = ptdebug.compile(function)(x)
    assert not ptdebug.stats()["reasons"]
    with Recording.open(tmp_path / "r") as recording:
        return result, [d for _, d in recording.decisions() if d.kind in ("int8-depthwise", "wrapper")]


def same(got: torch.Tensor, wanted: torch.Tensor, step: float) -> bool:
    """Equal but for one step of the last quantization in few places."""
    assert got.shape == wanted.shape and got.stride() == wanted.stride()
    away = (got - wanted).abs()
    return bool(away.max() <= step * 1.01 and (away > step / 2).float().mean() < 0.01)


@needs_kernel
@pytest.mark.parametrize("channels", [16, 64, 70, 144])
@pytest.mark.parametrize(("image", "options"), [
    ((6, 9), {}), ((7, 8), {"stride": 2}), ((1, 1), {}), ((5, 6), {"padding": 0}), ((6, 5), {"padding": (2, 3)}),
    ((5, 3), {"stride": 2, "padding": 2}),
])  # fmt: skip
def test_the_kernel_gives_the_integers_of_exact_arithmetic(channels, image, options):
    torch.manual_seed(0)
    options = {"padding": 1, "stride": 1, **options}
    x = torch.randint(0, 256, (2, channels, *image), dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
    weight = torch.randint(-128, 128, (channels, 1, 3, 3), dtype=torch.int8)
    scales, bias, zeros = torch.rand(channels) / 100 + 1e-3, torch.randn(channels) * 5, torch.zeros(channels).int()
    padding = options["padding"] if isinstance(options["padding"], tuple) else (options["padding"],) * 2
    got = kernel.convolution(x, 0.02, 131, kernel.pack_weight(weight, zeros), scales, bias, options["stride"], padding,
                             0.3, 20, 5, 240)
    scaled = F.conv2d(x.double() - 131, weight.double(), groups=channels, **options)
    wanted = scaled * 0.02 * scales.double().view(-1, 1, 1) + bias.double().view(-1, 1, 1)
    wanted = ((wanted / 0.3).round() + 20).clamp(5, 240)
    away = (got.double() - wanted).abs()
    assert got.dtype == torch.uint8 and got.is_contiguous(memory_format=torch.channels_last)
    assert away.max() <= 1 and (away > 0).double().mean() < 1e-3  # float32 rounds another way beside a tie


@needs_kernel
def test_extreme_values_saturate():
    x = torch.full((1, 16, 4, 4), 255, dtype=torch.uint8).contiguous(memory_format=torch.channels_last)
    weight = torch.full((16, 1, 3, 3), 127, dtype=torch.int8)
    weight[8:] = -128
    packed, scales = kernel.pack_weight(weight, None), torch.full((16,), 1e6)
    for scale in (1.0, 1e30):
        got = kernel.convolution(x, scale, 0, packed, scales, None, 1, [1, 1], 1e-3, 0, 0, 255)
        assert (got[:, :8] == 255).all() and (got[:, 8:] == 0).all()


@needs_kernel
@pytest.mark.parametrize("activation", [lambda y: y, torch.relu, F.relu6])
@pytest.mark.parametrize("options", [{}, {"stride": 2, "bias": False}, {"zero": 3}])
def test_a_depthwise_layer_is_ptdebugs_kernel(tmp_path, activation, options):
    torch.manual_seed(0)
    layer, x = Depthwise(20, **options), torch.randn(2, 20, 7, 9)

    def function(x):
        return fake_quantized(activation(layer(fake_quantized(x, 0.05, 20))), 0.03, 30)

    got, decisions = chosen(function, x, tmp_path)
    assert [d.chosen for d in decisions] == ["ptdebug", "cpp"] and same(got, function(x), 0.03)


@pytest.mark.parametrize(("layer", "after", "why"), [
    (lambda: Depthwise(8, 5, padding=2), torch.relu, "3 by 3"),
    (lambda: Depthwise(8, dilation=2), torch.relu, "adjacent"),
    (lambda: Depthwise(8, stride=3), torch.relu, "stride"), (lambda: Depthwise(8), F.hardswish, "no clamp"),
    (lambda: Depthwise(8), None, "not quantized"),
])  # fmt: skip
def test_what_the_kernel_does_not_take_is_onednns(tmp_path, layer, after, why):
    torch.manual_seed(0)
    layer, x = layer(), torch.randn(2, 8, 9, 9)

    def function(x):
        y = layer(fake_quantized(x, 0.05, 20))
        return y if after is None else fake_quantized(after(y), 0.03, 30)

    got, decisions = chosen(function, x, tmp_path)
    assert decisions[0].chosen == "onednn" and why in decisions[0].why
    assert same(got, function(x), 0.03)


@needs_kernel
def test_depthwise_layers_at_sizes_that_vary():
    torch.manual_seed(0)
    layer = Depthwise(12, stride=2)

    def function(x):
        return fake_quantized(layer(fake_quantized(x, 0.05, 20)).relu(), 0.03, 0).mean((2, 3))

    dispatch.reset()
    with torch.no_grad():
        compiled = ptdebug.compile(function, dynamic=True)
        for batch, size in ((2, 8), (3, 7), (5, 9)):
            x = torch.randn(batch, 12, size, size + 1)
            assert torch.allclose(compiled(x), function(x), atol=0.03)
    assert not ptdebug.stats()["reasons"]


@needs_kernel
def test_a_package_brings_the_kernel_along(tmp_path):
    torch.manual_seed(0)
    layer, x = Depthwise(20), torch.randn(2, 20, 6, 6)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return fake_quantized(self.layer(fake_quantized(x, 0.05, 20)), 0.03, 30)

    with torch.no_grad():
        package = ptdebug.export(Model(), (x,))
        program = ptdebug.load(package.save(tmp_path / "int8.ptd"))
        assert same(program(x), Model()(x), 0.03)
    assert kernel.ENTRY in package.package.own
