"""Exported packages against eager: arguments, weights and results that share memory, vary or change."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.engine.package import InputError


@pytest.fixture
def package(tmp_path: Path) -> Any:
    def made(model: Any, args: Any, **options: Any) -> Any:
        return ptdebug.load(ptdebug.export(model, args, **options).save(tmp_path / "model.ptd"))

    return made


def write_one(a: torch.Tensor, b: torch.Tensor) -> Any:
    a.add_(1)
    return a, b * 2


def test_arguments_that_are_one_tensor_in_the_example_are_two_in_a_call(package: Any) -> None:
    x, y, both = torch.randn(4), torch.randn(4), torch.randn(4)
    assert torch.equal(package(lambda a, b: a * 2 + b, (both, both))(x, y), x * 2 + y)
    program, before = package(write_one, (both, both)), x.clone()
    first, second = program(x, y)
    assert first is x and torch.equal(x, before + 1) and torch.equal(second, y * 2)
    with pytest.raises(InputError, match="shares memory"):
        program(x, x)


def test_example_arguments_may_have_gaps_and_repeat(package: Any) -> None:
    x, y = torch.randn(4, 8)[:, ::2], torch.randn(4, 4)
    program = package(write_one, (torch.randn(4, 8)[:, ::2], torch.randn(4).expand(4, 4)))
    wanted = x + 1
    first, second = program(x, y)
    assert torch.equal(first, wanted) and torch.equal(second, y * 2)


class Named(torch.nn.Module):
    """A buffer with the name that a constant would get."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("constant1", torch.randn(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.constant1 + CONSTANT


CONSTANT = torch.tensor([1.0, 2.0, 3.0])


def test_constants_have_names_of_their_own(package: Any) -> None:
    model, x = Named(), torch.randn(3)
    assert torch.allclose(package(model, (torch.randn(3),))(x), model(x))
