"""Syntax highlighting of visible lines: Pygments on chunks, cached."""
from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rich.segment import Segment
from rich.style import Style

from ..artifacts.listing import Line

if TYPE_CHECKING:  # the first screen shows no code, and does not wait for Pygments
    from pygments.lexer import Lexer

CHUNK = 200  # lines; a string that crosses the border of a chunk is highlighted as if it began there
CHUNKS = 50  # that are kept: ten thousand lines
MAX_LENGTH = 1000  # characters of a line that are drawn; a longer one ends in "…"
STYLES = {True: "github-dark", False: "default"}


class Highlighter:
    """Segments of lines in one language."""

    def __init__(self, lines: tuple[Line, ...], language: str, dark: bool) -> None:
        self._lines = lines
        self._lexer = _lexer(language)
        self._styles = _token_styles(STYLES[dark]) if self._lexer is not None else {}
        self._chunks: dict[int, list[list[Segment]]] = {}

    def text(self, row: int) -> str:
        """The text that is drawn in a row."""
        text = self._lines[row].text
        return text if len(text) <= MAX_LENGTH else text[:MAX_LENGTH] + "…"

    def segments(self, row: int) -> list[Segment]:
        """The segments of a row; their styles have no background."""
        if self._lexer is None:
            return [Segment(self.text(row))]
        chunk = row // CHUNK
        if chunk not in self._chunks:
            if len(self._chunks) == CHUNKS:
                self._chunks.pop(next(iter(self._chunks)))
            self._chunks[chunk] = self._highlight(self._lexer, [
                self.text(one) for one in range(chunk * CHUNK, min((chunk + 1) * CHUNK, len(self._lines)))])
        return self._chunks[chunk][row % CHUNK]

    def _highlight(self, lexer: Lexer, texts: list[str]) -> list[list[Segment]]:
        rows: list[list[Segment]] = [[]]
        for token, value in lexer.get_tokens("\n".join(texts)):
            style = self._styles.get(token)
            if style is None:
                style = self._styles[token] = _inherited(token, self._styles)
            first, *rest = value.split("\n")
            if first:
                rows[-1].append(Segment(first, style))
            for part in rest:
                rows.append([Segment(part, style)] if part else [])
        rows += [[] for _ in range(len(texts) - len(rows))]
        return rows


def _lexer(language: str) -> Lexer | None:
    if language == "text":
        return None
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@lru_cache(maxsize=4)
def _token_styles(name: str) -> dict[Any, Style]:
    from pygments.styles import get_style_by_name

    styles = {}
    for token, look in get_style_by_name(name):
        styles[token] = Style(color=f"#{look['color']}" if look["color"] else None, bold=look["bold"] or None,
                              italic=look["italic"] or None)
    return styles


def _inherited(token: Any, styles: dict[Any, Style]) -> Style:
    while token.parent is not None and token not in styles:
        token = token.parent
    return styles.get(token, Style())
