"""Innermost loops of two to four iterations are written out, where memory goes on through them and the loop around."""
from __future__ import annotations

import pytest
import torch

from .cpp_checking import check


def numbers(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(0)).to(dtype)


def stores(function, *inputs, **settings) -> list[int]:
    """How many stores the body of each group has in a compiled function, which must be right."""
    groups = check(function, *inputs, **settings).groups
    return [sum(s.op == "store" for b in g.bodies for s in b.statements) for g in groups]


def repeated(x):
    return x[..., None].expand(*x.shape, 2) * 3


def upsampled(x):
    n, c, h, w = x.shape
    return x[:, :, :, None, :, None].expand(n, c, h, 2, w, 2).reshape(n, c, 2 * h, 2 * w)


def corners(boxes, scale):
    return boxes * scale + 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int8,
                                   torch.bool], ids=str)  # fmt: skip
def test_dtypes(dtype):
    x = numbers(5, 67).mul(4).to(dtype)
    assert stores(lambda x: x[..., None].expand(*x.shape, 2) & True if dtype is torch.bool else repeated(x), x) == [2]
    if dtype is not torch.bool:
        assert stores(corners, x[:, :64].reshape(-1, 4), torch.arange(4).to(dtype)) == [4]


def test_two_to_four_iterations_beside_a_long_loop():
    for last, expected in ((2, 2), (3, 3), (4, 4), (5, 1), (1, 1)):
        assert stores(corners, numbers(100, last), numbers(last)) == [expected]
    assert stores(corners, numbers(31, 4), numbers(4)) == [1]
    assert stores(corners, numbers(9, 100, 3)[:, 3:70], numbers(3)) == [3]


def test_memory_must_go_on_through_both_loops():
    assert stores(corners, numbers(4, 100).t(), numbers(4)) == [1]
    assert stores(lambda x, y: x + y.t(), numbers(100, 4), numbers(4, 100)) == [1]
    assert stores(lambda x, i: x[i] * 2, numbers(50, 3), torch.arange(100) % 50) == [1]


def test_what_is_the_same_in_each_iteration_is_computed_once():
    [group] = check(lambda x: (x.exp()[:, None] * torch.arange(3.0)), numbers(200)).groups
    assert [s.op for b in group.bodies for s in b.statements].count("exp") == 1


def test_upsampled_and_joined_images():
    x, y = numbers(2, 3, 16, 40), numbers(2, 2, 32, 80)
    assert stores(lambda x: upsampled(x) + 1, x) == [2]
    assert stores(lambda x, y: torch.cat([upsampled(x), y], 1).relu(), x, y) == [2]
    assert stores(lambda x, y: torch.cat([y, upsampled(x), y], 1) * 2, x, y) == [2]


def test_loads_of_neighbours_under_one_mask_start_together():
    text = check(lambda x, y: torch.cat([upsampled(x), y], 1).relu(), numbers(2, 3, 16, 40),
                 numbers(2, 2, 32, 80)).source.text
    assert text.count("_start = ") == 2


def test_sizes_that_vary():
    assert stores(corners, numbers(100, 4), numbers(4), again=(numbers(7, 4), numbers(4))) == [1]


def test_it_is_a_decision():
    assert stores(corners, numbers(100, 3), numbers(3), overrides={"unroll:*": "loop"}) == [1]
