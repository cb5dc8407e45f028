"""Positions of extremes as kernels: ties, NaN, infinities, every dtype, rows of every length."""
from __future__ import annotations

import pytest
import torch

from .cpp_checking import check

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.int8, torch.uint8]


def extremes(x):
    return x.argmax(-1), x.argmin(-1), *x.max(-1), *x.min(-1), x.argmax(0), x.argmin()


@pytest.mark.parametrize("dtype, width", [
    (dtype, width) for dtype in DTYPES for width in (1, 15, 16, 17, 64, 1000)
    if width in (15, 64) or dtype in (torch.float32, torch.float64, torch.int8)
])  # fmt: skip
def test_rows_and_columns(dtype, width):
    x = (torch.randn(6, width, generator=torch.Generator().manual_seed(width)) * 9).to(dtype)  # with ties
    check(extremes, x)
    check(extremes, torch.zeros_like(x))


@pytest.mark.parametrize("width", [5, 33, 70])
def test_the_first_nan_wins_and_rows_of_infinities_have_a_position(width):
    inf, nan = float("inf"), float("nan")
    x = torch.randn(8, width)
    x[0], x[1], x[2, 3], x[2, width - 1], x[3, 4], x[4] = inf, -inf, nan, nan, inf, nan
    x[5, 1], x[5, 2], x[6, ::2], x[6, 1::2] = 0.0, -0.0, -0.0, 0.0
    check(extremes, x)


def test_two_dimensions_at_once_and_a_tensor_large_enough_for_threads():
    check(lambda x: (x.argmax(), *x.reshape(-1).max(0)), torch.randn(700, 300))
    check(lambda x: (torch.sin(x).argmax(), x.argmin()), torch.randn(5, 6, 7))


def test_a_size_that_varies():
    check(lambda x: (x.argmax(-1), *x.min(-1)), torch.randn(5, 40), again=(torch.randn(7, 51),))
