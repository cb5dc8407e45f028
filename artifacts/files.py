"""The files of a recording: only regular files inside its folder are opened.

A recording may come from anyone. A link in it would lead to other people's files (SQLite even creates files beside what
it opens), and a pipe would block the reader forever.
"""
from __future__ import annotations

import os
import stat
from pathlib import Path


class NotAFileOfIt(Exception):
    """The name is not that of a regular file inside the recording; the message says what it is."""


def is_name(name: str) -> bool:
    """Whether `name` may be that of a file inside a recording, relative to its folder."""
    return bool(name) and not any(p in ("", ".", "..") or "\0" in p or "\\" in p for p in name.split("/"))


def plain_file(folder: Path, name: str) -> Path:
    """The path of a file of the recording in `folder`, by its name relative to it. Raises NotAFileOfIt."""
    if not is_name(name):
        raise NotAFileOfIt(f"{name!r} is not a file inside the recording")
    path, parts = folder, name.split("/")
    for number, part in enumerate(parts, 1):
        path /= part
        _check(path, is_last=number == len(parts))
    return path


def _check(path: Path, is_last: bool) -> None:
    try:
        mode = os.lstat(path).st_mode
    except OSError as error:
        raise NotAFileOfIt(f"{path}: {error.strerror}") from error
    if stat.S_ISLNK(mode):
        raise NotAFileOfIt(f"{path} is a link; recordings have none")
    if not (stat.S_ISREG if is_last else stat.S_ISDIR)(mode):
        raise NotAFileOfIt(f"{path} is not a {'regular file' if is_last else 'folder'}")
