"""Reductions in stripes: rows of every length, windows of short rows, all kinds, with what is no number among them."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from .cpp_checking import check


def reductions(x, dims):
    return x.sum(dims), x.amax(dims), x.amin(dims), (x > 0.5).any(dims), x.isfinite().all(dims), x.exp().mean(dims)


@pytest.mark.parametrize("width", [2, 7, 16, 17, 33, 64, 77])
def test_rows_of_any_length(width):
    x = torch.randn(9, width, generator=torch.Generator().manual_seed(width))
    check(lambda x: (*reductions(x, (1,)), x[:, :20].prod(1)), x, slack=4.0)
    x[0, width - 1], x[1, 0], x[2, 1], x[3] = float("nan"), float("-inf"), float("inf"), float("inf")
    check(lambda x: reductions(x, (1,)), x, slack=4.0)


@pytest.mark.parametrize("rows, width", [(8, 8), (3, 2), (5, 33), (60, 8), (3, 300)])
def test_windows_of_short_rows(rows, width):
    x = torch.randn(3, rows, 4, width, generator=torch.Generator().manual_seed(width))
    x[1, rows - 1, 2, 1], x[2, 0, 0, 0] = float("nan"), float("-inf")
    check(lambda x: (*reductions(x, (1, 3)), x.var((1, 3))), x, slack=4.0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.bool, torch.float64, torch.bfloat16])
def test_windows_of_other_dtypes(dtype):
    x = (torch.randn(4, 8, 5, 8, generator=torch.Generator().manual_seed(0)) * 9).to(dtype)
    check(lambda x: (x.sum((1, 3)), x.amax((1, 3)), x.amin((1, 3))), x)


@pytest.mark.parametrize("width", [17, 107])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float64, torch.float16, torch.uint8])
def test_what_remains_of_a_row_is_a_block_under_a_mask(dtype, width):
    x = (torch.randn(70, width, generator=torch.Generator().manual_seed(0)) * 9).to(dtype)
    x[:9] = torch.finfo(dtype).min if dtype.is_floating_point else torch.iinfo(dtype).min
    made = check(lambda x: (x[9:].sum(1), x.amax(1), (x - 3).amin(1), x[:, :4].prod(1), (x == 3).any(1),
                            (x < 99).all(1), x.argmax(1), (x * 2).argmin(1)), x)
    assert "k < rest" in made.source.text or dtype.itemsize < 4  # AVX2 has no masks of these


@pytest.mark.parametrize("width", [17, 107])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64], ids=str)
def test_what_is_stored_beside_a_reduction_ends_with_its_row(dtype, width):
    x = (torch.randn(70, width, generator=torch.Generator().manual_seed(0)) * 9).to(dtype)

    def function(x):
        y = x * 3 - 1
        return y, y.sum(1), (x.abs() + 1).double().softmax(1), x.amax(1)

    check(function, x)


def test_means_of_windows_whose_number_divides_the_size():
    check(lambda x: F.adaptive_avg_pool2d(x, 7) * 2, torch.randn(2, 3, 56, 56))
    check(lambda x: F.adaptive_avg_pool2d(x, (4, 1)), torch.randn(2, 3, 12, 20))


def test_sizes_that_vary():
    check(lambda x: (x.sum(-1), x.amax(-1), x.softmax(-1)), torch.randn(5, 40), again=(torch.randn(7, 51),))
    check(lambda x: x.mean((1, 3)), torch.randn(3, 9, 2, 8), again=(torch.randn(4, 70, 3, 11),))


@pytest.mark.parametrize("width", [5, 33, 300])
def test_rows_that_data_names_are_read_along_the_row(width):
    x, rows = torch.randn(37, width, generator=torch.Generator().manual_seed(width)), torch.arange(3000) * 7 % 37 - 37
    x[3, width - 1], x[5, 0] = float("nan"), float("-inf")
    function = lambda x, rows: (*reductions(x[rows], (1,)), x[rows].var(1), x[rows].argmax(1))
    made = check(function, x, rows, slack=4.0)
    assert "lanes_each" not in made.source.text
    more = torch.randn(40, width + 3, generator=torch.Generator().manual_seed(1))
    check(function, x, rows, slack=4.0, again=(more, rows[:700]))
    check(lambda x, rows: (x[rows].sum(0), x[:, rows].sum(0)), x.nan_to_num(0, 0, 0), rows % 5, slack=4.0)


def test_chunks_of_threads_miss_no_element():
    x = torch.randn(130_003, generator=torch.Generator().manual_seed(0))
    function = lambda x: (x.sum(), x.amax(), x.argmin(), (x > 9).any(), (x * 1e-4 + 1).prod())
    made = check(function, x, slack=4.0)
    assert "last = chunk < 31" in made.source.text
    for at in (0, 4031, 4032, 130_002):
        x[at] = float(10 + at)
        check(lambda x: (x.amax(), (x > 9).sum(), x.argmax()), x)
    check(function, torch.randn(90_007), slack=4.0, again=(torch.randn(61_001),))


@pytest.mark.parametrize("rows", [33, 64, 97])
def test_sums_over_rows_are_as_near_as_those_of_eager(rows):
    x = torch.randn(rows, 200, generator=torch.Generator().manual_seed(rows))
    check(lambda x: (x.sum(0), x.exp().mean(0), x.amax(0)), x, slack=4.0)
