"""The tracer's limits and the frames that it leaves alone: each is a decision, which an override changes."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.artifacts.decision_kinds import problem
from ptdebug.artifacts.records import Decision
from ptdebug.tracer.frames import dispatch
from ptdebug.tracer.fx.backend_call import CompileOptions

from .test_decisions import Decisions


def run(function: Callable[..., Any], calls: list[tuple[Any, ...]], overrides: dict[str, str], limit: int = 8,
        ) -> tuple[dict[str, Decision], dict[str, int]]:
    """The decisions of calls of a compiled function, which give eager's values, and how much was compiled."""
    dispatch.reset()
    assert not any(problem(name, option) for name, option in overrides.items())
    keeping = Decisions()
    options = CompileOptions(lambda captured, _: captured.module.forward,
                             lambda i: CompileContext(i, keeping, overrides, recording=True), recompile_limit=limit,
                             dynamic=False)
    compiled = dispatch.optimize(function, options)
    with torch.no_grad():
        for arguments in calls:
            torch.testing.assert_close(compiled(*arguments), function(*arguments))
    return {d.kind: d for d in keeping.made}, dict(dispatch.stats())


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * x.shape[0]


@pytest.mark.parametrize(("limit", "graphs"), [(None, 3), ("1", 1), ("2", 2), ("20", 5)])
def test_how_often_a_function_is_compiled(limit: str | None, graphs: int) -> None:
    overrides = {"recompile-limit:scaled@*": limit} if limit else {}
    made, stats = run(scaled, [(torch.randn(n),) for n in range(2, 7)], overrides, limit=3)
    assert stats["graphs"] == graphs
    decision = made["recompile-limit"]
    assert decision.id.startswith("recompile-limit:scaled@test_limits.py:") and decision.default == "3"
    assert (decision.chosen, decision.forced) == (limit or "3", limit is not None)


def deep(x: torch.Tensor, n: int) -> torch.Tensor:
    return x + 1 if n == 0 else deep(x * 0.5, n - 1) + n


def test_how_deep_calls_are_inlined() -> None:
    call = (torch.randn(3), 6)
    made, stats = run(deep, [call], {})
    assert stats["graphs"] == 1 and "inline-depth" not in made
    made, stats = run(deep, [call], {"inline-depth:deep@*": "4"})
    assert stats["graph_breaks"] >= 1
    assert made["inline-depth"].chosen == "4" and made["inline-depth"].default == "80"
    made, stats = run(deep, [(torch.randn(3), 90)], {"inline-depth:deep@*": "100"})
    assert stats["graphs"] == 1 and stats["graph_breaks"] == 0
    made, _ = run(deep, [(torch.randn(3), 90)], {})
    assert "reached" in made["inline-depth"].why and not made["inline-depth"].forced


def turns(x: torch.Tensor, n: int) -> torch.Tensor:
    while n > 0:
        n -= 1
    return x + n


def test_how_long_a_frame_is_traced() -> None:
    call = (torch.randn(3), 60)
    _, stats = run(turns, [call], {})
    assert stats["graphs"] == 1
    made, stats = run(turns, [call], {"trace-limit:turns@*": "50"})
    assert stats["graphs"] == 0 and made["trace-limit"].chosen == "50"


def test_the_limit_is_recorded_where_it_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptdebug.tracer.interpreter.limits.MOST_WORK", 50)
    made, stats = run(turns, [(torch.randn(3), 60)], {})
    assert stats["graphs"] == 0
    name = made["trace-limit"].id
    assert "reached" in made["trace-limit"].why
    made, stats = run(turns, [(torch.randn(3), 60)], {name: "1000"})
    assert stats["graphs"] == 1 and made["trace-limit"].forced


class Called:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __getattr__(self, name: str) -> Any:
        x = torch.ones(3) * 2
        return x + 1


def broken(x: torch.Tensor) -> torch.Tensor:
    return x + Called(2.0).other


def test_a_frame_that_is_left_alone_can_be_compiled() -> None:
    line = Called.__getattr__.__code__.co_firstlineno
    name = f"frame:Called.__getattr__@test_limits.py:{line}"
    outer = f"frame:broken@test_limits.py:{broken.__code__.co_firstlineno}"

    def graphs(overrides: dict[str, str]) -> tuple[dict[str, Decision], int]:
        dispatch.reset()
        found = Called.__getattr__  # what was left alone once is not looked at again: each run has code of its own
        found.__code__ = found.__code__.replace()
        keeping = Decisions()
        options = CompileOptions(lambda captured, _: captured.module.forward,
                                 lambda i: CompileContext(i, keeping, overrides, recording=True),
                                 overrides=lambda: overrides)
        compiled = dispatch.optimize(broken, options)
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x), broken(x))
        return {d.id: d for d in keeping.made}, dispatch.stats()["graphs"]

    made, before = graphs({outer: "eager"})
    assert name not in made and before == 0
    made, after = graphs({outer: "eager", name: "compile"})
    assert after == 1 and made[name].forced and made[name].default == "eager" and "special method" in made[name].why
    made, after = graphs({outer: "eager", "frame:Called*": "compile"})
    assert after == 0
