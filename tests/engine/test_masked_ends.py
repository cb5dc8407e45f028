"""Ends of short rows as a vector under a mask: nothing beside the row is read into values, or written."""
from __future__ import annotations

import pytest
import torch
from ptdebug.engine.toolchain.cpp_build import cpu_features

from .cpp_checking import check

MASKS = "avx512bw" in cpu_features().split()
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8, torch.bool]


@pytest.mark.parametrize("width", [9, 31, 50])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_with_a_number_for_each(dtype, width):
    draw = torch.Generator().manual_seed(width)
    x, y = ((torch.randn(size, generator=draw) * 9).to(dtype) for size in ((40, width), (40, 1)))
    made = check(lambda x, y: (torch.where(x > y, x, y), x.to(torch.float32) * y, x == y), x, y)
    assert ("k < rest" in made.source.text) == MASKS


def test_what_needs_no_mask():
    x = torch.randn(40, 64)
    assert "k < rest" not in check(lambda x: x.exp() * x[:, :1], x).source.text
    assert "k < rest" not in check(lambda x: x.exp() * 2, x[:3, :31].contiguous()).source.text
    check(lambda x: x.exp() * x[:, :1], x[:, :31].half())


def test_in_place_and_with_elements_that_data_names():
    x, index = torch.randn(40, 31), torch.randint(0, 40, (40,), generator=torch.Generator().manual_seed(0))
    check(lambda x, i: x[i].sin() + x[:, :1], x, index)
    check(lambda x, i: x.flip(1).sin() + x[:, :1], x, index)
