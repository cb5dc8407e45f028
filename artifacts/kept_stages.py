"""What the stages of one compilation recorded, as bytes that can be recorded again under another compile id.

Nothing that a stage records holds the id of its compilation, so what is recorded again is what was recorded.
"""
from __future__ import annotations

from collections.abc import Mapping

from ..dependencies import msgspec, zstandard
from .recorder import Recorder
from .records import Absent, AnyRecord, Decision, Kernel

Told = tuple[str, str, AnyRecord]
"""A stage, the name of the artifact, and its record; of a Decision and of an Absent, which say both, "" and ""."""


class KeepingRecorder:
    """Passes everything on to `recorder`, and gathers what the stages told it in `told`."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.told: list[Told] = []

    def begin(self, compile_id: str, function: str, file: str, line: int) -> None:
        """A compilation begins as a whole."""
        self.recorder.begin(compile_id, function, file, line)

    def record(self, compile_id: str, stage: str, name: str, record: AnyRecord) -> None:
        """A stage left a record."""
        self.told.append((stage, name, record))
        self.recorder.record(compile_id, stage, name, record)

    def absent(self, compile_id: str, stage: str, why: str) -> None:
        """A stage was not produced."""
        self.told.append(("", "", Absent(stage, why)))
        self.recorder.absent(compile_id, stage, why)

    def decision(self, compile_id: str, decision: Decision) -> None:
        """A choice was made."""
        self.told.append(("", "", decision))
        self.recorder.decision(compile_id, decision)

    def end(self, compile_id: str, status: str, reason: str, seconds: Mapping[str, float]) -> None:
        """A compilation ends as a whole."""
        self.recorder.end(compile_id, status, reason, seconds)

    def source_file(self, path: str) -> None:
        """Files belong to the program."""
        self.recorder.source_file(path)


def pack(told: list[Told]) -> bytes:
    """What was told, compressed as the contents of a recording are."""
    return zstandard.ZstdCompressor(level=1).compress(msgspec.json.encode(told, enc_hook=repr))


def unpack(content: bytes) -> list[Told]:
    """What `pack` was given; the trees in records are as JSON has them (see `decode.py`), and kernels come from a
    cache. Raises msgspec.DecodeError, msgspec.ValidationError or zstandard.ZstdError for anything else."""
    told = msgspec.json.decode(zstandard.ZstdDecompressor().decompress(content), type=list[Told])
    return [(stage, name, _from_cache(record)) for stage, name, record in told]


def _from_cache(record: AnyRecord) -> AnyRecord:
    return msgspec.structs.replace(record, cached=True) if isinstance(record, Kernel) else record


def tell(told: list[Told], compile_id: str, recorder: Recorder) -> None:
    """Record all of it, in order, as the compilation `compile_id`."""
    for stage, name, record in told:
        if isinstance(record, Absent):
            recorder.absent(compile_id, record.stage, record.why)
        elif isinstance(record, Decision):
            recorder.decision(compile_id, record)
        else:
            recorder.record(compile_id, stage, name, record)
