"""What is said of a run is so: of children, of frames that are left alone, of symbols, of a program that still runs."""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import ptdebug
import pytest
import torch
from ptdebug.artifacts import process_liveness
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.records import Fusion, Guards
from ptdebug.artifacts.summary import summary
from ptdebug.cli import api
from ptdebug.engine.toolchain.benchmarking import verdict

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    api.reset()
    with torch.no_grad():
        yield


def test_children_that_may_have_compiled(ptdebug: Command, tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(
        "import torch\nprint(torch.compile(lambda x: x + 1, backend='eager')(torch.ones(1)).item())\n")
    (tmp_path / "parent.py").write_text(
        "import subprocess, sys, torch\nsubprocess.run([sys.executable, '-I', 'child.py'], check=True)\n")
    done = ptdebug("run", "parent.py", timeout=300)
    assert done.stdout == "2.0\n" and "the program never called" not in done.stderr
    assert "nor a Python process below it that could be followed called" in done.stderr
    (tmp_path / "alone.py").write_text("import torch\n")
    assert "the program never called torch.compile" in ptdebug("run", "alone.py").stderr


def test_the_decision_about_a_frame_that_is_left_alone(tmp_path: Path) -> None:
    def nothing(x: torch.Tensor) -> torch.Tensor:
        return x

    def something(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    with ptdebug.record("r", out=str(tmp_path)) as recording:
        ptdebug.compile(nothing)(torch.ones(1))
        ptdebug.compile(something)(torch.ones(1))
    found = {d.subject.partition("@")[0].rpartition(".")[2]: d for _, d in recording.decisions(kind="frame")}
    assert (found["nothing"].chosen, found["nothing"].why) == ("eager", "it has no tensor operation")
    assert found["something"].chosen == "compile"


def test_lines_that_narrow_a_symbol_are_named(tmp_path: Path) -> None:
    def scaled(x: torch.Tensor, s: float) -> torch.Tensor:
        return x * s if s > 0.5 else x + s

    def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    with ptdebug.record("r", out=str(tmp_path)) as recording:
        for s in (0.6, 0.7):
            ptdebug.compile(scaled)(torch.ones(3), s)
        ptdebug.compile(added, dynamic=True)(torch.ones(3), torch.ones(3))
    symbols = {s.subject: [e.text for e in s.events] for _, g in recording.records(Guards) for s in g.symbols}
    assert symbols["s"] == ["needs (s > 0.5) is True"]
    assert symbols["x.size(0)"] == ["y.size(0) must be s0, as at this call"]


def test_pairs_that_were_not_fused_are_two(tmp_path: Path) -> None:
    """Also of bodies that fill one buffer one after the other, and of loop nests that only look alike."""
    def scattered(table: torch.Tensor, at: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.zeros(64, 64).index_add(0, at, values * 2) + table

    def many(*tensors: torch.Tensor) -> list[torch.Tensor]:
        return [t.sin() * t for t in tensors]

    with ptdebug.record("r", out=str(tmp_path)) as recording:
        ptdebug.compile(scattered)(torch.ones(64, 64), torch.arange(8), torch.ones(8, 64))
        ptdebug.compile(many, dynamic=True)(*[torch.ones(300 * i, 7 + i) for i in range(2, 12)])
    candidates = [c for _, f in recording.records(Fusion) for c in f.candidates]
    assert all(c.first != c.second for c in candidates)
    assert any(c.second.endswith("_part2") for c in candidates)
    assert any(c.kind == "horizontal" and not c.fused for c in candidates)


def test_the_reason_of_a_choice_by_time_is_what_the_times_say() -> None:
    known = {"mkl": 10e-6, "ptdebug": 10.3e-6, "packed": 9.5e-6}
    assert verdict(known, "packed", "for 3 rows", "") == "packed is the fastest for 3 rows on this machine"
    assert verdict(known, "ptdebug", "for 3 rows", "it may take 5 % more") == (
        "packed is the fastest for 3 rows on this machine, but ptdebug takes only 8.4 % more: it may take 5 % more")


def test_a_program_that_runs_is_told_from_one_that_was_killed(ptdebug: Command, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(60)\n")
    environment = {**os.environ, "PTDEBUG_HOME": str(tmp_path / "recordings")}
    running = subprocess.Popen([sys.executable, "-m", "ptdebug", "run", "--name", "r", "program.py"], cwd=tmp_path,
                               env=environment, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None and running.stdout.readline() == "up\n"
    try:
        assert f"still running (process {running.pid})" in ptdebug("show", "r").stdout
        assert json.loads(ptdebug("ls", "--json").stdout)["recordings"][0]["running"] is True
        assert "running" in ptdebug("ls").stdout
    finally:
        running.send_signal(signal.SIGKILL)
    deadline = time.time() + 10
    while process_liveness.process_start(running.pid) and time.time() < deadline:
        time.sleep(0.05)
    assert "is gone: killed" in ptdebug("show", "r").stdout  # a zombie until its parent asks
    running.wait()
    with Recording.open(tmp_path / "recordings" / "r") as recording:
        assert summary(recording)["running"] is False
        meta = recording.meta
    assert process_liveness.is_running({**meta, "pid": os.getpid()}) is False  # the number is another process's now
    start = process_liveness.process_start(os.getpid())
    assert process_liveness.is_running({**meta, "pid": os.getpid(), "process_start": start}) is True
    assert process_liveness.is_running({**meta, "machine": "another"}) is None
