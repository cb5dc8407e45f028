"""Gradients whose formula is not the one that autograd has in C++: values and strides against eager's."""
from __future__ import annotations

import math

import ptdebug
import pytest
import torch
import torch.nn.functional as F


def same_gradients(function, *inputs, **tolerance):
    """One compiled function, on each of `inputs` (of one shape)."""
    compiled = ptdebug.compile(function, fullgraph=True)
    for x in inputs:
        found = []
        for run in (function, compiled):
            leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
            result = run(leaf)
            tangent = torch.linspace(-1, 2, result.numel(), dtype=result.dtype).view(result.shape)
            found.append((result, *torch.autograd.grad(result, leaf, tangent)))
        for eager, ours in zip(*found):
            torch.testing.assert_close(ours, eager, equal_nan=True, **tolerance)
            assert ours.stride() == eager.stride()


def rows_with(*special):
    x = torch.rand(6, 9, dtype=torch.float64) + 0.5
    for row, numbers in enumerate(special):
        for place, number in numbers.items():
            x[row, place] = number
    return x


ZEROS = ({}, {0: 0.0}, {4: 0.0}, {8: -0.0}, {2: 0.0, 5: 0.0, 7: 0.0}, {1: 0.0, 2: 0.0})
ODD = ({3: math.nan}, {0: math.inf}, {2: math.nan, 5: 0.0}, {4: 0.0, 6: math.inf}, {1: 1e-300, 2: 1e-300}, {})


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_cumulative_products_with_zeros_anywhere(dim):
    x = rows_with(*ZEROS)
    same_gradients(lambda x: torch.cumprod(x, dim), x, rows_with(*ODD), rows_with(), x.mT.contiguous().mT)
    same_gradients(lambda x: x.cumprod(dim=dim) + 1, x.float(), rows_with(*ODD[:4]).float())


def test_cumulative_products_in_other_dtypes_and_of_nothing():
    same_gradients(lambda x: x.cumprod(1, dtype=torch.float64), rows_with(*ZEROS).float())
    same_gradients(lambda x: x.cumprod(0), torch.empty(0, 4))
    same_gradients(lambda x: x.cumprod(0), torch.tensor(2.0))


def test_cumulative_products_differentiated_twice_and_by_a_transform():
    x = rows_with(*ZEROS[:3]).requires_grad_()
    second = []
    for run in (ptdebug.compile(lambda x: x.cumprod(1)), lambda x: x.cumprod(1)):
        first, = torch.autograd.grad(run(x).sum(), x, create_graph=True)
        second.append(torch.autograd.grad(first.square().sum(), x)[0])
    torch.testing.assert_close(*second)

    def transformed(x):
        return torch.func.grad(lambda v: v.cumprod(1).sum())(x)

    torch.testing.assert_close(ptdebug.compile(transformed)(x.detach()), transformed(x.detach()))


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_maxima_of_windows_that_overlap(form):
    x = (torch.randn(2, 5, 9, 8) * 3).round().contiguous(memory_format=form)  # ties
    x[0, 1, 2, 3] = math.nan
    same_gradients(lambda x: F.max_pool2d(x, 3, 2, 1), x)
    same_gradients(lambda x: F.max_pool2d(x, (3, 2), (1, 2), (1, 0), ceil_mode=True), x.double())


def test_maxima_of_windows_in_three_dimensions():
    x = torch.randn(2, 3, 5, 6, 7)
    same_gradients(lambda x: F.max_pool3d(x, 3, 2, 1), x)
    same_gradients(lambda x: F.max_pool3d(x, 3, 2, 1), x.contiguous(memory_format=torch.channels_last_3d))


@pytest.mark.parametrize("pad", [(2, 2, 2, 2, 2, 2), (0, 5, 1, 0, 3, 4), (6, 0, 4, 4, 0, 1)])
def test_reflections_in_three_dimensions(pad):
    same_gradients(lambda x: F.pad(x, pad, mode="reflect"), torch.randn(2, 3, 5, 6, 7))


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_repeated_edges_in_any_layout(mode):
    x = torch.randn(2, 3, 6, 7)
    for form in (torch.contiguous_format, torch.channels_last):
        same_gradients(lambda x: F.pad(x, (3, 1, 0, 2), mode=mode), x.contiguous(memory_format=form))
    same_gradients(lambda x: F.pad(x, (2, 1, 1, 0, 1, 3), mode=mode),
                   torch.randn(1, 2, 4, 5, 6).contiguous(memory_format=torch.channels_last_3d))
    same_gradients(lambda x: F.pad(x, (4, 2), mode=mode), torch.randn(2, 3, 5), torch.randn(2, 5, 3).mT)


def test_sigmoids_of_doubles():
    x = torch.cat([torch.linspace(-800, 800, 3203), torch.randn(500) * 3]).double()
    x = torch.cat([x, torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, -709.5]).double()])
    for function in (torch.sigmoid, F.silu):
        torch.testing.assert_close(
            ptdebug.compile(function)(x), function(x), rtol=1e-15, atol=1e-300, equal_nan=True)
        same_gradients(function, x, rtol=1e-13, atol=1e-15)  # 1 - sigmoid(x) cancels
