"""Text of a recording for Textual, with markup and control sequences taken literally."""
from __future__ import annotations

from textual.content import Content

from ..artifacts.listing import printable


def plain(text: str) -> Content:
    """`text`, taken literally."""
    return Content(printable(text))
