"""The program's own lines, which say that two items are the same one after an edit has moved them."""
from __future__ import annotations

from functools import lru_cache

from ..recording import Recording
from ..records import Location


class ProgramText:
    """The source files of a recording, each read once, and the compiler whose artifacts it has."""

    def __init__(self, recording: Recording) -> None:
        self._lines = lru_cache(maxsize=None)(self._read)
        self.recording = recording
        self.compiler: str = recording.meta.get("compiler", "ptdebug")

    def line(self, place: Location) -> str:
        """The text of a line, stripped; where the file was not kept, its file and number."""
        lines = self._lines(place.file)
        if 1 <= place.line <= len(lines):
            return lines[place.line - 1]
        return f"{place.file.rpartition('/')[2]}:{place.line}"

    def _read(self, path: str) -> list[str]:
        return [line.strip() for line in (self.recording.source(path) or "").split("\n")]
