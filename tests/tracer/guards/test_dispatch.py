"""optimize(): same results as eager, the expected recompilations and no others, and a frame that always runs."""
from __future__ import annotations

import functools
import logging
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from ptdebug.artifacts.context import CompileContext
from ptdebug.tracer.breaks.raised_errors import FullGraphError
from ptdebug.tracer.frames import dispatch
from ptdebug.tracer.fx.backend_call import CompileOptions
from ptdebug.tracer.runtime import eval_frame

from .compiles import Compiles, Keeping, same, scale

pytestmark = [pytest.mark.skipif(bool(eval_frame.unavailable()), reason=eval_frame.unavailable()),
              pytest.mark.usefixtures("fresh_start")]


def test_a_third_size_does_not_compile():
    compiles = Compiles()
    compiled = compiles(scale)
    for n in (3, 5, 7, 9):
        same(compiled, scale, torch.randn(n, 4))
    assert compiles.count == 2
    (reason,) = compiles.reasons
    assert (reason.guard, reason.expected, reason.actual) == ("L['x'].size()[0] == 3", "3", "5")
    assert reason.location.file == scale.__code__.co_filename and reason.compared_with.endswith("/0")


def test_dynamic_true_and_false():
    always, never = Compiles(dynamic=True), Compiles(dynamic=False)
    for compiles in (always, never):
        compiled = compiles(scale)
        for n in (3, 5, 7):
            same(compiled, scale, torch.randn(n, 4))
    assert (always.count, never.count) == (1, 3)


def test_marked_dimensions():
    compiles = Compiles()
    compiled = compiles(scale)
    for n in (3, 5):
        x = torch.randn(n, 4)
        x._dynamo_dynamic_indices = {0}
        same(compiled, scale, x)
    assert compiles.count == 1


BASE = {
    "x": (3, 4), "dtype": torch.float32, "grad": False, "factor": 2.0, "flag": True, "extra": None, "no_grad": False,
}
CHANGES = {
    "dtype": torch.float64, "grad": True, "factor": 3.0, "flag": False, "extra": {"bias": torch.ones(4)},
    "no_grad": True, "x": (5, 4), "transposed": True,
}


def run(compiled: Any, case: dict[str, Any]) -> None:
    x = torch.randn(case["x"], dtype=case["dtype"])
    if case.get("transposed"):
        x = x.t().contiguous().t()
    x.requires_grad_(case["grad"])
    with torch.set_grad_enabled(not case["no_grad"]):
        same(compiled, scale, x, case["factor"], case["flag"], extra=case["extra"])


@pytest.mark.parametrize("what", CHANGES)
def test_changing_one_thing_recompiles_once(what):
    compiles = Compiles()
    compiled = compiles(scale)
    changed = {**BASE, what: CHANGES[what]}
    for _ in range(2):
        run(compiled, BASE)
        run(compiled, changed)
    assert compiles.count == 2
    (reason,) = compiles.reasons
    assert reason.guard and reason.expected and reason.actual and reason.expected != reason.actual


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sets(st.sampled_from(sorted(set(CHANGES) - {"x"})), max_size=2), min_size=2, max_size=5))
def test_any_sequence_of_calls_equals_eager(sequence):
    dispatch.reset()
    compiles = Compiles(recompile_limit=3)
    compiled = compiles(scale)
    for changes in sequence:
        run(compiled, {**BASE, **{name: CHANGES[name] for name in changes}})
    distinct = len({frozenset(changes) for changes in sequence})
    assert compiles.count <= min(3, distinct)


def test_the_limit_is_said_once_and_the_rest_runs_in_eager(caplog):
    compiles = Compiles(recompile_limit=2, dynamic=False)
    compiled = compiles(scale)
    with caplog.at_level(logging.WARNING, logger="ptdebug"):
        for factor in range(6):
            same(compiled, scale, torch.randn(3), float(factor + 2))
    assert compiles.count == 2
    assert len(caplog.records) == 1 and "was compiled 2 times" in caplog.text
    same(compiled, scale, torch.randn(3), 2.0)  # what was compiled is still used
    assert sum(r.calls for r in dispatch.runtimes().values()) >= 3


