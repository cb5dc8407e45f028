"""Convolutions that filter each row by itself, as loops: values, layouts and gradients as the library's."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from ptdebug.engine.aot.decompositions.filtered_rows import MOST

from .training.checking import check, compile

CASES = {  # batch, channels, places, taps, stride, padding, dilation
    "causal": (2, 6, 40, 4, 1, 3, 1), "steps": (1, 5, 33, 3, 2, 1, 2), "no padding": (2, 6, 40, 4, 1, 0, 1),
    "one place": (2, 3, 4, 4, 1, 0, 1), "as long as it may be": (1, 16, 70, MOST, 3, 7, 1),
}


def parts(case: str, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    batch, channels, places, taps, *_ = CASES[case]
    generator = torch.Generator().manual_seed(0)
    shapes = (batch, channels, places), (channels, 1, taps), (channels,)
    return tuple([torch.randn(s, generator=generator).to(dtype).requires_grad_() for s in shapes])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_forward_and_backward(case, dtype):
    stride, padding, dilation = CASES[case][4:]
    x, weight, bias = parts(case, dtype)
    for given in (bias, None):
        check(lambda x, w, b: F.silu(F.conv1d(x, w, b, stride, padding, dilation, x.shape[1])), x, weight, given)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_low_precision_adds_up_in_float32(dtype):
    x, weight, bias = [t.detach() for t in parts("causal", dtype)]

    def program(x, weight, bias):
        return F.conv1d(x, weight, bias, padding=3, groups=6)

    exact = program(x.double(), weight.double(), bias.double())
    error = (compile(program)(x, weight, bias).double() - exact).abs().max()
    assert error <= 1.01 * (program(x, weight, bias).double() - exact).abs().max()


def test_rows_that_lie_across_memory():
    x, weight, bias = parts("causal")
    turned = x.detach().transpose(1, 2).contiguous().requires_grad_()
    check(lambda x, w, b: F.conv1d(x.transpose(1, 2), w, b, padding=3, groups=6)[..., :40].sin(), turned, weight, bias)


def test_sizes_that_vary():
    _, weight, bias = parts("causal")
    fast = compile(lambda x: F.conv1d(F.pad(x, (3, 0)), weight, bias, groups=6), dynamic=True)
    for batch, places in ((2, 40), (3, 9), (2, 2)):
        x = torch.randn(batch, 6, places)
        torch.testing.assert_close(fast(x), F.conv1d(F.pad(x, (3, 0)), weight, bias, groups=6))
    assert fast.fallbacks == []


KEPT = {
    "several filters for a row": lambda x: F.conv1d(x, torch.ones(12, 1, 3), groups=6),
    "filters of several rows": lambda x: F.conv1d(x, torch.ones(6, 2, 3), groups=3),
    "a long filter": lambda x: F.conv1d(x, torch.ones(6, 1, MOST + 1), groups=6),
    "transposed": lambda x: F.conv_transpose1d(x, torch.ones(6, 1, 3), groups=6),
}


@pytest.mark.parametrize("left", KEPT)
def test_what_the_library_keeps(left):
    check(KEPT[left], torch.randn(2, 6, 40))


def test_a_weight_whose_channels_are_innermost_tells_the_layout():
    x, weight = torch.randn(2, 4, 3), torch.randn(4, 2, 1).transpose(1, 2)
    compiled = compile(lambda x, w: F.conv1d(x, w, None, padding=2, groups=4))
    expected = F.conv1d(x, weight, None, padding=2, groups=4)
    torch.testing.assert_close(compiled(x, weight), expected)
    assert compiled(x, weight).stride() == expected.stride()
