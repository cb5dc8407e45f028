"""Transposed operands of pointwise kernels, read in tiles."""
from __future__ import annotations

import pytest
import torch

from .cpp_checking import check


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.bool, torch.int64], ids=str)
@pytest.mark.parametrize("shape", [(1024, 1024), (2047, 515), (513, 2048)], ids=str)
def test_both_operands_at_every_place(shape, dtype):
    torch.manual_seed(0)
    x, y = (torch.randn(s).mul(9).to(dtype) for s in (shape, shape[::-1]))
    made = check(lambda x, y: (y > x.t()) | (x.t() == 0), x, y)
    assert "transposed<" in made.source.text or shape != (1024, 1024)


def test_axes_around_the_tile_and_several_operands():
    torch.manual_seed(0)
    x, y = torch.randn(3, 33, 512), torch.randn(3, 33, 512)
    made = check(lambda x, y: (x.transpose(1, 2) - y.transpose(1, 2)).contiguous().exp() + x.transpose(1, 2), x, y)
    assert "transposed<" not in made.source.text  # 33 lines stay in the cache
    x, y = torch.randn(2, 1024, 70), torch.randn(2, 70, 1024)
    wide = torch.randn(2, 1024, 1024)
    made = check(lambda x, y, w: (y + w[:, :70].abs()) * w[:, :, :70].transpose(1, 2) - x.transpose(1, 2), x, y, wide)
    assert made.source.text.count("transposed<float") == 2


def test_operands_whose_lines_stay_are_read_in_rows_or_as_transposed_vectors():
    made = check(lambda x, y: x.t() + y, torch.randn(96, 200), torch.randn(200, 96))
    assert "transposed<" not in made.source.text
    for dtype in (torch.float32, torch.float16, torch.int16):
        x = (torch.randn(3, 48, 616) * 9).to(dtype)
        made = check(lambda x: x.transpose(1, 2).contiguous() * 2, x)
        assert "transposed<" in made.source.text
    made = check(lambda x: x.transpose(1, 2).contiguous(), torch.randn(100, 37, 19))
    assert "transposed<" not in made.source.text


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.uint8])
def test_sizes_that_vary_or_fill_no_block_are_transposed_as_vectors(dtype):
    made = check(lambda x: x.transpose(1, 2).contiguous(), (torch.randn(3, 83, 615) * 9).to(dtype))
    assert "transposed<" in made.source.text
    x, more = ((torch.randn(*shape) * 9).to(dtype) for shape in ((67, 93), (5, 140)))
    made = check(lambda x: x.t() * 2, x, again=(more,))
