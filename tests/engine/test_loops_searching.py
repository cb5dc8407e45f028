"""bucketize and searchsorted against eager: sides, dtypes, NaN and infinities, rows of their own."""
from __future__ import annotations

from functools import partial

import pytest
import torch

from .cpp_checking import check


def bucketized(right, x, edges):
    return torch.bucketize(x, edges, right=right)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8])
def test_one_sequence_for_all(dtype, right):
    edges = torch.arange(0, 60, 3).to(dtype)
    x = torch.arange(0, 90).reshape(9, 10).to(dtype)
    check(lambda x, e: (torch.bucketize(x, e, right=right), torch.searchsorted(e, x[0], right=right, out_int32=True)),
          x, edges)


def test_special_values_repeated_boundaries_and_one():
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([nan, inf, -inf, 0.0, -0.0, 1.0, 2.5])
    for edges in ([-inf, 0.0, 0.0, 1.0, inf], [0.0]):
        for right in (False, True):
            check(partial(bucketized, right), x, torch.tensor(edges))


def test_rows_of_their_own_many_boundaries_and_consumers():
    x, rows = torch.randn(5, 70), torch.randn(5, 40).sort(-1).values
    check(lambda r, x: torch.searchsorted(r, x) * 2, rows, x)
    check(lambda r, x: torch.searchsorted(r, x, side="right"), rows, x)
    check(lambda e, x: torch.bucketize(x.exp(), e), torch.linspace(0, 9, 300), x)
    check(lambda e, x: torch.bucketize(x.exp(), e).float().mean(0), torch.linspace(0, 9, 30), x)
    check(lambda e, x: torch.bucketize(x[:0], e), torch.linspace(0, 9, 30), x)


def test_counts_run_over_many_values_at_once():
    made = check(torch.bucketize, torch.randn(64, 100), torch.linspace(-2, 2, 63))
    assert "simd reduction" not in made.source.text  # no sum over the lanes of a vector for each value
