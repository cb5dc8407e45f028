"""What a decision is about, as references: those that it carries, and the items that its subject names.

A subject is an ATen node, a buffer, a kernel, two buffers ("buf3+buf4"), a part of a kernel ("fused_0_add:buf3") or a
place of the program ("helper@model.py:12"); in a part of a compilation with the part's name in front. What names none
of these ("graph", a size) belongs to the function that was compiled.
"""
from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress

from .listing import place_refs, source_ref
from .recording import Recording, RecordingError
from .records import AnyRecord, Decision, Graph, Loops, Pass, Ref, Schedule, ref

_PLACE = re.compile(r"@([^@:]+):(\d+)$")
_CUTS = re.compile(r"[+:@]")


class Subjects:
    """The items of one compilation that subjects of decisions name."""

    def __init__(self, recording: Recording, compile_id: str) -> None:
        self._items: dict[str, dict[Ref, None]] = defaultdict(dict)
        self._files: dict[str, str] = {path.rpartition("/")[2]: path for path in recording.sources()}
        self._function = ""
        with suppress(RecordingError):
            info = recording.compile(compile_id)
            self._function = source_ref(info.file, info.line)
            self._files[info.file.rpartition("/")[2]] = info.file

    def add(self, record: AnyRecord, stage: str, name: str, key: Ref) -> None:
        """Take in the names of what a record holds."""
        if isinstance(record, Loops):
            self._items[name][key] = None
        elif isinstance(record, Schedule):
            for group in record.groups:
                self._items[_within(name, group.kernel)][f"{key}#{group.id}"] = None
        elif isinstance(record, (Graph, Pass)) and stage in ("forward", "backward", "joint", "passes"):
            graph = record.graph if isinstance(record, Pass) else record
            part = name.rpartition(".")[0] if stage == "passes" else _within(name, "" if stage == "forward" else stage)
            for node in graph.nodes:
                self._items[_within(part, node.id)][f"{key}#{node.id}"] = None

    def edges(self, decision: Decision) -> Iterator[tuple[Ref, Ref]]:
        """From a decision to each item that it is about."""
        places = place_refs((decision.location,)) if decision.location else ()
        known = (*decision.origins, *places, *self._named(decision.subject))
        for origin in dict.fromkeys(known) or ((self._function,) if self._function else ()):
            yield ref("decisions", decision.id), origin

    def _named(self, subject: str) -> tuple[Ref, ...]:
        place = _PLACE.search(subject)
        if place is not None and place[1] in self._files:
            return (source_ref(self._files[place[1]], int(place[2])),)
        words = _CUTS.split(subject)
        part = words[0].rpartition(".")[0]
        found: dict[Ref, None] = {}
        for word in words:
            for name in (word, word.partition("-")[2], _within(part, word)):
                found.update(self._items.get(name, {}))
        return tuple(found)


def _within(part: str, name: str) -> str:
    return ".".join(filter(None, (part, name)))
