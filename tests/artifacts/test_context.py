"""What the compiler hands over, and that handing over never costs a compilation."""
from __future__ import annotations

from typing import Any

import pytest
from ptdebug.artifacts.context import CompileContext, CompileId, Stage, run_stages
from ptdebug.artifacts.decision_kinds import problem
from ptdebug.artifacts.function_times import FunctionTimes
from ptdebug.artifacts.recorder import NullRecorder
from ptdebug.artifacts.records import Graph, Node, NodeRef
from ptdebug.artifacts.subgraph_recorder import PartRecorder


class Kept(NullRecorder):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], Any] = {}
        self.missing: dict[str, str] = {}

    def record(self, compile_id: str, stage: str, name: str, record: Any) -> None:
        self.records[stage, name] = record

    def absent(self, compile_id: str, stage: str, why: str) -> None:
        self.missing[stage] = why


def test_an_error_in_describing_costs_the_record_only() -> None:
    kept = Kept()
    context = CompileContext(CompileId(0, 0), kept, recording=True)

    def broken(value: int) -> Any:
        raise KeyError("no such node")

    stages = [
        Stage("passes", lambda v, c: v + 1, broken, "passes"),
        Stage("loops", lambda v, c: v * 2, lambda v: (), "loops"),
    ]
    assert run_stages(stages, 1, context) == 4
    assert "KeyError: 'no such node'" in kept.missing["passes"]


def test_what_was_described_before_an_error_is_kept() -> None:
    kept = Kept()

    def broken() -> Any:
        yield "passes", "00", Graph("first", ())
        raise KeyError("no such node")

    CompileContext(CompileId(0, 0), kept, recording=True).describe("passes", broken)
    assert kept.records == {("passes", "00"): Graph("first", ())} and "KeyError" in kept.missing["passes"]


def test_records_of_a_part_with_arguments_of_all_forms() -> None:
    kept = Kept()
    node = Node("conv", "call_function", "aten.convolution", (NodeRef("x"), [1, 1], None), origins=("forward#relu",))
    PartRecorder(kept, "backward").record("0/0", "passes", "00", Graph("g", (node,)))
    assert kept.records["passes", "backward.00"].nodes[0].args == (NodeRef("x"), [1, 1], None)
    assert kept.records["passes", "backward.00"].nodes[0].origins == ("backward#relu",)


def test_a_part_of_a_part_refers_to_artifacts_of_its_own() -> None:
    kept = Kept()
    outer = CompileContext(CompileId(0, 0), kept, recording=True).for_part("cond_1_0", "inner_0.")
    inner = outer.for_part("cond_3_1", "inner_1.")
    origins = "capture#sin", "forward#sin", "joint#sin", "loop_ir:buf0#t1", "bytecode#4"
    node = Node("y", "call_function", "f", origins=origins)
    inner.record("passes", lambda: Graph("g", (node,)), "00")
    inner.for_part("backward").record("passes", lambda: Graph("g", (node,)), "00")
    part = "cond_1_0.cond_3_1"
    assert kept.records["passes", f"{part}.00"].nodes[0].origins == (
        "capture#inner_0.inner_1.sin", f"forward:{part}#sin", f"joint:{part}#sin", f"loop_ir:{part}.buf0#t1",
        "bytecode#4")
    assert kept.records["passes", f"{part}.backward.00"].nodes[0].origins == (
        "capture#inner_0.inner_1.sin", f"backward:{part}#sin", f"joint:{part}#sin", f"loop_ir:{part}.backward.buf0#t1",
        "bytecode#4")


def test_an_override_for_one_compilation():
    overrides = {"0/1:fuse:*": "separate", "fuse:a+b": "fuse", "*/2:compile:graph": "eager"}

    def chosen(compile_id: CompileId, kind: str, subject: str, options: tuple[str, str]) -> str:
        return CompileContext(compile_id, overrides=overrides).decide(kind, subject, options, options[0], "")

    assert chosen(CompileId(0, 1), "fuse", "a+b", ("fuse", "separate")) == "separate"
    assert chosen(CompileId(0, 0), "fuse", "a+b", ("fuse", "separate")) == "fuse"
    assert chosen(CompileId(3, 2), "compile", "graph", ("kernels", "eager")) == "eager"
    assert chosen(CompileId(3, 1), "compile", "graph", ("kernels", "eager")) == "kernels"
    assert not any(problem(name, option) for name, option in overrides.items())
    assert "there is no kind" in problem("0/1:fuze:*", "separate")


def test_function_times_count_recursion_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`own` leaves out what a function calls; the whole of a recursive one counts its outermost call."""
    now = iter([0.0, 1.0, 3.0, 4.0, 8.0, 10.0])
    monkeypatch.setattr("ptdebug.artifacts.function_times.time.perf_counter", lambda: next(now))

    def outer() -> None: ...

    def inner() -> None: ...

    times = FunctionTimes()
    first = times.enter(outer.__code__)
    second = times.enter(inner.__code__)
    times.leave(inner.__code__, second)  # 1 to 3
    third = times.enter(outer.__code__)
    times.leave(outer.__code__, third)  # 4 to 8
    times.leave(outer.__code__, first)  # 0 to 10
    assert [(t.function.rpartition(".")[2], t.calls, t.own_seconds, t.seconds) for t in times.records()] == [
        ("outer", 2, 8.0, 10.0), ("inner", 1, 2.0, 2.0)]
