"""`ptdebug doctor`: every check answers, and each that is not fine names its fix."""
from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from ptdebug.cli import checks

Command = Callable[..., CompletedProcess[str]]


def test_doctor(ptdebug: Command) -> None:
    document = json.loads(ptdebug("doctor", "--json").stdout)
    found = {check["name"]: check for check in document["checks"]}
    assert document["schema"].startswith("ptdebug/") and set(found) == set(checks.CHECKS)
    assert all(check["status"] in (checks.OK, checks.WARNING, checks.MISSING) for check in found.values())
    assert all(check["fix"] for check in found.values() if check["status"] != checks.OK)
    assert found["python"]["status"] == found["torch"]["status"] == found["frame interface"]["status"] == checks.OK
    if shutil.which("g++"):
        assert document["works"] and found["openmp"]["status"] == checks.OK


def test_without_a_compiler(warm: Command, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": "/nowhere", "CXX": "", "PTDEBUG_CACHE_DIR": "/proc/nowhere"}
    done = warm("doctor", env=environment)
    assert done.returncode == 1 and "cannot compile here" in done.stdout
    assert "apt-get install g++" in done.stdout


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks._folder(tmp_path / "new" / "folder", "X").status == checks.OK
    (tmp_path / "file").write_text("")
    refused = checks._folder(tmp_path / "file" / "below", "X")
    assert refused.status == checks.MISSING and "set X" in refused.fix
    monkeypatch.setattr(checks, "LOW_SPACE", 1 << 60)
    assert checks._folder(tmp_path, "X").status == checks.WARNING


def test_a_check_that_fails_is_an_answer() -> None:
    def broken() -> checks.Check:
        raise OSError("no such thing")

    assert checks.run_check(broken) == checks.Check(checks.MISSING, "OSError: no such thing", "see the checks above")
