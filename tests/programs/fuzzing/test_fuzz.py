"""Random programs, sixty with fresh seeds: `fuzz.py` runs as many as one likes."""
from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.overrides import BaseTorchFunctionMode

from ..checking import leaves
from . import fuzz_workers
from .differ import Difference, Skipped, compared, difference, observe, outcome, verdict
from .fuzz_workers import Outcome
from .generate import program
from .prelude import MARK, PRELUDE
from .shrink import shrink

FUZZ = Path(__file__).with_name("fuzz.py")
COUNT = 60  # of half a second each
ENGINE = 20  # every 20th is compiled to machine code


def _seed_of_the_source() -> int:
    """Other programs for each state of the sources, and the same for the same: what is red stays red until mended.
    Outside of a repository, new ones each time."""
    tree = ["git", "-C", FUZZ.parent, "rev-parse", "HEAD^{tree}"]
    told = subprocess.run(tree, capture_output=True, text=True, check=False)
    return int(told.stdout[:8], 16) if told.returncode == 0 else random.SystemRandom().randrange(10**9)


def test_programs_of_fresh_seeds_are_the_same_compiled():
    """A difference fails the run: nobody looks at what does not. What is printed is enough to have it again."""
    command = [FUZZ, "--count", COUNT, "--seed", _seed_of_the_source(), "--engine", ENGINE, "--shrink-seconds", 30]
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, check=False)
    again = " ".join(map(str, command[1:]))
    told = f"python tests/programs/fuzzing/fuzz.py {again}\n{done.stdout}\n{done.stderr[-2000:]}"
    if done.returncode:
        pytest.fail(told)
    (agree,) = re.findall(r"(\d+) agree, 0 differ", done.stdout)
    assert int(agree) >= 0.9 * COUNT, told


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


def test_the_nodes_of_checkpoints_and_graphs_may_have_other_names():
    eager = [("printed0", "t([1.], grad_fn=<CheckpointFunctionBackward>) t([2.], grad_fn=<CosBackward0>)")]
    for ours, same in (("Sin", True), ("Sin>, x=<", False)):
        got = eager[0][1].replace("CheckpointFunctionBackward", f"{ours}Backward0")
        assert (compared(eager, [("printed0", got)], False) is None) == same
    assert compared(eager, [("printed0", eager[0][1].replace("Cos", "Sin"))], False) is not None
    assert compared(eager, [("printed0", eager[0][1].replace("CosBackward0", "CompiledGraphBackward"))], False) is None


@pytest.mark.parametrize("error", ["RecursionError()", "MemoryError()", "RuntimeError(\"can't start new thread\")",
                                   "ValueError('maximum recursion depth exceeded')"])
def test_where_eager_runs_out_is_nobodys_promise(error):
    assert isinstance(verdict(PRELUDE + MARK + _SEES.format(line=f"raise {error}")), Skipped)


def test_where_a_recursion_without_end_is_told_as_another_error_is_nobodys_promise():
    line = """
    def deeper(n):
        try:
            deeper(n + 1)
        except RecursionError:
            raise ValueError(n)
    deeper(0)"""
    assert isinstance(verdict(PRELUDE + MARK + _SEES.format(line=line)), Skipped)


def test_a_program_begins_without_what_the_one_before_has_left():
    layer, x = torch.nn.Linear(3, 3), torch.ones(2, 3)
    left = torch.autocast("cpu"), BaseTorchFunctionMode()
    for mode in left:
        mode.__enter__()
    layer(x)
    observe(PRELUDE + MARK + _SEES.format(line="return x"), lambda f: f)
    assert not torch.is_autocast_enabled("cpu") and not torch._C._len_torch_function_stack()
    with torch.no_grad(), torch.autocast("cpu"):
        layer.bias.add_(1)
    with torch.autocast("cpu"):
        assert torch.equal(layer(x), layer.bfloat16()(x.bfloat16()))


def test_a_program_that_catches_the_end_of_its_time_is_not_compared():
    line = "try:\n        while len(x): x + 1\n    finally:\n        return x"
    assert isinstance(verdict(PRELUDE + MARK + _SEES.format(line=line), seconds=30.0), Skipped)


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


def test_after_a_program_that_is_not_compared_comes_a_new_worker(monkeypatch):
    asked, cut = [], Outcome(8, skipped="eager takes more than 2 s")

    def worker(first, count, engine):
        asked.append((first, count))
        return ([Outcome(7), cut] if first == 7 else [Outcome(seed) for seed in range(first, first + count)]), None

    monkeypatch.setattr(fuzz_workers, "_worker", worker)
    assert fuzz_workers.chunk(7, 4, 0) == [Outcome(7), cut, Outcome(9), Outcome(10)]
    assert asked == [(7, 4), (9, 2)]


_PAIR = """
def f(x):
    a = x + 1234
    b = a * 2
    return a, b
"""


def test_a_program_is_made_small_while_it_fails():
    text = PRELUDE + MARK + _PAIR
    small = shrink(text, lambda candidate: "x + 1234" in candidate).rpartition(MARK)[2]
    assert "x + 1234" in small and "b" not in small
    assert shrink(text, lambda candidate: True, seconds=-1.0).rpartition(MARK)[2].strip() == _PAIR.strip()
