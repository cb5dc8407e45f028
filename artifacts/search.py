"""Search for text in everything that a recording holds: the run, the program, every stage of every compilation.

What is searched is what is shown: the lines of the listings. Making the listings of a large recording takes minutes, so
artifacts whose stored record holds a word of the text come first, small ones before large ones, and last those in which
only the words of the listing itself could match.
"""
from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from .listing import Line, text_lines
from .machine_lines import PREFERRED
from .recording import ArtifactInfo, Recording, RecordingError
from .records import Kernel
from .render import listing
from .render_run import render_run
from .stages import order_of
from .word_scan import WordScan, holds

SOURCE = "source"
"""In the place of a stage: a file of the program, whose path is the name."""
LARGE = 5000
"""Items of an artifact above which its listing takes a while."""
AHEAD = 8
"""Compilations whose records are being looked through while the one before is searched."""
T = TypeVar("T")


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


@dataclass(frozen=True)
class Step:
    """What one place had, and how far the search is: `share` (0 to 1) of the part that it is in. What was recorded is
    searched first; `is_added` while only words that the listings add, as "nodes", could still match."""

    found: list[Found]
    share: float
    is_added: bool = False


def search(recording: Recording, text: str, scope: Scope = Scope()) -> Iterator[Step]:
    """The matching lines, one step for each place that was searched (empty where there are none), so that the caller
    can stop, or show how far it is. Case is ignored where `text` has no capitals."""
    if not scope.compile and not scope.stage:
        yield Step(_of_lines(Place(), render_run(recording).lines, text), 0.0)
    if not scope.stage:
        for path in recording.sources():
            yield Step(_of_lines(Place("", SOURCE, path), text_lines(recording.source(path) or ""), text), 0.0)
    large: list[ArtifactInfo] = []
    told: set[str] = set()  # compilations whose decisions hold the word
    compiles = [scope.compile] if scope.compile else [info.id for info in recording.compiles()]
    with WordScan(max(re.findall(r"\w+", text), key=len, default="")) as scan:
        for number, (infos, ended) in enumerate(_ahead(_looked_through(recording, compiles, scope, scan))):
            ended()
            share = (number + 1) / len(compiles)
            is_large = any(info.items > LARGE for info in infos)  # other stages' listings may read that one, too
            for info in infos:
                if scan.found(info) and is_large:
                    large.append(info)
                elif scan.found(info):
                    yield Step(_of_artifact(recording, info, text), share)
            if any(holds(content, scan.word) for content in _decisions(recording, compiles[number], scope)):
                told.add(compiles[number])
                yield Step(_of_decisions(recording, compiles[number], text), share)
            yield Step([], share)
    for info in sorted(large, key=lambda info: info.items):
        yield Step(_of_artifact(recording, info, text), 1.0)
    for number, compile_id in enumerate(compiles):
        share = number / len(compiles)
        for info in _artifacts(recording, compile_id, scope):
            if not scan.found(info):
                yield Step(_of_artifact(recording, info, text), share, True)
        if compile_id not in told and any(_decisions(recording, compile_id, scope)):
            yield Step(_of_decisions(recording, compile_id, text), share, True)


def _looked_through(
    recording: Recording, compiles: list[str], scope: Scope, scan: WordScan,
) -> Iterator[tuple[list[ArtifactInfo], Callable[[], None]]]:
    """Of each compilation the artifacts, and what waits until they are looked through."""
    for compile_id in compiles:
        infos = _artifacts(recording, compile_id, scope)
        yield infos, scan.begin(recording, infos)


def _decisions(recording: Recording, compile_id: str, scope: Scope) -> Iterator[bytes]:
    return recording.encoded_decisions(compile_id) if scope.stage in ("", "decisions") else iter(())


def _ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items, each when AHEAD more have been begun."""
    begun: deque[T] = deque()
    for item in items:
        begun.append(item)
        if len(begun) > AHEAD:
            yield begun.popleft()
    yield from begun


def progress_text(step: Step, found: bool) -> str:
    """How far a search is; `found` says whether something was found so far."""
    if not step.is_added:
        return f"{step.share:.0%} of what was recorded is searched"
    nothing = "" if found else "nothing that was recorded matches; "
    return f"{nothing}{step.share:.0%} of what listings add to it is searched"


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