def test_entries_are_counted():
    compiles = Compiles()
    compiled = compiles(scale)
    for _ in range(3):
        compiled(torch.randn(3))
    compiled(torch.randn(3), 4.0)
    (compile_id, *_), = [r for r in compiles.recorder.ends if r[0].endswith("/0")]
    assert dispatch.runtimes()[compile_id].calls == 3
    stats = dispatch.stats()
    assert stats["graphs"] == 2 and stats["recompiles"] == 1 and stats["graph_breaks"] == 0
    assert any("factor" in reason for reason in stats["reasons"])


def test_records():
    compiles = Compiles()
    compiles(scale)(torch.randn(3, 4))
    stages = {stage: record for _, stage, _, record in compiles.recorder.records}
    frame = stages["frame"]
    assert frame.function == "scale" and frame.file == scale.__code__.co_filename and frame.status == "compiled"
    assert [a.name for a in frame.arguments] == ["x", "factor", "flag", "extra"]
    assert frame.arguments[0].tensor.shape == (3, 4) and frame.arguments[1].value == "2.0"
    assert frame.stack[-1].function == "test_records"
    assert {g.source for g in stages["guards"].guards} >= {"L['x']", "L['factor']", "global state"}


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        self.steps = 0

    def forward(self, x):
        return self.net(x).relu()

    def helper(self, x):
        return self.forward(x) * 2


@pytest.mark.parametrize("call", ["__call__", "forward", "helper"])
def test_methods_of_modules(call):
    compiles, model = Compiles(), Model()
    compiled = compiles(getattr(model, call))
    for n in (3, 3, 5):
        same(compiled, getattr(model, call), torch.randn(n, 4))
    assert compiles.count == 2
    model.net[2] = torch.nn.Identity()
    same(compiled, getattr(model, call), torch.randn(3, 4))
    assert compiles.count == 3


@pytest.mark.parametrize("function", [torch.sin, functools.partial(torch.add, alpha=2), torch.nn.functional.softplus,
                                      torch.nn.Linear(4, 4).__call__])
def test_other_callables(function):
    compiles = Compiles()
    compiled = compiles(function)
    args = (torch.randn(2, 4), torch.randn(2, 4)) if isinstance(function, functools.partial) else (torch.randn(2, 4),)
    same(compiled, function, *args)
    same(compiled, function, *args)
    assert compiles.count <= 1


def test_two_options_do_not_share_entries():
    first, second = Compiles(), Compiles()
    a, b = first(scale), second(scale)
    x = torch.randn(3)
    for _ in range(2):
        same(a, scale, x)
        same(b, scale, x)
    assert (first.count, second.count) == (1, 1)
    assert not first.reasons and not second.reasons


def test_nested_compiled_functions():
    inner = Compiles()(scale)

    def outer(x):
        return inner(x) + 1

    compiles = Compiles()
    same(compiles(outer), lambda x: scale(x) + 1, torch.randn(3))


def test_disable():
    def plain(x):
        return x * 3

    hidden = dispatch.disable(plain)

    def outer(x):
        return hidden(x + 1) + 1

    compiles = Compiles()
    same(compiles(outer), lambda x: (x + 1) * 3 + 1, torch.randn(3))
    assert all("mul" not in str(g.module.code) for g in compiles.graphs)
    assert hidden.__name__ == "plain"


def test_a_stance_of_eager():
    compiles = Compiles()
    compiled = compiles(scale)
    assert dispatch.set_stance("force_eager") == "default"
    try:
        same(compiled, scale, torch.randn(3))
    finally:
        assert dispatch.set_stance("default") == "force_eager"
    assert compiles.count == 0


def test_fullgraph():
    def breaks(x):
        print("", end="")
        return x + 1

    with pytest.raises(FullGraphError, match="one graph"):
        Compiles(fullgraph=True)(breaks)(torch.randn(3))
    same(Compiles(fullgraph=True)(scale), scale, torch.randn(3))


