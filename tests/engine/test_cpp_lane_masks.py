"""Conditions that do not change along a vector loop: they are compared in its lanes, and values are eager's."""
from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from .cpp_checking import check

LAST = torch.channels_last


def image(dtype=torch.float32):
    x = (torch.randn(2, 19, 7, 9) * 4).round().to(dtype)  # ties
    if dtype.is_floating_point:
        x[0, 3, 0, 0], x[1, 0, 3, 3] = math.nan, -math.inf
    return x.contiguous(memory_format=LAST)


def pooled(x):
    return (*F.max_pool2d(x, 3, 2, 1, return_indices=True), F.max_pool2d(x, 2), F.pad(x, (1, 2, 0, 1)) * 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_windows_at_the_border_of_channels_last_images(dtype):
    made = check(pooled, image(dtype))
    assert "_lane = (int32)" in made.source.text
    check(lambda x: F.avg_pool2d(x, 3, 2, 1), image(dtype).nan_to_num(neginf=0.0))


def test_rows_that_a_position_decides():
    def decided(x, count):
        row = torch.arange(13)[:, None]
        kept = (row < count) & (row > 1)
        return torch.where(kept, x, -1.0), torch.where(kept & (x > 0), x, x * 2), x * kept, (x > 0) ^ kept, kept.any(1)

    check(decided, torch.randn(13, 70), torch.tensor(8))
    check(decided, torch.randn(13, 70).double(), torch.tensor(0))
    check(decided, torch.randn(13, 70).mul(9).to(torch.int16), torch.tensor(13))


def test_without_the_comparison_values_are_the_same():
    made = check(pooled, image(), overrides={"invariant-masks:*": "once"})
    assert "_lane = (int32)" not in made.source.text


def test_sizes_that_vary():
    check(lambda x: F.pad(x, (0, 0, 2, 1)).relu() + 1, torch.randn(3, 5, 40), again=(torch.randn(2, 9, 33),))
