"""What the stages of one compilation recorded, as bytes that can be recorded again under another compile id.

Nothing that a stage records holds the id of its compilation, so what is recorded again is what was recorded.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..dependencies import msgspec, zstandard
from .artifact import Artifact, Stored, compress, encode
from .recorder import Recorder, StageRecorder, record_stage
from .records import Absent, AnyRecord, Decision, Kernel


class Told(msgspec.Struct):
    """What the stages of a compilation told a recorder."""

    artifacts: list[Stored] = []
    decisions: list[Decision] = []
    absents: list[Absent] = []


class KeepingRecorder(StageRecorder):
    """Passes everything on to `recorder`, and gathers what the stages told it in `told`."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.told = Told()

    def begin(self, compile_id: str, function: str, file: str, line: int) -> None:
        """A compilation begins as a whole."""
        self.recorder.begin(compile_id, function, file, line)

    def record(self, compile_id: str, stage: str, name: str, record: AnyRecord) -> None:
        """A stage left a record."""
        self.record_stage(compile_id, [Artifact(stage, name, record)])

    def record_stage(self, compile_id: str, artifacts: Sequence[Artifact]) -> None:
        """A stage left records."""
        record_stage(self.recorder, compile_id, artifacts)
        self.told.artifacts += [artifact.stored for artifact in artifacts]

    def absent(self, compile_id: str, stage: str, why: str) -> None:
        """A stage was not produced."""
        self.told.absents.append(Absent(stage, why))
        self.recorder.absent(compile_id, stage, why)

    def decision(self, compile_id: str, decision: Decision) -> None:
        """A choice was made."""
        self.told.decisions.append(decision)
        self.recorder.decision(compile_id, decision)

    def end(self, compile_id: str, status: str, reason: str, seconds: Mapping[str, float]) -> None:
        """A compilation ends as a whole."""
        self.recorder.end(compile_id, status, reason, seconds)

    def source_file(self, path: str) -> None:
        """Files belong to the program."""
        self.recorder.source_file(path)


class _Packed(msgspec.Struct, array_like=True):
    artifacts: list[Stored]
    rest: bytes  # the other fields of Told as JSON, compressed


class _Rest(msgspec.Struct):
    decisions: list[Decision]
    absents: list[Absent]


def pack(told: Told) -> bytes:
    """What was told; its contents are compressed already, as those of a recording are."""
    return msgspec.msgpack.encode(_Packed(told.artifacts, compress(encode(_Rest(told.decisions, told.absents)))))


def unpack(content: bytes) -> Told:
    """What `pack` was given; kernels come from a cache. Raises msgspec.DecodeError, msgspec.ValidationError or
    zstandard.ZstdError for anything else."""
    packed = msgspec.msgpack.decode(content, type=_Packed)
    rest = msgspec.json.decode(zstandard.ZstdDecompressor().decompress(packed.rest), type=_Rest)
    return Told([_from_cache(stored) for stored in packed.artifacts], rest.decisions, rest.absents)


def _from_cache(stored: Stored) -> Stored:
    record = Artifact(stored.stage, stored.name, stored).record if stored.kind == Kernel.__name__ else None
    if not isinstance(record, Kernel):
        return stored
    return Artifact(stored.stage, stored.name, msgspec.structs.replace(record, cached=True)).stored


def kernels(told: Told) -> list[Kernel]:
    """The kernels that were told of."""
    found = [Artifact(s.stage, s.name, s).record for s in told.artifacts if s.kind == Kernel.__name__]
    return [record for record in found if isinstance(record, Kernel)]


def tell(told: Told, compile_id: str, recorder: Recorder) -> None:
    """Record all of it, as the compilation `compile_id`."""
    for absent in told.absents:
        recorder.absent(compile_id, absent.stage, absent.why)
    for decision in told.decisions:
        recorder.decision(compile_id, decision)
    record_stage(recorder, compile_id, [Artifact(stored.stage, stored.name, stored) for stored in told.artifacts])