def test_exceptions_of_the_program_pass():
    def fails(x, n):
        y = x + 1
        if n > 2:
            raise KeyError("mine")
        return y.view(n, 5)

    compiled = Compiles()(fails)
    for n in (2, 3):
        with pytest.raises(Exception) as eager:
            fails(torch.randn(4), n)
        for _ in range(2):
            with pytest.raises(type(eager.value)) as ours:
                compiled(torch.randn(4), n)
            assert str(ours.value) == str(eager.value)
    assert eval_frame.current_callback() is None


def test_a_compilation_that_the_stack_is_too_deep_for_is_left_out_and_said(caplog):
    def backend(captured, context):
        return backend(captured, context)

    recorder = Keeping()
    make = lambda i: CompileContext(i, recorder=recorder, recording=True)
    compiled = dispatch.optimize(scale, CompileOptions(backend, make_context=make))
    with caplog.at_level(logging.WARNING, logger="ptdebug"):
        same(compiled, scale, torch.randn(3))
    assert not caplog.records
    assert {end[1:] for end in recorder.ends} == {("skipped", "Python's stack is too deep here to trace it")}


def nested(x, n):
    for _ in range(200):
        n = min(50, n + 1) * 2 % 97
    return x + n


def shared(x, n):
    numbers = [n, n + 3, 5]
    for _ in range(8):
        numbers.append(min(numbers) % 4 - 1)
        numbers.append(max(numbers) // 3 + min(numbers))
    return x * numbers[-1]


@pytest.mark.parametrize("function", [nested, shared])
def test_a_number_whose_formula_grows_without_end_is_fixed(function):
    compiles = Compiles()
    compiled = compiles(function)
    for n in (3, 5, 7, -4, 5):
        same(compiled, function, torch.ones(2), n)
    assert compiles.count == 4  # one for each number


def test_a_size_that_is_marked_dynamic_is_not_fixed_by_a_formula_that_grows():
    def function(x):
        n = x.size(0)
        for _ in range(200):
            n = min(50, n + 1) * 2 % 97
        return x + n

    compiles = Compiles()
    compiled = compiles(function)
    for n in (3, 5):
        x = torch.ones(n)
        torch._dynamo.mark_dynamic(x, 0)
        same(compiled, function, x)
    reasons = {reason for _, status, reason in compiles.recorder.ends if status == "skipped"}
    assert compiles.count == 0 and len(reasons) == 1 and "a number with a formula of more than" in reasons.pop()


def test_an_error_of_the_backend_is_ours_not_the_programs(caplog):
    def backend(captured, context):
        raise ZeroDivisionError("backend bug")

    recorder = Keeping()
    make = lambda i: CompileContext(i, recorder=recorder, recording=True)
    compiled = dispatch.optimize(scale, CompileOptions(backend, make_context=make))
    with caplog.at_level(logging.WARNING, logger="ptdebug"):
        same(compiled, scale, torch.randn(3))
    assert "internal error of ptdebug (ZeroDivisionError: backend bug)" in caplog.text
    (_, status, reason), = [e for e in recorder.ends if "ZeroDivisionError" in e[2]]
    assert status == "eager" and "in backend" in reason


def test_a_cached_entry_keeps_no_tensor_alive():
    import gc
    import weakref

    compiles = Compiles()
    compiled = compiles(scale)
    x = torch.randn(3)
    gone = weakref.ref(x)
    compiled(x)
    compiles.graphs.clear()
    del x
    gc.collect()
    assert gone() is None


def test_frames_without_tensors_are_left_alone():
    calls = []

    def count(n):
        calls.append(n)
        return n + 1

    def outer(x):
        print("", end="")  # a break: what follows runs as frames of its own
        return x * count(2)

    compiles = Compiles()
    compiled = compiles(outer)
    for _ in range(3):
        same(compiled, outer, torch.ones(3))
    assert calls.count(2) == 6
    assert not any(record.function.endswith("count") for _, stage, _, record in compiles.recorder.records
                   if stage == "frame")


def test_reset_compiles_again():
    compiles = Compiles()
    compiled = compiles(scale)
    compiled(torch.randn(3))
    dispatch.reset()
    assert dispatch.stats()["graphs"] == 0
    compiled(torch.randn(3))
    assert compiles.count == 2
