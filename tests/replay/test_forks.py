"""Runs of a script in forks: however they end, nothing of them is left, and a hang is one of what is compiled."""
from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from ptdebug.cli.scripts.forks import IN_EAGER, forked


def right(folder: Path) -> dict[str, Any]:
    (folder / "file").write_text("x")
    return {"kind": "passed"}


def crashing(folder: Path) -> dict[str, Any]:
    (folder / "file").write_text("x")
    os.kill(os.getpid(), signal.SIGTERM)
    return {}


def hanging(folder: Path) -> dict[str, Any]:
    time.sleep(1000)
    return {}


def hanging_in_eager(folder: Path) -> dict[str, Any]:
    (folder / IN_EAGER).touch()
    return hanging(folder)


def test_how_tasks_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    answers = forked([right, crashing, hanging, hanging_in_eager], 4, 2)
    assert [answer["kind"] for answer in answers] == ["passed", "signal", "hang", "invalid"]
    assert answers[1]["detail"] == "SIGTERM" and answers[3]["detail"] == "eager takes longer than 2 s"
    assert not list(tmp_path.iterdir())
