"""Reductions against eager: kinds, axes, dtypes, sizes around the lengths at which the generated code changes."""
from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st

from .cpp_checking import built, check

KINDS = (torch.sum, torch.mean, torch.amax, torch.amin)


@pytest.mark.parametrize("shape, dims", [
    ((7, 300), (1,)), ((300, 7), (0,)), ((300, 130), (0,)), ((3, 40, 50), (1,)), ((3, 40, 50), (0, 2)),
    ((5, 70000), (1,)), ((70000, 3), (0,)), ((200, 300), (0, 1)), ((4, 16, 300), (0, 1)), ((2, 3, 4, 5), (1, 3)),
])
def test_sums_and_extrema(shape, dims):
    x = torch.randn(shape)
    check(lambda x: tuple(f(x, dims) for f in KINDS), x)


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_any_shape_and_axes(data):
    shape = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
    dims = tuple(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    x = torch.randn(shape)
    check(lambda x: (x.exp().sum(dims), x.amax(dims, keepdim=True) - x), x)


def test_nan_wins_extrema_and_ties_go_to_the_first():
    x = torch.randint(0, 4, (20, 400)).float()
    x[3, 7] = x[3, 9] = math.nan
    x[5] = -math.inf
    check(lambda x: (x.amax(1), x.amin(1), x.argmax(1), x.argmin(1), x.argmax(0), x.argmin(), *x.max(1), *x.min(0)), x)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8, torch.bool])
def test_integers(dtype):
    x = torch.randint(0, 2 if dtype is torch.bool else 100, (50, 80)).to(dtype)
    check(lambda x: (x.sum(0), x.sum(1), x.sum(), x.amax(1), x.any(0), x.all(1)), x)


def test_products_and_variances():
    x = torch.rand(9, 700, generator=torch.Generator().manual_seed(0)) + 0.6  # errors of products vary by a factor
    check(lambda x: (x[:, :50].prod(1), x.var(1), x.std(0), *torch.var_mean(x)), x, slack=4.0)


@pytest.mark.parametrize(
    "long", (torch.rand(2, 20_000), torch.rand(2, 40_000)[:, ::2], torch.rand(20_000, 2).t()),
    ids=("rows", "steps", "columns"),
)
def test_long_products_do_not_drift(long):
    """Rounded to floats one after the other, they are off by dozens of roundings, whatever their order."""
    x = long.mul_(1e-2).add_(0.995)
    (product,) = built(lambda x: x.prod(1), x)(x)
    torch.testing.assert_close(product.double(), x.double().prod(1), rtol=2e-7, atol=0)


@pytest.mark.parametrize("shape, dims", [((4, 5000, 33), (1,)), ((100_000, 16), (0,)), ((16, 100_000), (1,))])
def test_doubles_are_added_up_in_blocks(shape, dims):
    """One after the other, these would be off by hundreds of roundings; eager's are by three."""
    x = torch.full(shape, -math.log(7), dtype=torch.float64)
    (total,) = built(lambda x: x.sum(dims), x)(x)
    exact = torch.from_numpy(x.numpy().astype(np.longdouble).sum(dims).astype(np.float64))
    assert ((total - exact).abs() <= 16 * torch.finfo(torch.float64).eps * exact.abs()).all()


def test_a_large_sum_does_not_depend_on_the_number_of_threads():
    x = torch.rand(300_000) - 0.25  # not a sum near zero, beside which any rounding is large
    made = check(lambda x: (x.sum(), x.square().mean()), x)
    first = made(x)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert all(torch.equal(a, b) for a, b in zip(first, made(x)))
    finally:
        torch.set_num_threads(threads)


def test_an_index_that_is_read_before_a_sum_in_chunks_is_checked():
    table, x = torch.randn(4, 70_000), torch.rand(70_000)
    made = check(lambda table, i, x: (F.embedding(i, table).abs() * x).sum(), table, torch.tensor(2), x)
    with pytest.raises(IndexError):
        made(table, torch.tensor(4), x)


@pytest.mark.parametrize("shape, dim", [((64, 1000), -1), ((1000, 64), 0), ((4, 8, 33, 65), 1), ((3, 20000), -1)])
def test_softmax(shape, dim):
    x = torch.randn(shape) * 5
    check(lambda x: (torch.softmax(x, dim), torch.log_softmax(x, dim)), x, slack=3.0)


def test_normalizations():
    x, w, b = torch.randn(6, 8, 320), torch.randn(320), torch.randn(320)
    check(lambda x, w, b: F.layer_norm(x, (320,), w, b), x, w, b, kernels=1, slack=3.0)
    image = torch.randn(2, 16, 12, 13)
    check(lambda x: F.silu(F.group_norm(x, 4)), image, slack=3.0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bit_floats_accumulate_in_float32(dtype):
    x = torch.randn(30, 1000).to(dtype)
    check(lambda x: (x.sum(1), torch.softmax(x, -1), x.amax(0)), x)
