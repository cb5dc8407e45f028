"""Measuring library calls: once for a machine, without what disturbs, kept on disk."""
from __future__ import annotations

from pathlib import Path

import pytest
from ptdebug.engine.toolchain import benchmarking


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PTDEBUG_CACHE_DIR", str(tmp_path))
    return tmp_path


# ---- measuring
def test_a_call_is_measured_once_for_a_machine(own_cache: Path, monkeypatch):
    monkeypatch.setattr(benchmarking, "_waited", lambda: 0.0)
    made = []

    def prepare():
        made.append(1)
        return {"a": lambda: None, "b": lambda: sum(range(20000))}

    first = benchmarking.costs("subject", prepare)
    assert first["b"] > first["a"] >= 0
    assert benchmarking.costs("subject", prepare) == first
    benchmarking.costs("another subject", prepare)
    assert len(made) == 2

    for entry in (own_cache / "benchmarks").glob("*.json"):
        entry.write_text('{"a": 1.0, "b"')
    again = benchmarking.costs("subject", prepare)
    assert len(made) == 3 and benchmarking.costs("subject", prepare) == again and len(made) == 3


def test_what_the_disk_does_not_take_is_measured_again(own_cache: Path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(benchmarking.tempfile, "mkstemp", full)
    for _ in range(2):
        assert set(benchmarking.costs("a call that no file keeps", lambda: {"one": lambda: None})) <= {"one"}


def test_runs_that_other_programs_disturb_do_not_count(own_cache: Path, monkeypatch):
    waited = iter([0, 0, 1] + [1] * 100)  # in the second of four runs; the first, which may make code, never counts
    monkeypatch.setattr(benchmarking, "_waited", lambda: next(waited))
    seconds = iter([0, 1, 0, 2, 0, 7, 0, 6] + [0, 8] * 9)
    monkeypatch.setattr(benchmarking.time, "thread_time", lambda: next(seconds) / 1e4)
    assert benchmarking.costs("less busy", lambda: {"a": lambda: None}) == {"a": 6e-4}
    assert len(list((own_cache / "benchmarks").iterdir())) == 1


def test_a_call_that_takes_twice_as_long_is_not_repeated(monkeypatch):
    monkeypatch.setattr(benchmarking, "_waited", lambda: 0.0)
    now, runs = [0.0], {"a": 0, "b": 0, "c": 0}
    monkeypatch.setattr(benchmarking.time, "thread_time", lambda: now[0])

    def taking(name, seconds):
        def call():
            runs[name] += 1
            now[0] += seconds
        return call

    calls = {"a": taking("a", 1.5e-3), "b": taking("b", 4e-3), "c": taking("c", 2e-3)}
    known = benchmarking.costs("one is slow", lambda: calls)
    assert known == pytest.approx({"a": 1.5e-3, "b": 4e-3, "c": 2e-3}) and runs["b"] == 2 < min(runs["a"], runs["c"])


def test_what_is_kept_on_disk_is_bounded(own_cache: Path, monkeypatch):
    monkeypatch.setattr(benchmarking, "_waited", lambda: 0.0)
    monkeypatch.setattr(benchmarking, "ENTRIES", 8)
    for number in range(30):
        benchmarking.costs(str(number), lambda: {"a": lambda: None})
    assert len(list((own_cache / "benchmarks").iterdir())) <= 8
