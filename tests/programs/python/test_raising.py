"""Operators that raise for some data, where nobody reads what they give, or only a part of it."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ptdebug
import pytest
import torch
import torch.nn.functional as F
from ptdebug.tracer.runtime.statistics import STATISTICS

from ..checking import call

INDICES = torch.tensor([2, 9])
"""The second is out of range of what `x` has elements."""


def handled(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    try:
        x[i]
    except IndexError:
        return x + 1
    return x * 2


def written(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[i] = 1
    return x * 2


UNREAD: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "index": lambda x, i: x[i],
    "a chain": lambda x, i: (x[i] * 3).sum(),
    "gather": lambda x, i: x.gather(0, i) * 3,
    "index_select": lambda x, i: x.index_select(0, i),
    "scatter_add": lambda x, i: x.scatter_add(0, i, x),
    "embedding": lambda x, i: F.embedding(i, x[:, None]),
    "cross_entropy": lambda x, i: F.cross_entropy(x[None].expand(2, -1), i),
    "binary_cross_entropy": lambda x, i: F.binary_cross_entropy(x, x),
    "integer division": lambda x, i: i // (i - i),
    "bincount": lambda x, i: torch.bincount(i - 50),
    "cholesky": lambda x, i: torch.linalg.cholesky(x[None] - x[:, None]),
    "multinomial": lambda x, i: torch.multinomial(-x, 2),
    "histogram": lambda x, i: torch.histogram(x / 0, 3),
    "segment_reduce": lambda x, i: torch.segment_reduce(x.detach(), "sum", lengths=i),
    "lu_unpack": lambda x, i: torch.lu_unpack(x[None] - x[:2, None], i.int()),
    "pinv": lambda x, i: torch.linalg.pinv(x[:3, None] / 0 * x[:3]),
}

READING_FIRST: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "put": lambda x, i: x.clone().put_(i, x[:2]),
    "masked_scatter": lambda x, i: x.masked_scatter(x < 9, x[:2]),
    "histc": lambda x, i: torch.histc(x / 0),
    "normal": lambda x, i: torch.normal(x, -x.abs()),
    "poisson": lambda x, i: torch.poisson(-x.abs()),
    "embedding_bag": lambda x, i: F.embedding_bag(i, x[:, None], i[:1] * 0),
    "max_unpool1d": lambda x, i: F.max_unpool1d(x[None, :2], i[None], 2),
    "multilabel_margin_loss": lambda x, i: F.multilabel_margin_loss(x[:2], i),
    "segment_reduce": lambda x, i: torch.segment_reduce(x, "sum", lengths=i),
}

IN_PART: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "slice": lambda x, i: x[i][:1] * 2,
    "select": lambda x, i: x.gather(0, i)[0],
    "nothing": lambda x, i: x[i][2:] + 1,
    "padding": lambda x, i: F.pad(x[i] * 2, (0, -1)),
    "index": lambda x, i: (x[i] * 2)[torch.tensor([0])],
    "upsampling": lambda x, i: F.interpolate(x[i][None, None], size=1),
    "a slice and all of a scan": lambda x, i: x[i][:1].cumsum(0),
    "the form": lambda x, i: torch.zeros_like(x[i]),
    "written over": lambda x, i: x[i].zero_(),
    "a size": lambda x, i: x + x[i].shape[0],
    "concatenated": lambda x, i: torch.cat([x[i], x])[:1],
}


def agrees(function: Callable[..., Any], *args: Any) -> None:
    """Raises AssertionError where the compiled function raises or gives anything but what the function does."""
    expected, got = call(function, *args), call(ptdebug.compile(function), *args)
    assert repr(got) == repr(expected)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", UNREAD)
def test_what_nobody_reads_raises(name: str, grad: bool) -> None:
    def function(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        UNREAD[name](x, i)
        return x * 2

    agrees(function, torch.arange(1.0, 6.0).requires_grad_(grad), INDICES)


@pytest.mark.parametrize("name", READING_FIRST)
def test_what_raises_comes_before_what_is_written_after_it(name: str) -> None:
    def function(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        y = x.sin()  # in one kernel with what is written, which the call would then come after
        READING_FIRST[name](y, i)
        x.add_(1)
        return y

    ours, eagers = torch.arange(1.0, 6.0), torch.arange(1.0, 6.0)
    assert repr(call(ptdebug.compile(function), ours, INDICES)) == repr(call(function, eagers, INDICES))
    assert torch.equal(ours, eagers)


@pytest.mark.parametrize("name", IN_PART)
def test_what_is_read_in_part_raises(name: str) -> None:
    agrees(IN_PART[name], torch.arange(1.0, 6.0), INDICES)


@pytest.mark.parametrize("function", [handled, written])
@pytest.mark.parametrize("last", [4, 5])
def test_a_handler_sees_what_nobody_reads(function: Callable[..., Any], last: int) -> None:
    agrees(function, torch.arange(1.0, 6.0), torch.tensor([2, last]))


def test_indices_that_vary_are_caught_and_slices_are_captured() -> None:
    def function(x: torch.Tensor, i: int) -> torch.Tensor:
        y = x * 2
        try:
            y[i:] = y[i]
        except IndexError:
            return y + 1
        return y[..., :i]

    def sliced(x: torch.Tensor, i: int) -> torch.Tensor:
        try:
            return (x * 2)[..., i : i + 2]
        except IndexError:
            return x

    compiled, whole = (ptdebug.compile(f, dynamic=True, backend=lambda graph, _: graph) for f in (function, sliced))
    for i in (2, 3, 4, 5, -5, -6, 9, 2):
        assert torch.equal(compiled(torch.arange(5.0), i), function(torch.arange(5.0), i))
    STATISTICS.clear()
    for i in (2, 3, 4, 9):
        assert torch.equal(whole(torch.arange(5.0), i), sliced(torch.arange(5.0), i))
    assert STATISTICS.graph_breaks == 0
