"""Outcomes that are known, by the content of their cases: on disk, so that a search that was interrupted goes on.

The key includes what an outcome depends on besides the case: versions, ptdebug's sources, settings of the environment.
Where it imports other code, which may change, outcomes are not to be kept.
"""
from __future__ import annotations

import functools
import hashlib
import os
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from ...dependencies import msgspec
from ...engine.graph_cache.state import of_installation
from ...engine.toolchain.cpp_build import cache_folder
from ..failures.outcome import Outcome

KEPT_SECONDS = 7 * 86400.0


class Memo:
    """What came of cases, one file for each. `about` is what matters and their keys do not say."""

    def __init__(self, about: str = "", keep: bool = True) -> None:
        self._known: dict[str, Outcome] = {}
        self._keep = keep
        digest = hashlib.sha256(f"{_surroundings()}\n{about}".encode())
        self._folder = cache_folder() / "outcomes" / digest.hexdigest()[:16]

    def get(self, key: str) -> Outcome | None:
        """The outcome of the case with that key, None where it has not been run."""
        if key not in self._known and self._keep:
            try:
                self._known[key] = msgspec.json.decode((self._folder / key).read_bytes(), type=Outcome)
            except (OSError, msgspec.MsgspecError):
                return None
        return self._known.get(key)

    def put(self, key: str, outcome: Outcome) -> None:
        """Remember it."""
        self._known[key] = outcome
        if not self._keep or outcome.kind == "hang":  # which may be the machine's
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            unfinished = self._folder / f"{key}.{os.getpid()}"
            unfinished.write_bytes(msgspec.json.encode(asdict(outcome)))
            unfinished.rename(self._folder / key)
        except OSError:  # a cache that cannot be written is none
            self._keep = False

    def forget(self) -> None:
        """Remove from disk what this one has put or got."""
        for key in self._known:
            (self._folder / key).unlink(missing_ok=True)


def forget_old() -> None:
    """Remove outcomes of searches that have added none in a week."""
    root = cache_folder() / "outcomes"
    for folder in root.iterdir() if root.is_dir() else ():
        with suppress(OSError):  # another process has removed it, or uses it
            if time.time() - folder.stat().st_mtime > KEPT_SECONDS:
                for file in folder.iterdir():
                    file.unlink(missing_ok=True)
                folder.rmdir()


@functools.cache
def _surroundings() -> str:
    digest = hashlib.sha256(of_installation().encode())
    root = Path(__file__).parent.parent.parent
    for path in sorted(path for room in ("cli", "replay") for path in (root / room).rglob("*.py")):
        digest.update(path.read_bytes())
    for name, value in sorted(os.environ.items()):
        if name.startswith(("PTDEBUG_", "TORCH", "PYTORCH", "OMP_", "MKL_", "ATEN_")):
            digest.update(f"{name}={value}\n".encode())
    return digest.hexdigest()
