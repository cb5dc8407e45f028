"""The frame hook: entries are found by their guards, verdicts do what they say, threads are apart."""
from __future__ import annotations

import gc
import threading
import types
from typing import Any

import pytest
import torch._C._dynamo.guards as cpp
from ptdebug.operators.dynamo_stubs import guard_manager_type, without_dynamo
from ptdebug.tracer.runtime import eval_frame

pytestmark = pytest.mark.skipif(bool(eval_frame.unavailable()), reason=eval_frame.unavailable())


def fresh(function: Any) -> Any:
    """A copy with a code object of its own, so that tests do not share entries."""
    return types.FunctionType(function.__code__.replace(), function.__globals__, function.__name__)


def helper(x):
    return x * 2


def add(x, y):
    return helper(x) + y


def subtract(x, y):
    return helper(x) - y


def tree(code: types.CodeType, name: str, value: Any, compile_id: str = "0/0") -> eval_frame.EntryGuards:
    with without_dynamo():
        root = cpp.RootGuardManager()
        root.framelocals_manager(
            key=(name, eval_frame.local_indices(code)[name]), source=name, example_value=value,
            guard_manager_enum=guard_manager_type().GUARD_MANAGER,
        ).add_equals_match_guard(value, ["0"], None)
    return eval_frame.EntryGuards(root, (), compile_id)


class Callback:
    """Installs `subtract`'s code for each new value of `y`; remembers what it was asked."""

    def __init__(self, verdict: Any = None) -> None:
        self.asked: list[str] = []
        self.verdict = verdict
        self.guards: list[eval_frame.EntryGuards] = []

    def __call__(self, frame: Any, entry: Any, state: dict[Any, Any]) -> Any:
        self.asked.append(frame.f_code.co_name)
        if frame.f_code.co_name != "add":
            return eval_frame.EAGER_ONCE
        if self.verdict is not None:
            return self.verdict
        self.guards.append(tree(frame.f_code, "y", frame.f_locals["y"], f"0/{len(self.guards)}"))
        return eval_frame.install(subtract.__code__, self.guards[-1])


def call(callback: Any, function: Any, *args: Any) -> Any:
    before = eval_frame.set_callback(callback)
    try:
        return function(*args)
    finally:
        assert eval_frame.set_callback(before) is callback


def test_an_entry_serves_the_calls_that_its_guards_accept():
    function, callback = fresh(add), Callback()
    assert [call(callback, function, 5, y) for y in (3, 3, 4, 4, 3)] == [7, 7, 6, 6, 7]
    assert callback.asked.count("add") == 2
    assert [e.compile_id for e in eval_frame.entries(function.__code__)] == ["0/0", "0/1"]
    assert function(5, 3) == 13  # without the callback, as written


def test_an_invalidated_entry_is_not_used_again():
    function, callback = fresh(add), Callback()
    call(callback, function, 5, 3)
    callback.guards[0].invalidate("gone")
    assert eval_frame.entries(function.__code__) == []
    assert call(callback, function, 5, 3) == 7 and callback.asked.count("add") == 2


def test_an_entry_goes_with_what_it_watches():
    function, callback = fresh(add), Callback()
    call(callback, function, 5, 3)
    watched = helper.__class__(helper.__code__, {})
    callback.guards[0].watch([watched, 5, (1, 2)], lambda value: "the helper")
    assert eval_frame.entries(function.__code__)
    del watched
    gc.collect()
    assert callback.guards[0].dead == "the helper is gone" and not eval_frame.entries(function.__code__)


def test_entries_of_one_callback_are_not_used_by_another():
    function, first, second = fresh(add), Callback(), Callback(eval_frame.EAGER_ONCE)
    assert call(first, function, 5, 3) == 7 and call(second, function, 5, 3) == 13
    assert call(first, function, 5, 3) == 7 and first.asked.count("add") == 1


@pytest.mark.parametrize(("verdict", "asked"), [
    (eval_frame.EAGER_ONCE, ["add", "helper", "add", "helper"]),
    (eval_frame.EAGER_ONCE_WITH_CALLEES, ["add", "add"]),
    (eval_frame.SKIP, ["add", "helper", "helper"]),
    (eval_frame.SKIP_WITH_CALLEES, ["add"]),
    (eval_frame.CACHED_ONLY, ["add"]),
    (eval_frame.CACHED_ONLY_HERE, ["add", "helper", "helper"]),
])
def test_verdicts(verdict, asked):
    function, callback = fresh(add), Callback(verdict)
    assert [call(callback, function, 5, 3) for _ in range(2)] == [13, 13]
    assert callback.asked == asked


def test_cached_only_still_uses_entries():
    function, callback = fresh(add), Callback()
    call(callback, function, 5, 3)
    callback.verdict = eval_frame.CACHED_ONLY
    assert [call(callback, function, 5, y) for y in (4, 4, 3)] == [14, 14, 7]


def test_unobserved_hides_all_below_and_counts():
    callback = Callback()
    hidden = eval_frame.unobserved(fresh(add))
    assert call(callback, lambda: [hidden(5, 3), hidden(5, y=4), add(1, 1)]) == [13, 14, 1]
    assert eval_frame.calls_of(hidden) == [2] and not hidden.__dict__
    assert callback.asked.count("add") == 1
    eval_frame.reset_code(add.__code__)


def test_the_callback_is_off_while_it_runs():
    function, seen = fresh(add), []

    def callback(frame, entry, state):
        seen.append(frame.f_code.co_name)
        assert eval_frame.current_callback() is None
        helper(1)
        return eval_frame.EAGER_ONCE

    call(callback, function, 5, 3)
    assert seen == ["add", "helper"]


def test_an_exception_of_the_frame_leaves_the_callback_in_order():
    callback = Callback()

    def fails(x, y):
        raise KeyError(x)

    with pytest.raises(KeyError):
        call(callback, fails, 1, 2)
    assert eval_frame.current_callback() is None


def test_threads_have_callbacks_of_their_own():
    function, callback, results = fresh(add), Callback(), []
    thread = threading.Thread(target=lambda: results.append((function(5, 3), eval_frame.current_callback())))
    call(callback, lambda: (thread.start(), thread.join()))
    assert results == [(13, None)] and callback.asked.count("add") == 0


def test_reset_forgets():
    function, callback = fresh(add), Callback()
    call(callback, function, 5, 3)
    eval_frame.reset_code(function.__code__)
    assert eval_frame.entries(function.__code__) == []


def test_local_indices_know_cells():
    cell = 3

    def function(a, b):
        c = a
        return lambda: (b, c, cell)

    assert set(eval_frame.local_indices(function.__code__)) == {"a", "b", "c", "cell"}
