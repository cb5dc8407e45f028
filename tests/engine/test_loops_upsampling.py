"""Bilinear upsampling in two passes against eager."""
from __future__ import annotations

import ptdebug
import pytest
import torch
import torch.nn.functional as F
from ptdebug.engine.aot.decompositions import OWN

from .cpp_checking import check

SHAPES = [((2, 3, 5, 7), (10, 14)), ((1, 1, 1, 1), (4, 3)), ((2, 3, 8, 6), (3, 2)), ((1, 2, 4, 4), (4, 9))]


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("shape, wanted", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bilinear(dtype, shape, wanted, corners):
    x = torch.randn(shape, dtype=dtype)
    check(lambda x: F.interpolate(x, size=wanted, mode="bilinear", align_corners=corners), x, slack=4.0)
    last = x.to(memory_format=torch.channels_last)
    check(lambda x: F.interpolate(x, size=wanted, mode="bilinear", align_corners=corners), last, slack=4.0)


def test_nearest_neighbours_in_doubled_sizes_are_repeated_without_their_places_being_computed():
    rule, x = OWN[torch.ops.aten.upsample_nearest2d.default], torch.randn(2, 3, 5, 24)
    made = check(lambda x: rule(x, [10, 96], 2.0, None).relu(), x, kernels=1)
    assert "(float)" not in made.source.text
    assert torch.equal(made(x)[0], F.interpolate(x, scale_factor=(2, 4)).relu())


def test_a_scale_is_taken_as_given_and_consumers_join_the_second_pass():
    x = torch.randn(2, 3, 5, 7)
    program = lambda x: torch.sigmoid(F.interpolate(x, scale_factor=(1.7, 2.3), mode="bilinear")) * 255
    check(program, x, kernels=2, slack=4.0)
    x[0, 0, 2, 2], x[1, 1, 1, 1] = float("nan"), float("inf")
    check(program, x)
    check(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), x.bfloat16(), slack=4.0)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("scale", [2, 1.03, 0.5])
def test_one_graph_upsamples_images_of_any_size(mode, scale):
    def program(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=scale, mode=mode) * 2

    compiled = ptdebug.compile(program, dynamic=True)
    before = ptdebug.stats()["graphs"]
    for shape in ((2, 3, 5, 7), (3, 4, 9, 6), (5, 6, 70, 66)):  # which 1.03 leaves as they are, but for the last
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), program(x))
    assert ptdebug.stats()["graphs"] == before + 1
