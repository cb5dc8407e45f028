"""Records of a graph that is one of several in its compilation, such as the backward of a training graph.

The stages that compile it know nothing of that: they name artifacts, buffers and nodes as always. Here the names get
the part's in front ("loop_ir:buf3" becomes "loop_ir:backward.buf3"), and references to the graph's nodes
("forward#mul") lead to the part's own graph ("backward#mul"). Where the part is an inner graph of the captured one,
references to its nodes there begin with its path ("capture#inner_0.sin", see `inner_graphs.py`).
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_args

from ..dependencies import msgspec
from .artifact import Artifact
from .record_base import Location, TensorMeta
from .recorder import Recorder, StageRecorder, record_stage
from .records import (
    AnyRecord,
    CodeLine,
    Decision,
    FusionCandidate,
    LoopStatement,
    NodeRef,
    Option,
    Ref,
    ScheduledGroup,
    ref,
    split_ref,
)
from .stages import GRAPHS, PER_PART

NAMES: dict[type, tuple[str, ...]] = {ScheduledGroup: ("members",), FusionCandidate: ("first", "second")}
"""Fields that name loop bodies."""
_REFER_TO_NOTHING = (Location, NodeRef, Option, TensorMeta)
"""Records without references, of which others hold many."""


class PartRecorder(StageRecorder):
    """Passes on to `recorder` the records of one part, under names of its own; `path` is where it was captured."""

    def __init__(self, recorder: Recorder, part: str, path: str = "") -> None:
        self._recorder = recorder
        self.part = part
        self.path = path
        self._references: dict[Ref, Ref] = {}
        self._of_several: dict[tuple[Ref, ...], tuple[Ref, ...]] = {}

    def begin(self, compile_id: str, function: str, file: str, line: int) -> None:
        """A compilation begins as a whole."""
        self._recorder.begin(compile_id, function, file, line)

    def record(self, compile_id: str, stage: str, name: str, record: AnyRecord) -> None:
        """Keep a record of the part."""
        self._recorder.record(compile_id, stage, self.name(name), self._renamed(record))

    def record_stage(self, compile_id: str, artifacts: Sequence[Artifact]) -> None:
        """Keep what a stage of the part left."""
        renamed = [Artifact(a.stage, self.name(a.name), self._renamed(a.record)) for a in artifacts]
        record_stage(self._recorder, compile_id, renamed)

    def absent(self, compile_id: str, stage: str, why: str) -> None:
        """A stage was not produced for this part."""
        self._recorder.absent(compile_id, stage, f"{self.part}: {why}")

    def decision(self, compile_id: str, decision: Decision) -> None:
        """Keep a decision, whose id has the part's name already."""
        d = decision
        if d.origins:  # half the time of msgspec.structs.replace
            decision = Decision(d.id, d.kind, d.subject, d.options, d.default, d.chosen, d.why, d.forced, d.location,
                                self.references(d.origins))
        self._recorder.decision(compile_id, decision)

    def end(self, compile_id: str, status: str, reason: str, seconds: Mapping[str, float]) -> None:
        """A compilation ends as a whole."""
        self._recorder.end(compile_id, status, reason, seconds)

    def source_file(self, path: str) -> None:
        """Files belong to the program."""
        self._recorder.source_file(path)

    # ---- names
    def name(self, name: str) -> str:
        """The name of an artifact of the part."""
        return f"{self.part}.{name}" if name else self.part

    def reference(self, reference: Ref) -> Ref:
        """A reference that a stage of the part made, as one within the compilation."""
        known = self._references.get(reference)
        if known is None:
            known = self._references[reference] = self._within(reference)
        return known

    def references(self, references: tuple[Ref, ...]) -> tuple[Ref, ...]:
        """The same for several; equal ones are one tuple."""
        known = self._of_several.get(references)
        if known is None:
            known = self._of_several[references] = tuple(map(self.reference, references))
        return known

    def _within(self, reference: Ref) -> Ref:
        stage, name, item = split_ref(reference)
        if stage == "capture":
            return ref(stage, self.path + item, name)
        if stage in GRAPHS and self.part in GRAPHS:
            return ref(self.part, item, name) if stage == "forward" else reference
        return ref(stage, item, self.name(name)) if stage in (*GRAPHS, *PER_PART) else reference

    def _renamed(self, record: Any) -> Any:
        """A copy of a record, and of all records in it, with other references and names."""
        kind: Any = type(record)
        if kind is CodeLine:  # there are many
            return CodeLine(record.text, self.references(record.origins)) if record.origins else record
        if kind is LoopStatement:
            return LoopStatement(record.id, record.op, record.text, record.dtype, record.args,
                                 self.references(record.origins))
        names = NAMES.get(kind, ())
        changes: dict[str, Any] = {}
        for field in _fields_that_refer(kind):
            value = getattr(record, field)
            if not value:
                continue
            if field == "origins":
                changes[field] = self.references(value)
            elif field in names:
                changes[field] = self.name(value) if isinstance(value, str) else tuple(map(self.name, value))
            elif field == "decision":
                decided, _, subject = value.partition(":")
                changes[field] = f"{decided}:{self.name(subject)}"
            elif isinstance(value, tuple):
                if _may_refer(value[0]):  # they are all of one type
                    changes[field] = tuple(map(self._renamed, value))
            elif _may_refer(value):
                changes[field] = self._renamed(value)
        return msgspec.structs.replace(record, **changes) if changes else record


@cache  # types of records
def _fields_that_refer(kind: Any) -> tuple[str, ...]:
    """The fields of a record whose values may hold references or names, as their types say: trees of arguments (Any)
    hold none."""
    own = ("origins", "decision", *NAMES.get(kind, ()))
    return tuple(field.name for field in msgspec.structs.fields(kind)
                 if field.name in own or any(map(_is_record, _parts(field.type))))


def _parts(annotation: Any) -> list[Any]:
    """A type and all that it is made of."""
    return [annotation, *(part for inner in get_args(annotation) for part in _parts(inner))]


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in _REFER_TO_NOTHING


def _may_refer(value: object) -> bool:
    kind: Any = type(value)
    return isinstance(value, msgspec.Struct) and bool(_fields_that_refer(kind))
