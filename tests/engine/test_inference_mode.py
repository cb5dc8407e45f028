"""Graphs whose inputs and results are tensors of the inference mode: compiled, with values and layouts of eager."""
from __future__ import annotations

from typing import Any

import ptdebug
import torch
from torch import nn


def test_a_network_and_writes_in_place() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True)).eval()

    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = x.clone().t()
        z[0].mul_(2)
        y.mul_(z.t())
        return z, z.reshape(-1), y[0], model(y.view(1, 3, 4, 4))

    def run(function: Any) -> tuple[torch.Tensor, ...]:
        torch.manual_seed(0)
        with torch.inference_mode():
            x, y = torch.randn(6, 8), torch.randn(6, 8)
            return (*function(x, y), y)

    with ptdebug.record("inference") as recording:
        found = run(ptdebug.compile(program, fullgraph=True))
    assert [c.status for c in recording.compiles()] == ["compiled"]
    for ours, theirs in zip(found, run(program)):
        assert ours.is_inference()
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(ours, theirs)


def test_the_mode_begins_inside_of_the_graph() -> None:
    """A cache of keys: a tensor of the ordinary kind, written in the mode and read again."""
    def attend(cache: torch.Tensor, x: torch.Tensor, start: int) -> tuple[torch.Tensor, ...]:
        with torch.inference_mode():
            cache[:, start : start + 2] = x * 2
            made = torch.zeros_like(cache)
            made[:, 1:] = x.sum()
            return cache[:, : start + 2].sum(1), made[:, 1:].t(), cache.view(-1)

    def run(function: Any) -> tuple[torch.Tensor, ...]:
        cache = torch.ones(2, 6)
        results = [function(cache, torch.full((2, 2), 3.0), start) for start in (0, 2, 3)]
        return (*(tensor for result in results for tensor in result), cache)

    with ptdebug.record("inference") as recording:
        found = run(ptdebug.compile(attend, fullgraph=True))
    assert {c.status for c in recording.compiles()} == {"compiled"}
    for ours, theirs in zip(found, run(attend)):
        assert ours.is_inference() == theirs.is_inference()
        assert ours._is_view() == theirs._is_view()
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(ours, theirs)


def test_results_of_the_mode_beside_a_loss() -> None:
    def step(x: torch.Tensor, seen: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = (x * 2).sin()
        with torch.inference_mode():
            seen[:, :2] = y[:, :2]
            largest = seen[:, :3].amax()
        return (y * 3).sum(), largest, seen[:, 1:] + 1

    def run(function: Any) -> tuple[torch.Tensor, ...]:
        x, seen = torch.ones(4, 6, requires_grad=True), torch.zeros(4, 6)
        results = function(x, seen)
        results[0].backward()
        assert x.grad is not None
        return (*results, x.grad, seen)

    for ours, theirs in zip(run(ptdebug.compile(step)), run(step)):
        assert ours.is_inference() == theirs.is_inference()
        torch.testing.assert_close(ours, theirs)
