"""A few random programs with fresh seeds: `fuzz.py` runs as many as one likes."""
from __future__ import annotations

import os
import random
import time

import pytest

from .checking import leaves
from .differ import difference, outcome
from .generate import program

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
