"""Selectors: `RECORDING[:F/C[:STAGE[:NAME]]]`, the one way to name something in a recording.

RECORDING is a path, the name of a recording, or `@` for the newest, `@~1` for the one before. Paths may contain
colons: the rest of a selector begins at the last `:F/C`. `RECORDING:STAGE` means that stage of the first compilation
that has it. A compilation of a child process is `F/C@PID`; of a rank of a distributed program, `F/C@rankN`.
"""
from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from .database import has_database
from .home import existing_home, recordings
from .recording import Recording, RecordingError
from .stages import HAVING_FORMS, NAMES
from .tables import DATABASE, PACKED

_COMPILE = re.compile(r":(\d+/\d+(?:@(?:rank)?\d+)?)(?=:|$)")
_NEWEST = re.compile(r"@(?:~(\d+))?$")


class SelectorError(RecordingError):
    """A selector that cannot be parsed, or that names nothing."""


@dataclass(frozen=True)
class Selector:
    """A parsed selector. Parts that were not given are ""."""

    recording: str = "@"
    compile: str = ""
    stage: str = ""
    name: str = ""

    def __str__(self) -> str:
        parts = [self.recording, self.compile, self.stage, self.name]
        while parts and not parts[-1]:
            parts.pop()
        return ":".join(part for part in parts if part)


def parse(text: str) -> Selector:
    """Parse a selector. Raises SelectorError for a stage that does not exist."""
    text = text or "@"
    matches = list(_COMPILE.finditer(text))
    if matches:
        head, compile_id, rest = text[: matches[-1].start()], matches[-1].group(1), text[matches[-1].end() + 1:]
        stage, _, name = rest.partition(":")
        return Selector(head or "@", compile_id, _stage(stage), name)
    head, colon, rest = text.partition(":")
    if colon and _NEWEST.match(head) and rest:  # only a compilation or a stage can follow `@:`
        stage, _, name = rest.partition(":")
        return Selector(head, "", _stage(stage), name)
    match = re.search(rf":({'|'.join(NAMES)})(?::(.*))?$", text)
    if match:
        return Selector(text[: match.start()] or "@", "", match.group(1), match.group(2) or "")
    return Selector(text)


def find(selector: Selector, home: str | os.PathLike[str] | None = None) -> Path:
    """The folder of the selector's recording. Raises SelectorError, which says what exists."""
    folder = existing_home(home)
    text = selector.recording
    newest = _NEWEST.match(text)
    if newest:
        found, back = recordings(folder), int(newest.group(1) or 0)
        if back < len(found):
            return found[back]
        if not found:
            raise SelectorError(f"no recordings in {folder}: make one with `ptdebug run SCRIPT`")
        raise SelectorError(f"{text}: there are {len(found)} recordings in {folder} (@ to @~{len(found) - 1})")
    path = Path(text)
    if path.name == DATABASE and has_database(path.parent):
        return path.parent
    for candidate in (folder / text, path):
        if has_database(candidate):
            return candidate
    inside = recordings(path)
    if inside:
        return inside[0]
    if path.suffix == PACKED and path.is_file():
        raise SelectorError(f"{text} is a packed recording: `ptdebug unpack {text}` makes a recording of it")
    raise SelectorError(f"no recording {text}{_nearest(text, [p.name for p in recordings(folder)])}")


def open_selected(text: str, home: str | os.PathLike[str] | None = None) -> tuple[Recording, Selector]:
    """Open the recording that a selector names; the returned selector has its parts checked and completed.

    A stage without a compilation gets the first compilation that has this stage. Raises RecordingError.
    """
    selector = parse(text)
    recording = Recording.open(find(selector, home))
    try:
        return recording, _complete(recording, selector)
    except RecordingError:
        recording.close()
        raise


def _complete(recording: Recording, selector: Selector) -> Selector:
    compile_id, stage, name = selector.compile, selector.stage, selector.name
    if compile_id:
        known = [info.id for info in recording.compiles()]
        if compile_id not in known:
            raise SelectorError(f"{recording.name} has no compilation {compile_id}{_nearest(compile_id, known)}")
    elif stage:
        having = [info.id for info in recording.compiles() if stage in recording.stages(info.id)]
        if not having:
            raise SelectorError(f"no compilation of {recording.name} has the stage {stage}")
        compile_id = having[0]
    if stage and name and stage != "decisions":
        names = [info.name for info in recording.artifacts(compile_id, stage)]
        is_form = stage in HAVING_FORMS and name.rpartition(".")[0] in names  # unit_0.asm, attempt_1.12
        if name not in names and not is_form:
            raise SelectorError(f"{compile_id}:{stage} has no {name}{_nearest(name, names)}")
    return Selector(selector.recording, compile_id, stage, name)


def _stage(text: str) -> str:
    if text and text not in NAMES:
        raise SelectorError(f"no stage {text}{_nearest(text, list(NAMES))}")
    return text


def _nearest(text: str, known: list[str]) -> str:
    """`; did you mean X?` if something is near, else what exists."""
    near = difflib.get_close_matches(text, known, 1)
    if near:
        return f"; did you mean {near[0]}?"
    if not known:
        return ""
    return f"; there {'is' if len(known) == 1 else 'are'}: {', '.join(known[:10])}{', ...' if len(known) > 10 else ''}"
