"""What a call does, decided from addresses and from who holds what: no tensor is needed."""
from __future__ import annotations

from ptdebug.engine.runtime.cuda_graphs.policy import (
    IN_USE,
    LATER_IN_USE,
    SAVED_IN_USE,
    WARM_UP,
    Capture,
    Input,
    Launch,
    Limits,
    Policy,
    Record,
    Replay,
    Result,
)

RESULTS = (Result(64),)
WEIGHT, SMALL, LARGE = Input("weight", 1 << 30, steady=True), Input("x", 64), Input("cache", 1 << 24)


class Calls:
    """Calls of a graph, whose captures are made when the policy asks for one."""

    def __init__(self, *inputs, results=RESULTS, **limits):
        self.policy = Policy(inputs, Limits(**limits))
        self.results, self.used, self.blocked = results, {}, set()

    def __call__(self, *addresses):
        action = self.policy.decide(
            addresses, lambda capture: self.used.get(capture, ()), lambda capture: capture not in self.blocked)
        if isinstance(action, Record):
            fixed = {k: address for k, address in enumerate(addresses) if k not in action.copied}
            self.policy.recorded(Capture(fixed, action.copied, self.results), action)
        return action


def kinds(calls, *all_addresses):
    return [type(calls(*addresses)) for addresses in all_addresses]


def test_warm_up_tells_what_moves():
    calls = Calls(WEIGHT, SMALL)
    assert [calls(1, k) for k in (10, 11)] == [Launch(WARM_UP)] * 2
    assert calls(1, 12).copied == {1} and kinds(calls, (1, 13), (1, 14)) == [Replay, Replay]


def test_what_stays_is_copied_when_it_moves_and_large_inputs_when_they_move_twice():
    calls = Calls(WEIGHT, SMALL, LARGE)
    assert kinds(calls, (1, 2, 3), (1, 2, 3), (1, 2, 3), (1, 2, 3)) == [Launch, Launch, Record, Replay]
    again = calls(1, 20, 3)
    assert again.copied == {1} and again.moved == (1,) and again.replaces is not None
    assert calls(1, 21, 30).copied == {1} and calls(1, 21, 31).copied == {1, 2}
    assert kinds(calls, (1, 22, 32)) == [Replay] and len(calls.policy.captures) == 1


def test_each_set_of_parameters_has_a_capture_when_it_comes_again():
    calls = Calls(WEIGHT, places=3)
    assert kinds(calls, (1,), (1,), (1,), (2,), (3,)) == [Launch, Launch, Record, Launch, Launch]
    assert kinds(calls, (2,), (3,)) == [Record, Record]
    assert kinds(calls, (1,), (2,), (3,)) == [Replay] * 3
    assert calls(4).why == "an input has moved: weight" and "more than 3" in calls(4).why


def test_results_in_use():
    calls = Calls(SMALL)
    kinds(calls, (1,), (1,), (1,))
    (capture,) = calls.policy.captures
    calls.used[capture] = [0]
    assert calls(1) == Launch(IN_USE) and calls.policy.cloned == {0}
    del calls.used[capture]
    assert kinds(calls, (1,)) == [Replay]
    calls.used[capture] = [0]  # lent before
    assert calls(1) == Launch(IN_USE) and calls(1).replaces is capture
    calls.policy.forget()
    assert not calls.policy.cloned


def test_large_results_and_saved_ones_get_a_second_capture_and_no_third():
    for results, why in (((Result(1 << 30),), IN_USE), ((Result(8, saved=True),), SAVED_IN_USE)):
        calls = Calls(SMALL, results=results)
        kinds(calls, (1,), (1,), (1,))
        calls.used[calls.policy.captures[0]] = [0]
        second = calls(1)
        assert second.apart and second.why == why and second.replaces is None
        assert calls(1) == Replay(calls.policy.captures[1])
        calls.used[calls.policy.captures[1]] = [0]
        assert calls(1) == Launch(why) and len(calls.policy.captures) == 2
        assert calls.policy.cloned == (set() if results[0].saved else {0})


def test_a_capture_whose_temporaries_are_results_of_another_is_made_again():
    calls = Calls(SMALL)
    kinds(calls, (1,), (1,), (1,))
    (capture,) = calls.policy.captures
    calls.blocked.add(capture)
    assert calls(1) == Launch(LATER_IN_USE) and calls(1).replaces is capture and kinds(calls, (1,)) == [Replay]


def test_captures_are_bounded():
    calls = Calls(LARGE, SMALL, recordings=4)
    kinds(calls, (1, 1), (1, 1), (1, 1))
    calls.policy.copied.clear()
    made = 0
    for k in range(40):
        calls.policy.copied.clear()
        made += isinstance(calls(k, k), Record)
    assert made == 4 and "inputs moved too often" in calls(99, 99).why
