"""The weight's gradient of depthwise convolutions: as near to the exact value as the library's, in every layout."""
from __future__ import annotations

import pytest
import torch
from ptdebug.engine.kernels import depthwise
from torch import nn

from .programs import Keeping
from .training.checking import compile

ARGUMENTS = {  # channels, image, kernel, stride, padding, dilation
    "square": (32, (14, 15), (7, 7), (1, 1), (3, 3), (1, 1)),
    "rows longer than a piece": (17, (3, 5000), (2, 3), (1, 1), (0, 1), (1, 1)),
    "more taps than a register each": (3, (12, 40), (3, 19), (2, 1), (0, 4), (1, 2)),
    "strides and holes": (40, (40, 23), (5, 2), (3, 2), (6, 1), (2, 3)),
    "padding alone under some taps": (16, (1, 1), (5, 5), (1, 1), (2, 2), (1, 1)),
}
LAYOUTS = {
    "contiguous": lambda t: t.contiguous(),
    "channels last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "windows": lambda t: torch.cat([t, t], 3)[..., : t.shape[3]].transpose(0, 2).contiguous().transpose(0, 2),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", ARGUMENTS)
def test_the_kernel(case: str, layout: str) -> None:
    channels, size, kernel, stride, padding, dilation = ARGUMENTS[case]
    torch.manual_seed(0)
    image, weight = torch.randn(2, channels, *size), torch.randn(channels, 1, *kernel)
    rest = list(stride), list(padding), list(dilation), False, [0, 0], channels
    gradient = torch.randn_like(torch.convolution(image, weight, None, *rest))

    def gradient_of(*tensors: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.convolution_backward(*tensors, [channels], *rest, [False, True, False])[1]

    exact, sizes = [gradient_of(*[f(t.double()) for t in (gradient, image, weight)]) for f in (torch.Tensor.clone, abs)]
    turned = [LAYOUTS[layout](t) for t in (gradient, image)]
    ours = depthwise.OPERATOR(*turned, kernel, stride, padding, dilation)
    error, eagers = [(got - exact).abs().max() for got in (ours, gradient_of(gradient, image, weight))]
    assert error <= 2 * eagers + torch.finfo(torch.float32).eps * sizes.max()
    assert ours.is_contiguous() and ours.shape == weight.shape


@pytest.mark.parametrize("way", ["fused", "split"])
@pytest.mark.parametrize("image_too", [True, False])
def test_a_step_of_training(way: str, image_too: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.GELU(), nn.Conv2d(32, 32, 5, 2, groups=32, bias=False)
    ).to(memory_format=torch.channels_last)
    image = torch.randn(2, 32, 12, 10, requires_grad=image_too)
    keeping = Keeping()
    compiled = compile(lambda x: net(x), overrides={"weight-grad:*": way}, recorder=keeping,
                       recording=True)
    found = []
    for program in (net, compiled):
        net.zero_grad()
        image.grad = None
        program(image).square().sum().backward()
        found.append([t.grad for t in (image, *net.parameters()) if t.requires_grad])
    for eagers, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, eagers, rtol=1e-4, atol=1e-4)
        assert ours.stride() == eagers.stride()
    assert not compiled.fallbacks
    assert [d.chosen for d in keeping.decisions if d.kind == "weight-grad"] == [way] * 2
