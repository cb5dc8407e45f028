"""Fixtures that start the command in processes of its own."""
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).parent / "ptdebug"


@pytest.fixture
def ptdebug(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`ptdebug(*words)`: the installed command in an empty folder, with recordings in `tmp_path/recordings`."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PTDEBUG")}
    environment["PTDEBUG_HOME"] = str(tmp_path / "recordings")

    def run(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
        settings: dict[str, object] = {"cwd": tmp_path, "env": environment, "timeout": 120, "text": True,
                                       "capture_output": True}
        return subprocess.run([str(COMMAND), *words], **(settings | options))  # type: ignore[call-overload]

    return run
