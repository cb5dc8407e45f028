"""Where the records of a compilation go: the interface, and the recorder that keeps nothing."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from .records import AnyRecord, Decision


class Recorder(Protocol):
    """Where records go. Implementations never raise into the compiler and flush each call (see `store.py`)."""

    def begin(self, compile_id: str, function: str, file: str, line: int) -> None: ...

    def record(self, compile_id: str, stage: str, name: str, record: AnyRecord) -> None: ...

    def absent(self, compile_id: str, stage: str, why: str) -> None: ...

    def decision(self, compile_id: str, decision: Decision) -> None: ...

    def end(self, compile_id: str, status: str, reason: str, seconds: Mapping[str, float]) -> None: ...

    def source_file(self, path: str) -> None: ...


class NullRecorder:
    """Records nothing."""

    def begin(self, compile_id: str, function: str, file: str, line: int) -> None:
        """Nothing to begin."""

    def record(self, compile_id: str, stage: str, name: str, record: AnyRecord) -> None:
        """Nothing is kept."""

    def absent(self, compile_id: str, stage: str, why: str) -> None:
        """Nothing is kept."""

    def decision(self, compile_id: str, decision: Decision) -> None:
        """Nothing is kept."""

    def end(self, compile_id: str, status: str, reason: str, seconds: Mapping[str, float]) -> None:
        """Nothing to end."""

    def source_file(self, path: str) -> None:
        """Nothing is kept."""
