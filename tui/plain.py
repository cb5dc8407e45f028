"""Text of a recording as Textual shows it: neither its markup nor the terminal's control sequences mean anything."""
from __future__ import annotations

from textual.content import Content

from ..artifacts.listing import printable


def plain(text: str) -> Content:
    """`text`, letter by letter."""
    return Content(printable(text))
