"""Where sizes are one, what is captured has eager's strides: they decide how the layers that follow lay memory out."""
from __future__ import annotations

import random

import ptdebug
import pytest
import torch
import torch.nn.functional as F
from ptdebug.operators.size1_strides import strides_of_view

TOKENS = torch.randn(1, 64, 32)
WEIGHT = torch.randn(4, 32, 3, 3)

PROGRAMS = {
    "view": lambda x: x.transpose(1, 2).view(1, 32, 8, 8),
    "reshape": lambda x: x.transpose(1, 2).reshape(1, 32, 8, 8) / 1,
    "unflatten": lambda x: 2 * x.transpose(1, 2).unflatten(2, (8, 8)) + 1,
    "a number": lambda x: torch.ops.aten.sub.Scalar(x.transpose(1, 2)[..., :1], 5, 2),
    "flatten": lambda x: x.transpose(1, 2)[:, :, None].flatten(1, 2),
    "of one dimension": lambda x: x.sum().view(1, 1, 1),
    "expanded": lambda x: x[:, :1].expand(1, 64, 32).transpose(1, 2).reshape(1, 32, 8, 8),
    "convolution": lambda x: F.conv2d(F.silu(F.group_norm(x.mT.reshape(1, 32, 8, 8) / 1.5, 8)), WEIGHT, padding=1),
    "written in place": lambda x: x.clone().mT.view(1, 32, 8, 8).mul_(2).add_(1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_captured_result_has_the_strides_of_eager(name):
    captured = []

    def backend(module, inputs):
        (outputs,) = module.graph.output_node().args
        captured.extend(node.meta["example_value"].stride() for node in outputs)
        return module.forward

    result = ptdebug.compile(PROGRAMS[name], backend=backend)(TOKENS)
    assert captured == [result.stride()]


def test_an_image_of_tokens_has_the_strides_of_eager():
    f = PROGRAMS["convolution"]
    expected, result = f(TOKENS), ptdebug.compile(f)(TOKENS)
    assert result.stride() == expected.stride()
    torch.testing.assert_close(result, expected)


def test_a_program_that_asks_for_strides_while_it_is_traced_hears_those_of_eager():
    """Of results whose layout fake kernels have otherwise."""
    def asked(x, y):
        made = (x.roll(1, 1), torch.copysign(x, y), torch.floor_divide(x, y), F.logsigmoid(y.mT), F.rrelu(x, 0.1, 0.2))
        return [m.stride() for m in made], made[0].is_contiguous(memory_format=torch.channels_last)

    x = torch.randn(2, 5, 4, 6).to(memory_format=torch.channels_last)
    y = torch.randn(2, 5, 4, 6)
    assert ptdebug.compile(asked)(x, y) == asked(x, y)


OF_ONE_CHANNEL = {
    "a tensor of no dimensions": lambda x: x * x.mean(),
    "a number": lambda x: (x * 2, x > 2),
    "one tensor": lambda x: x.sigmoid(),
    "one tensor after another": lambda x: (-(x * x.sum()), (x * 2).abs().half()),
    "several": lambda x: (x * x, torch.where(x > 0, x, x.mean()), torch.lerp(x, x.mean(), 0.5)),
}


@pytest.mark.parametrize("name", OF_ONE_CHANNEL)
def test_images_of_one_channel_have_the_strides_of_eager_at_any_size(name):
    f, x = OF_ONE_CHANNEL[name], torch.randn(2, 1, 4, 6).to(memory_format=torch.channels_last)
    for dynamic in (False, True):
        found = ptdebug.compile(f, backend="aot_eager", dynamic=dynamic)(x)
        assert torch.utils._pytree.tree_map(torch.Tensor.stride, found) == torch.utils._pytree.tree_map(
            torch.Tensor.stride, f(x))


def test_views_are_split_as_aten_splits_them():
    draw, compared = random.Random(0), 0
    for _ in range(2000):
        x = torch.empty([draw.choice((1, 1, 2, 3)) for _ in range(draw.randrange(5))])
        x = x.permute(draw.sample(range(x.dim()), x.dim()))
        x = x.expand([draw.choice((1, 2)) if size == 1 else size for size in x.shape])
        wanted = draw.sample([*x.shape, 1, 1], x.dim() + 2)
        try:
            strides = x.view(wanted).stride()
        except RuntimeError:
            continue
        compared += 1
        assert strides_of_view(x.shape, x.stride(), wanted) == strides
    assert compared > 500
