"""Search for text in everything that a recording holds: the run, the program, every stage of every compilation.

What is searched is what is shown: the lines of the listings. Making the listings of a large recording takes minutes, so
artifacts whose stored record holds a word of the text come first, small ones before large ones, and last those in which
only the words of the listing itself could match.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .listing import Line, text_lines
from .machine_lines import PREFERRED
from .recording import ArtifactInfo, Recording, RecordingError
from .records import Kernel
from .render import listing
from .render_run import render_run
from .stages import order_of

SOURCE = "source"
"""In the place of a stage: a file of the program, whose path is the name."""
LARGE = 5000
"""Items of an artifact above which its listing takes a while."""


@dataclass(frozen=True)
class Place:
    """What is searched: an artifact, a file of the program, or (without a stage) the facts about the run."""

    compile: str = ""
    stage: str = ""
    name: str = ""


@dataclass(frozen=True)
class Found:
    """A line that holds the text; `row` counts from 0."""

    place: Place
    row: int
    text: str


@dataclass(frozen=True)
class Scope:
    """What a search is limited to; "" is everything."""

    compile: str = ""
    stage: str = ""
    name: str = ""


def search(recording: Recording, text: str, scope: Scope = Scope()) -> Iterator[list[Found]]:
    """The matching lines, one list for each place that was searched (empty where there are none), so that the caller
    can stop, or show how far it is. Case is ignored where `text` has no capitals."""
    if not scope.compile and not scope.stage:
        yield _of_lines(Place(), render_run(recording).lines, text)
    if not scope.stage:
        for path in recording.sources():
            yield _of_lines(Place("", SOURCE, path), text_lines(recording.source(path) or ""), text)
    word = max(re.findall(r"\w+", text), key=len, default="").lower().encode()
    large: list[ArtifactInfo] = []
    unlikely: list[ArtifactInfo | str] = []
    for compile_id in [scope.compile] if scope.compile else [info.id for info in recording.compiles()]:
        infos = _artifacts(recording, compile_id, scope)
        has_large = any(info.items > LARGE for info in infos)  # listings of its other stages may read that one, too
        for info in infos:
            if has_large:
                large.append(info)
                yield []
            elif recording.holds(info, word):
                yield _of_artifact(recording, info, text)
            else:
                unlikely.append(info)
                yield []
        if scope.stage in ("", "decisions") and recording.count_decisions(compile_id):
            unlikely.append(compile_id)
    for info in sorted(large, key=lambda info: (not recording.holds(info, word), info.items)):
        yield _of_artifact(recording, info, text)
    for left in unlikely:
        yield _of_decisions(recording, left, text) if isinstance(left, str) else _of_artifact(recording, left, text)


def find_rows(lines: tuple[Line, ...], text: str) -> list[int]:
    """The rows that hold `text`; case is ignored where `text` has no capitals."""
    if not text:
        return []
    if text == text.lower():
        return [row for row, line in enumerate(lines) if text in line.text.lower()]
    return [row for row, line in enumerate(lines) if text in line.text]


def _artifacts(recording: Recording, compile_id: str, scope: Scope) -> list[ArtifactInfo]:
    if scope.stage == "decisions":
        return []
    found = recording.artifacts(compile_id, scope.stage or None, name=scope.name or None)
    return sorted(found, key=lambda info: order_of(info.stage))


def _of_artifact(recording: Recording, info: ArtifactInfo, text: str) -> list[Found]:
    found = []
    for name in (info.name, *_forms(recording, info)):
        try:
            shown = listing(recording, info.compile, info.stage, name)
        except RecordingError:  # damaged
            continue
        found += _of_lines(Place(info.compile, info.stage, name), shown.lines, text)
    return found


def _forms(recording: Recording, info: ArtifactInfo) -> list[str]:
    """The names of a kernel's compiled forms (asm, ptx, ...)."""
    if info.kind != "Kernel":
        return []
    record = recording.find(Kernel, info.compile, info.stage, info.name)
    outputs = list(record.outputs) if record is not None else []
    return [f"{info.name}.{form}" for form in sorted(outputs, key=lambda form: (form not in PREFERRED, form))]


def _of_decisions(recording: Recording, compile_id: str, text: str) -> list[Found]:
    return _of_lines(Place(compile_id, "decisions"), listing(recording, compile_id, "decisions").lines, text)


def _of_lines(place: Place, lines: tuple[Line, ...], text: str) -> list[Found]:
    return [Found(place, row, lines[row].text) for row in find_rows(lines, text)]
