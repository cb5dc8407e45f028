"""A listing on the screen: line numbers, highlighted text, marks on the lines linked to another pane's line."""
from __future__ import annotations

from collections.abc import Collection

from rich.segment import Segment
from rich.style import Style
from textual.reactive import reactive

from ..artifacts.listing import Line, Listing
from ..artifacts.search import find_rows
from ..artifacts.weighted_cache import WeightedCache
from .highlight import MAX_LENGTH, Highlighter
from .line_view import LineView

EMPTY = Listing("", "text", ())
_highlighters: WeightedCache[tuple[int, bool], tuple[tuple[Line, ...], Highlighter]] = WeightedCache(20_000)
"""By the lines, which they keep alive, and whether the theme is dark."""


class CodeView(LineView):
    """Shows a listing. `marks` are rows with `mark` in the gutter; `query` is the text that a search underlines."""

    marks: reactive[frozenset[int]] = reactive(frozenset())

    def __init__(self, *, mark: str = "=", numbers: bool = True, id: str | None = None) -> None:
        super().__init__(id=id)
        self._numbers = numbers
        self.listing = EMPTY
        self.query_text = ""
        self._mark = mark
        self._matches: list[int] = []
        self._highlighter = Highlighter((), "text", True)
        self._number_width = 1

    def show(self, listing: Listing, row: int = 0, marks: Collection[int] = ()) -> None:
        """Show a listing with the cursor on `row`."""
        if listing is not self.listing:
            self.listing = listing
            self._restyle()
            self._number_width = len(str(len(listing.lines)))
            self._matches = find_rows(listing.lines, self.query_text)
        self.set_reactive(CodeView.marks, frozenset(marks))
        self.content_changed(min(listing.longest, MAX_LENGTH) + self._number_width + 3, row)

    def find(self, text: str) -> int:
        """Search for `text` from now on; returns how many lines contain it."""
        self.query_text = text
        self._matches = find_rows(self.listing.lines, text)
        self.refresh()
        return len(self._matches)

    def next_match(self, step: int) -> str:
        """Move to the next (1) or previous (-1) line that contains the search text; returns its position."""
        if not self.query_text:
            return "no search: press / first"
        if not self._matches:
            return f"no line contains {self.query_text}"
        if step > 0:
            index = next((i for i, row in enumerate(self._matches) if row > self.cursor), 0)
        else:
            index = next((i for i, row in reversed(list(enumerate(self._matches))) if row < self.cursor), -1)
        self.cursor = self._matches[index]
        self.show_row(self.cursor, centre=True)
        return f"match {index % len(self._matches) + 1} of {len(self._matches)}"

    @property
    def line(self) -> Line | None:
        """The line under the cursor."""
        return self.listing.lines[self.cursor] if self.cursor < len(self.listing.lines) else None

    @property
    def row_count(self) -> int:
        """How many lines the listing has."""
        return len(self.listing.lines)

    def row_text(self, row: int) -> str:
        """A line's text."""
        return self._highlighter.text(row)

    def row_segments(self, row: int) -> list[Segment]:
        """A line's text, highlighted, with the search's matches underlined."""
        segments = self._highlighter.segments(row)
        if not self.query_text:
            return segments
        return _underline(segments, self.row_text(row), self.query_text, self.overlay("match"))

    def row_gutter(self, row: int) -> str:
        """Cursor and mark as characters (never by colour alone), then the line number."""
        mark = ">" if row == self.cursor else self._mark if row in self.marks else " "
        both = row == self.cursor and row in self.marks
        number = f"{row + 1:>{self._number_width}} " if self._numbers else ""
        return f"{mark}{self._mark if both else ' '}{number}"

    def row_style(self, row: int) -> Style | None:
        """Marked rows stand out."""
        return self.overlay("marked") if row in self.marks else None

    def watch_marks(self) -> None:
        """Draw the marks."""
        self.refresh()

    def notify_style_update(self) -> None:
        """Another theme: other colours."""
        super().notify_style_update()
        self._restyle()

    def _restyle(self) -> None:
        """Highlighters are kept: one goes back to what was shown before."""
        lines, dark = self.listing.lines, self.app.current_theme.dark
        key = id(lines), dark
        if key not in _highlighters:
            _highlighters.put(key, (lines, Highlighter(lines, self.listing.language, dark)), len(lines))
        self._highlighter = _highlighters[key][1]


def _underline(segments: list[Segment], text: str, query: str, style: Style) -> list[Segment]:
    """Split segments where `query` occurs, and apply `style` to these parts."""
    haystack = text if query != query.lower() else text.lower()
    at = haystack.find(query)
    if at < 0:
        return segments
    cuts = []
    while at >= 0:
        cuts += [at, at + len(query)]
        at = haystack.find(query, at + len(query))
    found: list[Segment] = []
    position = 0
    for part, base, _ in segments:
        start = position
        position += len(part)
        inner = [cut for cut in cuts if start < cut < position]
        for left, right in zip([start, *inner], [*inner, position]):
            inside = sum(cut <= left for cut in cuts) % 2 == 1
            found.append(Segment(part[left - start: right - start], (base or Style()) + style if inside else base))
    return found
