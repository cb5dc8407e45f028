"""Which files the recorder's descriptors refer to, and whether they still do.

A program may close descriptors that are not its own (`os.closerange(3, 4096)`, as daemons do) and reuse their numbers:
the recorder would then write into the program's files.
"""
from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


class OpenFiles:
    """The descriptors of this process on some files, as they are now."""

    def __init__(self, paths: Iterable[Path]) -> None:
        files = {_identity(os.stat(path)) for path in paths if path.exists()}
        self._expected = {number: file for number in _descriptors() if (file := _behind(number)) in files}

    def unchanged(self) -> bool:
        """Whether each descriptor still refers to its file."""
        return all(_behind(number) == file for number, file in self._expected.items())


def _descriptors() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        return list(range(256))


def _behind(number: int) -> tuple[int, int] | None:
    try:
        return _identity(os.fstat(number))
    except OSError:
        return None


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
