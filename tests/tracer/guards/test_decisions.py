"""What the tracer chooses goes through `decide`: it is recorded, and an override flips it without changing values."""
from __future__ import annotations

from typing import Any

import pytest
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.artifacts.records import Decision
from ptdebug.tracer.frames import dispatch
from ptdebug.tracer.fx.backend_call import CompileOptions


class Decisions:
    """A recorder that keeps decisions only."""

    def __init__(self) -> None:
        self.made: list[Decision] = []

    def decision(self, compile_id: str, decision: Decision) -> None:
        self.made.append(decision)

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


def helper(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


def program(x: torch.Tensor) -> torch.Tensor:
    return helper(x * 2) * 3


def run(overrides: dict[str, str]) -> tuple[list[Decision], dict[str, int]]:
    """Call a fresh copy of `program` with three sizes; its decisions, and how many graphs and breaks there were."""
    dispatch.reset()
    keeping = Decisions()

    def context(compile_id: Any) -> CompileContext:
        return CompileContext(compile_id, keeping, overrides, recording=True)

    options = CompileOptions(lambda captured, _: captured.module.forward, context)
    compiled = dispatch.optimize(program, options)
    with torch.no_grad():
        for size in (3, 4, 5):
            x = torch.randn(size)
            torch.testing.assert_close(compiled(x), program(x))
    stats = dispatch.stats()
    return keeping.made, {name: stats[name] for name in ("graphs", "graph_breaks")}


@pytest.mark.parametrize(("overrides", "expected"), [
    ({}, {"graphs": 2, "graph_breaks": 0}),
    ({"dynamic:*": "number"}, {"graphs": 3, "graph_breaks": 0}),
    ({"dynamic:L['x'].size()[0]": "symbol"}, {"graphs": 1, "graph_breaks": 0}),
    ({"inline:helper@*": "break"}, {"graphs": 6, "graph_breaks": 2}),  # in each of two compilations
])
def test_overrides_of_the_tracer(overrides: dict[str, str], expected: dict[str, int]) -> None:
    made, counts = run(overrides)
    assert counts == expected
    forced = {d.id for d in made if d.forced}
    assert bool(forced) == bool(overrides)


def test_decisions_say_what_was_chosen_and_why() -> None:
    made, _ = run({})
    sizes = [(d.chosen, d.why) for d in made if d.kind == "dynamic"]
    assert sizes == [
        ("number", "it has not changed so far"), ("symbol", "it had another value at an earlier compilation"),
    ]
    assert {d.subject.partition("@")[0] for d in made if d.kind == "frame"} == {"program"}
    assert {d.subject.partition("@")[0] for d in made if d.kind == "inline"} == {"helper"}


def test_a_frame_can_be_left_to_eager() -> None:
    _, counts = run({"frame:program@*": "eager", "frame:helper@*": "eager"})
    assert counts == {"graphs": 0, "graph_breaks": 0}


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * 2 + self.calls


def test_a_counter_of_a_module_compiles_twice_and_not_for_each_value() -> None:
    dispatch.reset()
    module = Counting()
    compiled = dispatch.optimize(module.forward, CompileOptions(lambda captured, _: captured.module.forward))
    for call in range(1, 6):
        assert compiled(torch.ones(2)).tolist() == [2.0 + call] * 2
    assert module.calls == 5
    assert dispatch.stats()["graphs"] == 2
