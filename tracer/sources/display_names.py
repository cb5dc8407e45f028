"""Locations and objects as the user would name them: `self.layers[0].weight`, `x.sum() > 20`."""
from __future__ import annotations

import linecache
import re

from ...artifacts.records import Location
from .source import Source

_LONGEST = 100
_BLOCK = re.compile(r"(async |)(if|elif|for|with|while|class|def|match)\b.*:( *#.*)?$")
"""Statements that begin a block: messages quote their first line only."""


def display_name(source: Source) -> str:
    """The object behind `source` as the user would write it."""
    return source.display_name


def line_of(location: Location) -> str:
    """The text of the line, "" when the file is not there."""
    return linecache.getline(location.file, location.line).strip()


def expression_of(location: Location) -> str:
    """The text between the location's columns, on one line; the whole line where no columns are known."""
    if location.column < 0 or location.end_column < 0:
        return line_of(location)
    if location.end_line > location.line and _BLOCK.match(line_of(location)):
        return line_of(location)
    lines = [linecache.getline(location.file, number) for number in range(location.line, location.end_line + 1)]
    if not lines or not lines[0]:
        return ""
    encoded = [line.encode() for line in lines]  # columns count bytes
    encoded[-1] = encoded[-1][: location.end_column]
    encoded[0] = encoded[0][location.column :]
    text = " ".join(part.decode(errors="replace").strip() for part in encoded)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
