"""Where the records of a compilation go: the interface, and the recorder that keeps nothing."""
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol

from .artifact import Artifact
from .records import AnyRecord, Decision


class Recorder(Protocol):
    """Where records go. Implementations never raise into the compiler and flush each call (see `store.py`)."""

    def begin(self, compile_id: str, function: str, file: str, line: int) -> None: ...

    def record(self, compile_id: str, stage: str, name: str, record: AnyRecord) -> None: ...

    def absent(self, compile_id: str, stage: str, why: str) -> None: ...

    def decision(self, compile_id: str, decision: Decision) -> None: ...

    def end(self, compile_id: str, status: str, reason: str, seconds: Mapping[str, float]) -> None: ...

    def source_file(self, path: str) -> None: ...


class StageRecorder(ABC):
    """A recorder that takes all that a stage left at once."""

    @abstractmethod
    def record_stage(self, compile_id: str, artifacts: Sequence[Artifact]) -> None:
        """What `record` does, for each of `artifacts`."""


def record_stage(recorder: Recorder, compile_id: str, artifacts: Sequence[Artifact]) -> None:
    """Hand over all that a stage left: at once, if the recorder takes it so."""
    if isinstance(recorder, StageRecorder):
        recorder.record_stage(compile_id, artifacts)
        return
    for artifact in artifacts:
        recorder.record(compile_id, artifact.stage, artifact.name, artifact.record)


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
