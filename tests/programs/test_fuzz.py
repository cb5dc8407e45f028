"""A few random programs with fresh seeds: `fuzz.py` runs as many as one likes."""
from __future__ import annotations

import os
import random
import time

import pytest

from .differ import difference
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
