"""Text of a recording for Textual, with markup and control sequences taken literally."""
from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from ..artifacts.listing import printable


def plain(text: str) -> Content:
    """`text`, taken literally."""
    return Content(printable(text))


class TextLine(Static):
    """A title or a status: one line, whatever its text, so that another text changes no other widget's place."""

    def __init__(self, text: str = "", *, id: str) -> None:
        super().__init__(plain(text), id=id, markup=False)
        self._text = text

    def say(self, text: str) -> None:
        """Show another text."""
        if text != self._text:
            self._text = text
            self.update(plain(text), layout=False)
