"""The differences of ranks: collectives first, then compilations, graphs, sizes and guards; devices do not count."""
# mypy: ignore-errors
from __future__ import annotations

from pathlib import Path

import ptdebug
import pytest
import torch
import torch.distributed as dist
from ptdebug.artifacts.diff.ranks import rank_differences
from ptdebug.cli import api


@pytest.fixture(autouse=True)
def group():
    if not dist.is_available():
        pytest.skip("torch without torch.distributed")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def differences(tmp_path: Path, *ranks):
    """What each rank does, one after the other in this process."""
    recordings = []
    for number, work in enumerate(ranks):
        api.reset()
        with ptdebug.record(f"rank-{number}", out=tmp_path) as recording:
            work(lambda function: ptdebug.compile(function, backend="aot_eager"))
        recordings.append((number, recording))
    return [(found.kind, found.first, found.second, found.location.line if found.location else 0)
            for found in rank_differences(recordings)]


def test_the_order_of_collectives(tmp_path: Path) -> None:
    def sums_first(x, y):
        dist.all_reduce(x)
        dist.broadcast(y, 0)
        return x + y

    def sums_last(x, y):
        dist.broadcast(y, 0)
        dist.all_reduce(x)
        return x + y

    sums_last.__code__ = sums_last.__code__.replace(co_name="sums_first", co_qualname=sums_first.__code__.co_qualname)
    x = torch.ones(2)
    found = differences(tmp_path, lambda compile: compile(sums_first)(x, x + 1),
                        lambda compile: compile(sums_last)(x, x + 1))
    kind, first, second, line = found[0]
    assert (kind, line) == ("collectives", sums_last.__code__.co_firstlineno + 1)
    assert "all_reduce" in first and "broadcast" in second


def test_sizes_guards_and_compilations(tmp_path: Path) -> None:
    def f(x, scale):
        return (x * scale).sin() if scale > 2 else x * scale

    def g(x):
        return x + 1

    def work(size, scale, more):
        def run(compile):
            compile(f)(torch.ones(size), scale)
            if more:
                compile(g)(torch.ones(2))

        return run

    assert differences(tmp_path / "alike", work(3, 2, True), work(3, 2, True)) == []
    found = differences(tmp_path / "sizes", work(3, 2, False), work(4, 2, False))
    assert (found[0][0], found[0][3]) == ("shape", f.__code__.co_firstlineno)
    assert [entry[0] for entry in found] == ["shape", "guard"] and "x.size() is [4]" in found[1][2]
    found = differences(tmp_path / "more", work(3, 3, False), work(3, 2, True))
    assert [entry[0] for entry in found] == ["graph", "guard", "compilation"]
    assert found[0][1].startswith("sin = ") and found[2][1] == "" and found[2][3] == g.__code__.co_firstlineno
