"""Positions of maxima saved as places in their windows. On a CPU, as on a GPU."""
from __future__ import annotations

from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.artifacts.records import Partition
from ptdebug.engine.aot.autograd import saved_index_compression
from torch.nn import functional as F

POOLINGS: dict[str, dict[str, Any]] = {
    "plain": {"kernel_size": 2},
    "overlapping, padded": {"kernel_size": 3, "stride": 2, "padding": 1},
    "two sizes": {"kernel_size": (2, 3), "stride": (1, 2), "padding": (0, 1)},
    "dilated, rounded up": {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2, "ceil_mode": True},
}


@pytest.mark.parametrize("name", POOLINGS)
def test_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As eager's, exactly, with ties and NaN; what is saved is int8."""
    monkeypatch.setattr(saved_index_compression, "GPU", "cpu")
    torch.manual_seed(0)
    x = torch.randint(0, 4, (2, 3, 11, 14)).float()
    x[0, 1, 4, 5], x[1, 2] = float("nan"), float("-inf")
    x.requires_grad_()

    def pool(x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(x, **POOLINGS[name])

    expected = pool(x)
    weights = torch.arange(expected.numel()).reshape(expected.shape).float()
    (gradient,) = torch.autograd.grad(expected, x, weights)
    with ptdebug.record("narrow") as recording:
        actual = ptdebug.compile(pool)(x)
        (found,) = torch.autograd.grad(actual, x, weights)
    torch.testing.assert_close(actual, expected, equal_nan=True, rtol=0, atol=0)
    torch.testing.assert_close(found, gradient, rtol=0, atol=0)
    (partition,) = [p for _, p in recording.records(Partition)]
    assert [s.bytes for s in partition.saved if s.kind == "tensor"] == [expected.numel()]


def test_indices_that_the_program_gets_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are int64, and equal."""
    monkeypatch.setattr(saved_index_compression, "GPU", "cpu")
    x = torch.randn(2, 3, 8, 8, requires_grad=True)
    values, indices = ptdebug.compile(lambda x: F.max_pool2d_with_indices(x, 2))(x)
    expected = F.max_pool2d_with_indices(x, 2)
    torch.testing.assert_close((values, indices), expected)
