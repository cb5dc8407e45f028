"""The files of the cache: one for each key, checksummed, written atomically, evicted least recently used first.

A file is a checksum and its content. It is written under a temporary name and renamed, so that processes may write the
same entry at once, and one that is killed leaves nothing that another could read.
"""
from __future__ import annotations

import hashlib
import os
import tempfile
import time
from pathlib import Path

from ..toolchain.cpp_build import ABANDONED, cache_folder, mark_used

LIMIT_BYTES = 256 << 20
LIMIT_ENTRIES = 4096
_SUFFIX = ".graph"


class Damaged(Exception):
    """A file of the cache is not what was written; the message names it."""


def read(key: str) -> bytes | None:
    """The content kept under `key`, None where there is none. Raises Damaged, having removed the file."""
    path = _path(key)
    try:
        content = path.read_bytes()
    except OSError:
        return None
    mark_used(path)
    if hashlib.sha256(content[32:]).digest() != content[:32]:
        path.unlink(missing_ok=True)
        raise Damaged(f"{path} was damaged and is compiled again")
    return content[32:]


def holds(key: str) -> bool:
    """Whether something is kept under `key`."""
    return _path(key).exists()


def write(key: str, content: bytes) -> None:
    """Keep `content` under `key`. Raises OSError where the disk does not take it."""
    path = _path(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix="entry-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(content).digest() + content)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _trim(path.parent)


def remove(key: str) -> None:
    """Forget what is kept under `key`."""
    _path(key).unlink(missing_ok=True)


def _path(key: str) -> Path:
    return cache_folder() / "graphs" / f"{key[:40]}{_SUFFIX}"


def _trim(folder: Path) -> None:
    """Remove the entries longest unused until the folder is below its limits. Others may do so at the same time."""
    entries = []
    for item in os.scandir(folder):
        try:
            stat = item.stat()
        except OSError:
            continue
        if item.name.endswith(_SUFFIX) or time.time() - stat.st_mtime > ABANDONED:
            entries.append((stat.st_mtime, stat.st_size, Path(item.path)))
    total, count = sum(size for _, size, _ in entries), len(entries)
    for _, size, path in sorted(entries):
        if total <= LIMIT_BYTES and count <= LIMIT_ENTRIES:
            return
        path.unlink(missing_ok=True)
        total, count = total - size, count - 1
