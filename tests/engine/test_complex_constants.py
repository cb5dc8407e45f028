"""Complex constants of graphs that run in eager: the sign of each zero, infinities and NaN."""
from __future__ import annotations

import math
from pathlib import Path

import ptdebug
import pytest
import torch
import torch.fx
from ptdebug.engine.runtime.complex_constants import with_exact_constants
from ptdebug.engine.runtime.entry import eager_form

PARTS = (0.0, -0.0, 1.0, -2.5, math.inf, -math.inf, math.nan)
NUMBERS = [complex(real, imag) for real in PARTS for imag in PARTS]


def parts(tensor: torch.Tensor) -> list[str]:
    """Each part as text, which shows the sign of a zero."""
    return list(map(str, torch.view_as_real(tensor).flatten().tolist()))


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_a_constant_is_what_the_program_wrote(number: complex) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        filled = torch.full_like(x, number, dtype=torch.complex64)
        return filled, [torch.where(x > 0, filled, number), torch.full((1,), fill_value=number)]

    module = torch.fx.symbolic_trace(program)
    x = torch.tensor([1.0, -1.0])
    for _ in range(2):
        first, (second, third) = eager_form(module)(x)
        expected = parts(program(x)[0])
        assert parts(first) == expected and parts(third) == expected[:2]
        assert parts(second) == parts(program(x)[1][0])


def test_graphs_without_them_are_left_as_they_are() -> None:
    module = torch.fx.symbolic_trace(lambda x: x * 2.0)
    assert with_exact_constants(module) is module


def test_inner_graphs_have_them_too() -> None:
    inner = torch.fx.symbolic_trace(lambda x: torch.full_like(x, complex(-0.0, 1), dtype=torch.complex64))
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_module("inner", (x,)))
    module = torch.fx.GraphModule({"inner": inner}, graph)
    assert parts(eager_form(module)(torch.ones(1))) == ["-0.0", "1.0"]


def test_a_graph_that_is_left_to_eager(tmp_path: Path) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.full_like(x, complex(-0.0, -0.0), dtype=torch.complex64)

    x = torch.ones(2)
    with ptdebug.record(out=str(tmp_path), overrides={"compile:*": "eager"}):
        assert parts(ptdebug.compile(program)(x)) == parts(program(x)) == ["-0.0"] * 4
