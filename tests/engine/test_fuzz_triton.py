"""The differential fuzz of Triton kernels: a few programs with fresh seeds, in Triton's interpreter here, and on a GPU
where there is one.

    python tests/engine/fuzz_graphs.py --device cuda --count 10000 --jobs 4 --seed 1

is the long run.
"""
from __future__ import annotations

import random
import warnings
from collections.abc import Iterator

import pytest

from tests.devices import GPU

from . import fuzz_graphs
from .fuzz_devices import choose
from .fuzz_graphs import Failure

FIRST = random.randrange(10**9)


@pytest.fixture(params=["interpreter", pytest.param("cuda", marks=GPU)])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    choose(request.param)
    yield request.param
    choose("cpu")


def test_random_programs_give_eagers_results(device: str) -> None:
    failures: list[Failure] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        count = 6 if device == "interpreter" else 48
        fuzz_graphs.fuzz(FIRST, count, lambda start, done, found: failures.extend(found))
    assert not failures, "\n".join(f"{f.program}\n# {dict(f.overrides)} {f.what}" for f in failures)
