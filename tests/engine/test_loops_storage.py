"""The dtype that intermediate buffers have: 16 bits for values that were rounded to those."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from ptdebug.engine.ir.interpreter import run

from .loops_checking import lowered

HALVES = {torch.bfloat16, torch.float16}


def _several_bodies(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = torch.exp(x).to(torch.bfloat16).to(torch.float32)
    return y.sum(0), (y * 2).sum(1), y.amax(0) - y.view(-1, 4).sum(1).sum()


def _view_for_the_library(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = torch.exp(x).to(torch.float16).to(torch.float32)
    return torch.mm(y.t(), y), y.sum(0), y.view(-1, 4).sum(1)


def _view_that_leaves(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = torch.exp(x).to(torch.bfloat16).to(torch.float32)
    return y[1:], y.sum(0), y.sum(1)


@pytest.mark.parametrize("function", [_several_bodies, _view_for_the_library, _view_that_leaves])
def test_nothing_is_lost(function: Callable[..., Any]) -> None:
    x = torch.randn(8, 16)
    narrow, wide = lowered(function, x), lowered(function, x, overrides={"storage:*": "float32"})
    for ours, exact, eager in zip(run(narrow, (x,)), run(wide, (x,)), function(x)):
        assert torch.equal(ours, exact) and ours.dtype == eager.dtype and ours.stride() == eager.stride()
        torch.testing.assert_close(ours, eager)


def test_rounded_values_are_stored_in_half_the_bytes() -> None:
    x = torch.randn(8, 16)
    narrow, wide = lowered(_several_bodies, x), lowered(_several_bodies, x, overrides={"storage:*": "float32"})
    assert [b.dtype for b in narrow.buffers.values()].count(torch.bfloat16) == 1
    assert not {b.dtype for b in wide.buffers.values()} & HALVES


def test_what_leaves_the_loops_keeps_its_dtype() -> None:
    x = torch.randn(8, 16)
    for function in (_view_for_the_library, _view_that_leaves):
        assert not {b.dtype for b in lowered(function, x).buffers.values()} & HALVES
