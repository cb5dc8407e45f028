"""Fixtures that start the command in processes of its own, or in copies of a warm one."""
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.warm_process import WarmProcess

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
def warm(
    tmp_path: Path, environment: dict[str, str], warm_process: WarmProcess
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`warm(*words)`: the same in a copy of a process that has loaded torch and ptdebug."""
    def run(
        *words: str, env: Mapping[str, str] = environment, timeout: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        return warm_process.run(["ptdebug", *words], cwd=tmp_path, env=env, timeout=timeout)

    return run
