"""Fixtures that start the command in processes of its own, or in copies of a warm one."""
from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.warm_process import in_copy

COMMAND = Path(sys.executable).parent / "ptdebug"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """That of the tests, without settings of ptdebug, and with recordings in `tmp_path/recordings`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PTDEBUG")}
    return kept | {"PTDEBUG_HOME": str(tmp_path / "recordings")}


@pytest.fixture
def ptdebug(tmp_path: Path, environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`ptdebug(*words)`: the installed command in an empty folder, with recordings in `tmp_path/recordings`."""
    def run(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
        settings: dict[str, object] = {"cwd": tmp_path, "env": environment, "timeout": 120, "text": True,
                                       "capture_output": True}
        return subprocess.run([str(COMMAND), *words], **(settings | options))  # type: ignore[call-overload]

    return run


@pytest.fixture
def warm(tmp_path: Path, environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`warm(*words)`: the same in a copy of a process that has loaded torch and ptdebug."""
    return functools.partial(in_copy, "ptdebug", cwd=tmp_path, env=environment)
