"""Cases in processes of their own: crashes and hangs are outcomes, and what is known is not run again."""
from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from ptdebug.replay.workers import client, server
from ptdebug.replay.workers.pool import Pool

from .cases import case_of


def program(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x).exp()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PTDEBUG_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=":")
    return tmp_path


def test_outcomes_of_workers(cache: Path):
    case = case_of(program, torch.randn(8))
    cases = [replace(case, imports=(f"faults:{name}",)) for name in ("wrong_relu", "raising_relu", "crash", "hang")]
    with Pool(limit=4) as pool:
        outcomes = pool([case, *cases])
        assert [o.kind for o in outcomes] == ["passed", "values", "exception", "signal", "hang"]
        assert outcomes[3].detail == "SIGSEGV"
        assert pool.ran == 5
        assert pool([case, case])[0].passed and pool.ran == 5
        outcome, decisions = pool.decisions(case)
        assert outcome.passed and any(made.decision.id == "compile:graph" for made in decisions)
    with Pool() as pool:  # another search, later
        assert pool([case])[0].passed and pool.ran == 0
        assert pool([replace(case, imports=("no_such_module",))])[0].kind == "invalid"


@pytest.mark.parametrize("broken", [lambda: os._exit(3), lambda: time.sleep(600)], ids=["dies", "hangs"])
def test_what_every_compilation_does_is_an_outcome_too(cache: Path, monkeypatch: pytest.MonkeyPatch, broken: Any):
    """Also in the first, which the process makes that others are forked from."""
    monkeypatch.setattr(server, "warm_up", broken)
    monkeypatch.setattr(client, "WARM_WITHIN", 0.5)
    workers = client.Workers(fork=True)
    with Pool(processes=workers) as pool:
        assert pool([case_of(program, torch.randn(8))])[0].passed
    workers.close()


def test_what_an_interrupted_search_left_running_answers_nothing_else(cache: Path):
    class Interrupted(Exception):
        pass

    def interrupt() -> None:
        raise Interrupted

    case = case_of(program, torch.randn(8))
    slow = replace(case, imports=("faults:hang",))
    with Pool(2, limit=4, told=interrupt) as pool:
        with pytest.raises(Interrupted):  # while the second is running
            pool([case, slow])
        pool._told = lambda: None
        pool.limit = 8  # so that the one that was left ends meanwhile
        assert [o.kind for o in pool([replace(slow, repeat=2), case])] == ["hang", "passed"]


def test_what_hangs_ends_with_a_server_that_is_killed(cache: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "_run", lambda request, answer: time.sleep(600))
    reader, writer = os.pipe()
    killed = os.fork()
    if killed == 0:
        children: dict[int, server.Child] = {}
        server._start({"id": 0, "answer": "answer", "limit": 600}, children)
        os.write(writer, str(next(iter(children))).encode())
        time.sleep(600)
    child = int(os.read(reader, 100))
    os.kill(killed, signal.SIGKILL)
    os.waitpid(killed, 0)
    until = time.monotonic() + 30
    while _runs(child) and time.monotonic() < until:
        time.sleep(0.01)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    """Whether it is there, and not one that has ended and waits to be asked for its code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
