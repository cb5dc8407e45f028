"""Packages of graphs with torch.cond and loops: how they run, and what is refused. Calls are in test_export_cpp.py."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.cli.exporting import ExportError
from ptdebug.cli.main import main
from ptdebug.dependencies import msgspec
from ptdebug.engine.graph_cache.flow import COND, SCAN, WHILE, Flow, Graph, Step, halves, over, with_halves
from ptdebug.engine.graph_cache.half import Half
from ptdebug.tracer.frames import dispatch
from torch._higher_order_ops.while_loop import while_loop


def test_no_result_is_what_was_given() -> None:
    """As torch demands of its operators: a write to the one does not change the other."""
    def doubled(x: torch.Tensor) -> list[torch.Tensor]:
        return [x * 2]

    def below(x: torch.Tensor) -> list[torch.Tensor]:
        return [x.sum() < 4]

    graphs = (Graph(), Graph())
    loop = over(Flow(1, 2, graphs, (Step(WHILE, (0, 1), (0,), (1,), carried=1),), (1,)), [below, doubled])
    branch = over(Flow(2, 3, graphs, (Step(COND, (0, 1), (0, 1), (2,)),), (2,)), [lambda x: [x], doubled])
    x = torch.full((2, 3), 1.0).t()
    for y in (loop(x)[0], branch(torch.tensor(True), x)[0]):
        assert torch.equal(x, y) and y.stride() == x.stride() and y.data_ptr() != x.data_ptr()
    assert torch.equal(branch(torch.tensor(False), x)[0], x * 2) and loop(x / 4)[0].sum() == 6
    rows = over(Flow(2, 4, graphs[:1], (Step(SCAN, (0,), (0, 1), (2, -1), carried=1, sliced=1),), (2,)),
                [lambda total, row: [total + row, row]])
    assert torch.equal(rows(torch.zeros(2), x)[0], x.sum(0))
    with pytest.raises(RuntimeError, match="without rows is given to scan"):
        rows(torch.zeros(2), x[:0])


def test_a_flow_inside_a_flow() -> None:
    """Its code is numbered in its place, and kept without its sources."""
    def code(name: str) -> Graph:
        return Graph(Half(name, {}, source="// C++"))

    inner = Flow(1, 1, (code("b"), code("c")), (), (0,))
    without = lambda half: msgspec.structs.replace(half, source="")
    flow = with_halves(Flow(1, 1, (code("a"), Graph(flow=inner), code("d")), (), (0,)), without)
    assert [graph.half and (graph.half.text, graph.half.source) for graph in halves(flow)] == [
        (name, "") for name in "abcd"]


class Writing(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
        def write(x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x.sum(0))
            return x + self.total

        return torch.cond(flag, write, lambda x: x - self.total, (x,))


def seen_after(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    before = x.view(-1)
    y = torch.cond(flag, torch.sin, torch.cos, (x,))
    x.add_(y)
    return before * 2


def by_number(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x.sin()), (0, x))[1]


@pytest.mark.parametrize(("model", "why"), [
    (Writing(), "changes the tensor .*total.* in place.*\n.*return what is to be kept"),
    (seen_after, "view, which is changed in place, is used across a control-flow operator"),
    (by_number, "a loop that carries 0"),
], ids=["writing", "view", "number"])  # fmt: skip
def test_what_is_not_possible_is_told(model: Callable[..., Any], why: str) -> None:
    with pytest.raises(ExportError, match=why):
        ptdebug.export(model, (torch.randn(4, 4), torch.tensor(True)))


def test_sizes_are_read_on_both_sides_of_an_operator_and_in_it() -> None:
    """Also in a program that is compiled: it ran in eager."""
    def function(x: torch.Tensor, flag: torch.Tensor) -> Any:
        rows = x.shape[0]
        y = torch.cond(flag, lambda x: x.sin() / rows, lambda x: x.cos(), (x,))
        return y.view(rows, 2, 2) * rows, rows * 3, rows

    package = ptdebug.export(function, (torch.randn(3, 4), torch.tensor(True)), dynamic_shapes={"x": {0: "rows"}})
    program = package.program()
    compiled, before = ptdebug.compile(function), ptdebug.stats()["fallbacks"]
    with torch.no_grad():
        for rows in (3, 5, 6):
            x, flag = torch.randn(rows, 4), torch.tensor(rows == 5)
            (got, *numbers), (wanted, *right) = compiled(x, flag), function(x, flag)
            assert torch.allclose(got, wanted, atol=1e-6) and numbers == right
            assert torch.allclose(program(x, flag)[0], wanted, atol=1e-6) and list(program(x, flag)[1:]) == right
    assert ptdebug.stats()["fallbacks"] == before


def test_a_tensor_written_before_may_be_read_inside() -> None:
    """Also by a function inside of a function."""
    def function(x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
        total = x.sum(0)
        total.mul_(2)

        def outer(x: torch.Tensor) -> torch.Tensor:
            return torch.cond(flag, lambda x: x + total, lambda x: x - total, (x * 2,))

        return torch.cond(flag, outer, lambda x: x * 3, (x,))

    dispatch.reset()
    compiled, x = ptdebug.compile(function), torch.randn(3, 4)
    with torch.no_grad():
        for flag in (torch.tensor(True), torch.tensor(False)):
            assert torch.allclose(compiled(x, flag), function(x, flag))
    assert not ptdebug.stats()["reasons"]


SCRIPT = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x, flag):
        return torch.cond(flag, lambda x: self.linear(x), lambda x: x * 2, (x,))

model = Model().eval()
with torch.no_grad():
    model(torch.ones(3, 4), torch.tensor(True))
"""


def test_the_command_notes_the_calls_of_a_model_with_branches(tmp_path: Path) -> None:
    """In eager torch.cond is compiled by Dynamo, hooks of modules included."""
    (tmp_path / "script.py").write_text(SCRIPT)
    assert main(["export", f"{tmp_path / 'script.py'}:model", "-o", str(tmp_path / "m.ptd")]) == 0
    program = ptdebug.load(tmp_path / "m.ptd")
    assert torch.equal(program(torch.ones(3, 4), torch.tensor(False)), torch.full((3, 4), 2.0))
