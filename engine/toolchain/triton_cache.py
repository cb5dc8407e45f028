"""Compiled Triton kernels on disk: machine code, and what a launch must know of it, by key.

Nothing here loads Triton, or what generates its code: a graph from disk finds its kernels with this alone.
"""
from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from .cpp_build import cache_folder

_SERVER = Path(__file__).parent.parent / "codegen" / "triton" / "server.py"


@dataclass(frozen=True)
class Binary:
    """A compiled kernel: the file of its machine code, and what a launch needs.

    `scratch` counts the pointers that it takes after its arguments: the first is to `memory` bytes for each program,
    or null, as the others are. `shared` is in bytes. `seconds` is the time of
    its compilation, whenever that was.
    """

    path: str
    name: str
    warps: int
    shared: int
    scratch: int
    memory: int = 0
    seconds: float = 0.0


@lru_cache(maxsize=1)
def options() -> str:
    """What the machine code depends on besides a kernel: Triton's version and settings, and the options in the source
    of the server that compiles."""
    try:
        release = version("triton")
    except PackageNotFoundError:  # installed under another name
        release = ""
    settings = sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith("TRITON_") and "CACHE" not in k)
    return hashlib.sha256("\0".join([release, _SERVER.read_text(), *settings]).encode()).hexdigest()


def folder() -> Path:
    """Where the kernels are."""
    found = cache_folder() / "triton"
    found.mkdir(parents=True, exist_ok=True)
    return found


def path_of(key: str, name: str) -> str:
    """The file for the machine code of a kernel of this name: another process may compile the same kernel under another
    name, whose machine code is another file."""
    return str(folder() / f"{key}-{hashlib.sha256(name.encode()).hexdigest()[:8]}.cubin")


def kept(key: str) -> Binary | None:
    """What was kept under this key, if its machine code is there and undamaged."""
    try:
        answer: dict[str, Any] = json.loads((folder() / f"{key}.json").read_text())
        answer["path"] = str(folder() / answer.pop("file"))
        checksum = answer.pop("checksum")
        undamaged = checksum == hashlib.sha256(Path(answer["path"]).read_bytes()).hexdigest()
        return Binary(**answer) if undamaged else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(key: str, path: str, answer: Mapping[str, Any]) -> None:
    """Keep what the compiler said of the machine code in the file `path`."""
    file = Path(path)
    content = {**answer, "file": file.name, "checksum": hashlib.sha256(file.read_bytes()).hexdigest()}
    written = file.with_suffix(f".{os.getpid()}.json")
    written.write_text(json.dumps(content))
    os.replace(written, folder() / f"{key}.json")
