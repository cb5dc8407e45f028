"""The tree on the left (see outline.py for its rows)."""
from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType

from ..artifacts.listing import printable
from .line_view import LineView
from .outline import Row, VisibleRows, opened_at_first
from .session import Session, Target

DIM = Style(dim=True)


class OutlineView(LineView):
    """Frames, compilations, stages and artifacts of a recording."""

    DEFAULT_CSS = "OutlineView { overflow-x: hidden; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "open", key_display="enter",
                id="outline.open", tooltip="show this; open or close a branch"),
    ]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._visible: VisibleRows | None = None

    def show(self, session: Session) -> None:
        """Show the tree of a recording."""
        self._visible = VisibleRows(session)
        for key in opened_at_first(session):
            index = self._visible.index(key)
            if index is not None:
                self._visible.toggle(index)
        self.content_changed(0)

    def grow(self, session: Session) -> None:
        """Show the tree of a recording that has grown: branches stay open, the cursor on its row."""
        before = self._visible
        if before is None or not before.rows:
            self.show(session)
            return
        key = before.rows[min(self.cursor, len(before.rows) - 1)].key
        fresh = VisibleRows(session)
        place = 0
        while place < len(fresh.rows):
            if fresh.rows[place].branch and fresh.rows[place].key in before.open:
                fresh.toggle(place)
            place += 1
        self._visible = fresh
        self._resize()
        self.set_reactive(LineView.cursor, fresh.index(key) or 0)
        self.refresh()

    def reveal(self, target: Target) -> None:
        """Put the cursor on the row that shows `target`."""
        if self._visible is None:
            return
        index = self._visible.reveal(target)
        if index is not None:
            self._resize()
            self.cursor = index

    def toggle(self) -> None:
        """Open or close the branch under the cursor."""
        if self._visible is not None:
            self._visible.toggle(self.cursor)
            self._resize()

    @property
    def rows(self) -> list[Row]:
        """The visible rows."""
        return self._visible.rows if self._visible else []

    @property
    def row_count(self) -> int:
        """How many rows are visible."""
        return len(self.rows)

    def row_text(self, row: int) -> str:
        """Indentation, a sign for branches, label and detail."""
        item = self.rows[row]
        sign = ("- " if self._is_open(item) else "+ ") if item.branch else "  "
        return printable(f"{'  ' * item.depth}{sign}{item.label}" + (f"  {item.detail}" if item.detail else ""))

    def row_segments(self, row: int) -> list[Segment]:
        """As `row_text`, with the detail dimmed."""
        item = self.rows[row]
        text = self.row_text(row)
        cut = len(text) - len(printable(item.detail)) if item.detail else len(text)
        return [Segment(text[:cut]), Segment(text[cut:], DIM)]

    def row_gutter(self, row: int) -> str:
        """The cursor as a character."""
        return ">" if row == self.cursor else " "

    def action_sideways(self, by: int) -> None:
        """Right opens a branch, left closes it or goes to its parent."""
        if not self.rows or self._visible is None:
            return
        item = self.rows[self.cursor]
        if item.branch and self._is_open(item) == (by < 0):
            self.toggle()
        elif by < 0:
            self.cursor = self._visible.parent(self.cursor)
        elif item.branch:
            self.cursor += 1
        else:
            self.action_choose()

    def _is_open(self, item: Row) -> bool:
        return self._visible is not None and item.key in self._visible.open

    def _resize(self) -> None:
        self.virtual_size = self.virtual_size.with_height(self.row_count)
        self.refresh()
