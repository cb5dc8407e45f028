"""A few random programs with fresh seeds: `fuzz.py` runs as many as one likes."""
from __future__ import annotations

import os
import random
import time

import pytest
import torch

from . import fuzz_workers
from .checking import leaves
from .differ import Difference, compared, difference, observe, outcome
from .fuzz_workers import Outcome
from .generate import program
from .prelude import MARK, PRELUDE

_SECONDS = 20.0  # of processor time
_COUNT = 200


@pytest.mark.slow  # one to four programs in a hundred still differ; CI takes this in when none does
def test_programs_of_fresh_seeds_are_the_same_compiled():
    first = int(os.environ.get("PTDEBUG_FUZZ_SEED", random.SystemRandom().randrange(10**9)))
    start = time.process_time()
    for seed in range(first, first + _COUNT):
        if time.process_time() - start > _SECONDS:
            break
        found = difference(program(seed))
        if found is not None:
            pytest.fail(f"python tests/programs/fuzz.py --only {seed}\n{found.kind}\n{found.detail}")


@pytest.mark.parametrize("seed", range(20))
def test_known_programs_are_the_same_compiled(seed):
    assert difference(program(seed)) is None


@pytest.mark.parametrize("seed", [0, 500])
def test_a_seed_gives_the_same_program_again(seed):
    assert program(seed) == program(seed)
    assert program(seed) != program(seed + 1)


def test_what_nests_deeper_than_the_stack_is_compared():
    value = innermost = ["x"]
    for _ in range(5000):
        value = [value, 1]
    found = leaves([value, innermost], "result", {})
    assert len(found) == 2 + 2 * 5000 + 2 and found[-2] == ("result.0" + ".1", 1)
    assert found[-1] == ("result.1", ("again", "result.0" + ".0" * 5000))


def test_each_exception_of_a_chain_is_told_with_its_place_in_it():
    def fails():
        error = KeyError(0)
        for i in range(3000):
            outer = ValueError(i)
            outer.__cause__ = outer.__context__ = error
            error = outer
        raise error

    word, first, second, *rest = outcome(fails, ())
    assert (word, first[:3], second[:3]) == (
        "raised", ["", "ValueError", "2999"], ["cause of 0", "ValueError", "2998"])
    assert len(rest) == 2999 and rest[-1][:3] == ["cause of 2999", "KeyError", "0"]


_SEES = """
def f(x):
    {line}

def make_calls():
    x = torch.ones(2, 3)
    return [(x,)]
"""


@pytest.mark.parametrize("place, eager, compiled", [
    ("a note of an exception",
     "e = ValueError(); e.add_note('a'); raise e", "e = ValueError(); e.add_note('b'); raise e"),
    ("a default", "remember('k', 1)", "remember('k', 2)"),
    ("an item that a generator still has", "return numbers(2)", "return numbers(3)"),
    ("a variable that a function has in its cell", "return make_counter(1)", "return make_counter(2)"),
    ("a gradient", "x.grad = x * 2", "x.grad = x * 3"),
    ("an attribute of a tensor", "x.mark = 1", "x.mark = 2"),
    ("a setting of torch", "pass", "torch.set_default_dtype(torch.float64)"),
])  # fmt: skip
def test_what_is_compared(place, eager, compiled):
    one, other = (observe(PRELUDE + MARK + _SEES.format(line=line), lambda f: f) for line in (eager, compiled))
    torch.set_default_dtype(torch.float32)
    assert isinstance(compared(one, other, False), Difference), place


@pytest.mark.parametrize("first, again, expected", [
    (-24, ([Outcome(7)], None), Outcome(7)),
    (-24, ([Outcome(7, "kind")], None), Outcome(7, "kind")),
    (-24, ([], "eager"), Outcome(7, skipped="eager ends the process: out of time or memory")),
    (-24, ([], "compiled"), Outcome(7, "compiled ends the process: out of time or memory")),
    (-11, ([Outcome(7)], None), Outcome(7, "after other programs only: worker ends: SIGSEGV")),
])  # fmt: skip
def test_a_program_whose_worker_ended_is_judged_by_a_run_of_its_own(monkeypatch, first, again, expected):
    def death(code, run):
        return fuzz_workers._Death(7, run, fuzz_workers._how(code, ""), "")

    found, run = again
    ended = death(first, run) if run else None
    monkeypatch.setattr(fuzz_workers, "_worker", lambda *_: (found, ended))
    assert fuzz_workers._alone(death(first, "compiled"), 0) == expected
