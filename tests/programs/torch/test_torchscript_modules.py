"""Modules of TorchScript inside of compiled functions, and functions with a cache that are called with tensors."""
from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.artifacts.records import Break, Breaks
from torch import nn


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()


torch.manual_seed(0)
PLAIN = Layer()
SCRIPTED = torch.jit.script(Layer())
TRACED = torch.jit.trace(Layer(), torch.randn(3, 4))


class Around(nn.Module):
    """A module of Python around one of TorchScript."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.inner(x) * 2)


def results(program: Callable[..., Any], x: torch.Tensor) -> tuple[Any, torch.Tensor | None]:
    """What a program gives, and the gradient of its input."""
    given = x.clone().requires_grad_()
    result = program(given)
    tensors = [value for value in (result if isinstance(result, (tuple, list)) else [result])
               if isinstance(value, torch.Tensor)]
    sum(value.sum() for value in tensors).backward()  # type: ignore[union-attr]
    return result, given.grad


def breaks_of(program: Callable[..., Any], folder: Path, x: torch.Tensor) -> list[Break]:
    """The breaks of a program that gives what it gives in eager, twice."""
    with ptdebug.record(out=str(folder)) as recording:
        compiled = ptdebug.compile(program)
        for _ in range(2):
            torch.testing.assert_close(results(compiled, x), results(program, x))
        return [found for _, record in recording.records(Breaks) for found in record.breaks]


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "scripted": lambda x: SCRIPTED(x) + 1,
    "traced": lambda x: TRACED(x.sin()) + 1,
    "attribute": Around(SCRIPTED),
    "traced attribute": Around(TRACED),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_call_is_the_one_break_and_says_why(name: str, tmp_path: Path) -> None:
    (found,) = breaks_of(PROGRAMS[name], tmp_path, torch.randn(3, 4))
    assert found.code == "torchscript" and "TorchScript's interpreter" in found.message, found.message
    assert "compile" in found.hint


OTHERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "item": nn.Sequential(nn.Linear(4, 4), SCRIPTED, nn.ReLU()),
    "list": lambda x: [module(x) + 1 for module in (SCRIPTED, PLAIN, TRACED)],
    "forward": lambda x: SCRIPTED.forward(x) + 1,
    "weight": lambda x: SCRIPTED.linear.weight.sum() + x,
    "parameters": lambda x: sum(p.sum() for p in SCRIPTED.parameters()) + x,
    "training": lambda x: x + 1 if SCRIPTED.training else x,
    "truth": lambda x: x + 1 if SCRIPTED else x,
    "equal": lambda x: (SCRIPTED == SCRIPTED, x + 1),
    "hasattr": lambda x: (hasattr(SCRIPTED, "linear"), hasattr(SCRIPTED, "nothing"), x + 1),
}


@pytest.mark.parametrize("name", OTHERS)
def test_whatever_is_done_with_one_is_what_eager_does(name: str, tmp_path: Path) -> None:
    for found in breaks_of(OTHERS[name], tmp_path, torch.randn(3, 4)):
        assert "RecursiveScriptModule" not in found.message


def test_where_python_needs_no_part_of_it_there_is_no_break(tmp_path: Path) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if SCRIPTED is not None and isinstance(SCRIPTED, nn.Module) else x

    assert breaks_of(program, tmp_path, torch.randn(3, 4)) == []


def test_another_module_in_its_place_is_seen() -> None:
    compiled = ptdebug.compile(lambda x, module: module(x) * 2)
    x = torch.randn(3, 4)
    for module in (SCRIPTED, PLAIN, TRACED, torch.jit.script(Layer())):
        torch.testing.assert_close(compiled(x, module), module(x) * 2)


# ---- functions with a cache ------------------------------------------------------------------------------------------
@functools.lru_cache
def of_tensor(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


def test_a_cache_by_tensors_is_left_to_eager(tmp_path: Path) -> None:
    """The result is the one that the cache has, also after the tensor was written."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return of_tensor(x) + 1

    x = torch.randn(3)
    with ptdebug.record(out=str(tmp_path)) as recording:
        compiled = ptdebug.compile(program)
        first = compiled(x)
        x.add_(1)
        assert compiled(x).equal(first) and program(x).equal(first)
        found = [one for _, record in recording.records(Breaks) for one in record.breaks]
    assert [one.code for one in found] == ["unsupported-argument"], found[0].message
    assert of_tensor.cache_info().misses == 1
