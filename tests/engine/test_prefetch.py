"""Which kernels prefetch the next row of what they read: those that end with a loop over rows from memory."""
from __future__ import annotations

import pytest
import torch
from ptdebug.engine.scheduler.cpu import prefetch

from .cpp_checking import check


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second-level cache that holds next to nothing."""
    monkeypatch.setattr(prefetch, "MEMORY", 1 << 16)


def numbers(*size: int) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(0))


def fetched(function, *inputs, **settings) -> int:
    """How many lines of the next row a compiled function, which must be right, asks for at a time."""
    return check(function, *inputs, **settings).source.text.count("__builtin_prefetch(")


def normalized(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def softmax(x, w):
    return torch.softmax(x, -1) * w


@pytest.mark.parametrize("function", [normalized, softmax])
@pytest.mark.parametrize("dtype, lines", [(torch.float32, 2), (torch.float64, 4), (torch.bfloat16, 1)])
def test_rows_of_each_dtype(function, dtype, lines):
    x = numbers(67, 512).to(dtype)
    assert fetched(function, x, x[0]) == lines
    assert fetched(function, x.view(1, 67, 512)[:, 1:], x[0]) == lines


def test_several_rows_and_those_that_are_read_again():
    x, y = numbers(67, 512), numbers(67, 1024)[:, ::2]
    assert fetched(lambda x, y: softmax(x + y, 2), x, x.flip(0).contiguous()) == 4
    assert fetched(lambda x, y: softmax(x, 2) + y, x, x.flip(0).contiguous()) == 4
    assert fetched(lambda x, y: softmax(x, 2) + y, x, y) == 2  # y's lines are half full
    assert fetched(lambda x, y: softmax(x, 2) + y[:, None], x, x[:, 0]) == 2
    assert fetched(lambda x: softmax(x, 2) - softmax(x.flip(0), 1), x) == 4  # one of them backwards


@pytest.mark.parametrize("rows, length", [(9, 100), (900, 100), (20, 516), (9, 8192)])
def test_not_where_rows_are_few_or_of_another_length(rows, length):
    x = numbers(rows, length)
    assert fetched(softmax, x, x[0]) == 0


def test_not_where_there_is_one_loop_or_an_override():
    x = numbers(67, 512)
    assert fetched(lambda x: x.exp() * 2, x) == 0 and fetched(lambda x: x.exp().sum(1), x) == 0
    assert fetched(softmax, x, x[0], overrides={"prefetch:*": "none"}) == 0
