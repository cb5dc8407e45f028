"""`ptdebug run --tui`: the program beside the workbench, its calls counted while it runs."""
from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ptdebug.artifacts.process_liveness import is_running
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.records import Runtime
from ptdebug.cli.watched_run import watch

Command = Callable[..., subprocess.CompletedProcess[str]]
PROGRAM = """
import pathlib, sys, time
import torch

@torch.compile
def f(x):
    return x.sin()

number = 0
while not pathlib.Path("stop").exists():
    f(torch.ones(3))
    number += 1
    time.sleep(0.02)
print("called", number, sys.argv[1:])
sys.exit(3)
"""


def test_calls_are_counted_while_the_program_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.py").write_text(PROGRAM)
    seen: list[int] = []

    def workbench(path: str) -> int:
        with Recording.open(path) as recording:
            end = time.monotonic() + 90
            while len(seen) < 2 and time.monotonic() < end:
                found = [runtime.calls for _, runtime in recording.records(Runtime)]
                if found and found[0] > (seen or [0])[-1]:
                    seen.append(found[0])
                time.sleep(0.05)
            assert is_running(recording.meta)
            (tmp_path / "stop").write_text("")
            while is_running(recording.meta) and time.monotonic() < end:  # it ends while this has it open
                time.sleep(0.05)
        return 0

    home = tmp_path / "home"
    assert watch(["-o", str(home), "--name", "r", "--", "loop.py", "--name"], home, workbench) == 3
    assert len(seen) == 2 and seen[0] < seen[1]
    output = capfdbinary.readouterr().out
    assert b"called" in output and b"['--name']" in output and b"not closed properly" not in output
    with Recording.open(home / "r") as recording:
        assert recording.meta["exit_code"] == 3 and not recording.problems


def test_a_program_that_cannot_start_says_so(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert watch(["-o", str(tmp_path), "--inputs", "nonsense", "--", "x.py"], tmp_path, lambda path: 1) == 2
    assert b"invalid choice" in capfdbinary.readouterr().out


def test_without_a_terminal(ptdebug: Command, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("")
    done = ptdebug("run", "--tui", "x.py", stdin=subprocess.DEVNULL)
    assert done.returncode == 2 and "needs a terminal" in done.stderr
    assert "--no-record" in ptdebug("run", "--tui", "--no-record", "x.py").stderr
