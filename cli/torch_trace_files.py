"""Reads the files that PyTorch writes under TORCH_TRACE: one for each process, lines of JSON with a text below them.

    V1128 03:47:24.668000 23771 torch/_dynamo/utils.py:2350] {"artifact": {...}, "frame_id": 0, "has_payload": "..."}
        the text, each of its lines after a tab

(`TorchLogsFormatter` in torch/_logging/_internal.py.)
"""
from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from ..dependencies import msgspec

_HEAD = re.compile(r"V(\d{4} \d{2}:\d{2}:\d{2}\.\d{6}) (\d+) \S+:\d+\] (\{.*)")
DAY = 86_400.0  # seconds
_RANK = re.compile(r"_rank_(\d+)_")


@dataclass(frozen=True)
class TraceFile:
    """A file of the trace: the process's rank in a distributed program, -1 where its name has none."""

    path: Path
    rank: int = -1


@dataclass
class TraceReader:
    """The events of one file. `damaged` counts lines that are none; `until` is when the file was last written, in
    seconds since 1970, which says the year that its lines leave out."""

    path: Path
    until: float
    damaged: int = 0
    time: float = 0.0  # of the last event, in seconds since 1970
    pid: int = 0
    versions: dict[str, str] = field(default_factory=dict)

    def events(self) -> Iterator[tuple[dict[str, Any], str]]:
        """The facts and the text of each event, in order. Raises OSError, EOFError for a packed file that is cut."""
        with _opened(self.path) as file:
            facts: dict[str, Any] | None = None
            text: list[str] = []
            for line in file:
                if line.startswith("\t"):
                    text.append(line[1:].rstrip("\n"))
                    continue
                if facts is not None:
                    yield self._complete(facts, "\n".join(text))
                text, facts = [], self._facts(line)
            if facts is not None:
                yield self._complete(facts, "\n".join(text))

    def _facts(self, line: str) -> dict[str, Any] | None:
        found = _HEAD.match(line)
        if found is not None:
            with suppress(ValueError, msgspec.DecodeError):
                facts = msgspec.json.decode(found[3])
                self.time, self.pid = self._moment(found[1]), int(found[2])
                return facts if isinstance(facts, dict) else None
        self.damaged += bool(line.strip())
        return None

    def _moment(self, text: str) -> float:
        """The last time at which it was this day and hour before the file was written: a run may cross a new year."""
        latest = datetime.fromtimestamp(self.until).year
        for year in range(latest, latest - 5, -1):  # of February 29, the leap year
            with suppress(ValueError):
                moment = datetime.strptime(f"{year} {text}", "%Y %m%d %H:%M:%S.%f").timestamp()
                if moment <= self.until + DAY:  # clocks and time zones differ
                    return moment
        raise ValueError(text)

    def _complete(self, facts: dict[str, Any], text: str) -> tuple[dict[str, Any], str]:
        """Note the versions that an event tells of."""
        told: Any = facts.get("compilation_metrics") or {}
        if (facts.get("artifact") or {}).get("name") == "torch_version":
            with suppress(msgspec.DecodeError):
                told = msgspec.json.decode(text)
        for name in ("pytorch", "python", "triton", "cuda"):
            if isinstance(told, dict) and (version := told.get(f"{name}_version")):
                self.versions["torch" if name == "pytorch" else name] = str(version).partition(" ")[0]
        return facts, text


def trace_files(path: Path) -> list[TraceFile]:
    """The files of a trace in `path`, a file or a folder of them, by rank. Raises OSError where there is no such."""
    if not path.is_dir():
        path.stat()
        return [TraceFile(path)]
    found = []
    for file in sorted(path.iterdir()):
        if file.name.startswith("dedicated_log_torch_trace") or file.suffix in (".log", ".gz"):
            rank = _RANK.search(file.name)
            found.append(TraceFile(file, int(rank[1]) if rank else -1))
    return sorted(found, key=lambda one: (one.rank, one.path.name))


def is_trace(path: Path) -> bool:
    """Whether the file begins as one of PyTorch's traces does."""
    with suppress(OSError, EOFError), _opened(path) as file:
        return _HEAD.match(file.readline()) is not None
    return False


def _opened(path: Path) -> TextIO:
    kind: Any = gzip.open if path.suffix == ".gz" else open
    opened: TextIO = kind(path, "rt", encoding="utf-8", errors="replace")
    return opened
