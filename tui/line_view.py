"""Rows of one line each, drawn on demand, and a cursor: the base of every large widget of the workbench.

Textual's TextArea, RichLog, ListView and Tree do work for each of their rows; this does work for each visible row, so
200,000 rows open as fast as 20.
"""
from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Click
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip


class LineView(ScrollView, can_focus=True):
    """Subclasses give `row_count`, `row_text` and `row_segments`; what `row_gutter` gives does not scroll sideways."""

    ALLOW_SELECT = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {"line--cursor", "line--gutter", "line--marked", "line--match"}
    DEFAULT_CSS = """
    LineView {
        background: $surface; color: $foreground; overflow-x: auto; overflow-y: scroll; scrollbar-size-vertical: 1;
        scrollbar-size-horizontal: 1;
        & > .line--cursor { background: $primary 25%; }
        &:focus > .line--cursor { background: $primary 60%; text-style: bold; }
        & > .line--gutter { color: $foreground 80%; }
        & > .line--marked { background: $warning 30%; }
        & > .line--match { background: $warning 60%; text-style: underline; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", "down", show=False, id="line.down", tooltip="next line"),
        Binding("up,k", "move(-1)", "up", show=False, id="line.up", tooltip="previous line"),
        Binding("pagedown,ctrl+d,space", "page(1)", "page down", show=False, id="line.page-down", tooltip="next page"),
        Binding("pageup,ctrl+u", "page(-1)", "page up", show=False, id="line.page-up", tooltip="previous page"),
        Binding("home,g", "to(0)", "first", show=False, id="line.first", tooltip="first line"),
        Binding("end,G", "to(-1)", "last", show=False, id="line.last", tooltip="last line"),
        Binding("enter", "choose", "open", show=False, id="line.choose", tooltip="open, or go there"),
        Binding("right,l", "sideways(8)", "right", show=False, id="line.right", tooltip="scroll right; open a branch"),
        Binding("left,h", "sideways(-8)", "left", show=False, id="line.left", tooltip="scroll left; close a branch"),
    ]

    cursor: reactive[int] = reactive(0)
    _styles_of_lines: tuple[Style, Style] | None = None  # while lines are drawn

    class Moved(Message):
        """The cursor is on another row."""

        def __init__(self, view: LineView, row: int) -> None:
            super().__init__()
            self.view = view
            self.row = row

        @property
        def control(self) -> LineView:
            """The view whose cursor moved."""
            return self.view

    class Chosen(Moved):
        """Enter, or a click on the row where the cursor was."""

    # ---- what subclasses define --------------------------------------------------------------------------------------
    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return 0

    def row_text(self, row: int) -> str:
        """The text of a row without its gutter."""
        return ""

    def row_segments(self, row: int) -> list[Segment]:
        """The row without its gutter, in segments."""
        return [Segment(self.row_text(row))]

    def row_gutter(self, row: int) -> str:
        """What stands left of a row and does not scroll; all rows' gutters have one width."""
        return ""

    def row_style(self, row: int) -> Style | None:
        """A style laid over a row; where the view has the focus, the cursor's row has the cursor's instead."""
        return None

    def overlay(self, name: str) -> Style:
        """The style `line--NAME` without its text colour, to lay over highlighted text."""
        full = self.get_component_rich_style(f"line--{name}")
        return Style(bgcolor=full.bgcolor, bold=full.bold or None, underline=full.underline or None)

    # ---- drawing ----------------------------------------------------------------------------------------------------
    def content_changed(self, width: int, cursor: int = 0) -> None:
        """There are other rows now, at most `width` cells wide."""
        self.virtual_size = Size(width, self.row_count)
        self.set_reactive(LineView.cursor, max(0, min(cursor, self.row_count - 1)))
        self.scroll_to(0, 0, animate=False, force=True, immediate=True)
        self.show_row(self.cursor, centre=True)
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """The strips of a region; what all lines have in common is looked up once."""
        self._styles_of_lines = self._base_and_gutter()
        try:
            return super().render_lines(crop)
        finally:
            self._styles_of_lines = None

    def render_line(self, y: int) -> Strip:
        """The strip at line `y` of the widget. A strip has seven caches, so few are made on the way."""
        scroll_x, scroll_y = self.scroll_offset
        row, width = scroll_y + y, self.size.width
        base, gutter_style = self._styles_of_lines or self._base_and_gutter()
        if row >= self.row_count:
            return Strip.blank(width, base)
        gutter = self.row_gutter(row)
        body = Strip(self.row_segments(row)).crop_extend(scroll_x, scroll_x + max(0, width - len(gutter)), None)
        over = self.row_style(row)
        if row == self.cursor and (over is None or self.has_focus):
            over = self.overlay("cursor")
        x = scroll_x - len(gutter)
        segments = []
        for text, style, _ in (Segment(gutter, gutter_style), *body):
            full = base + style if style else base
            full = full if over is None else full + over
            segments.append(Segment(text, full + Style.from_meta({"offset": (x, row)})))  # for selections
            x += len(text)
        return Strip(segments, len(gutter) + body.cell_length).crop(0, width)

    def _base_and_gutter(self) -> tuple[Style, Style]:
        return self.rich_style, Style(color=self.get_component_rich_style("line--gutter").color)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text that was selected with the mouse."""
        return selection.extract("\n".join(self.row_text(row) for row in range(self.row_count))), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Draw again when the mouse selects."""
        self.refresh()

    # ---- moving -----------------------------------------------------------------------------------------------------
    def show_row(self, row: int, centre: bool = False) -> None:
        """Scroll so that a row is seen."""
        height, top = self.scrollable_content_region.height or self.size.height, self.scroll_offset.y
        margin = min(3, height // 4) if centre else 0
        if top + margin <= row < top + height - margin:
            return
        if centre:
            wanted = row - height // 2
        else:
            wanted = row if row < top else row - height + 1
        self.scroll_to(y=max(0, wanted), animate=False, force=True, immediate=True)

    def validate_cursor(self, row: int) -> int:
        """Keep the cursor on a row."""
        return max(0, min(row, self.row_count - 1))

    def watch_cursor(self, old: int, new: int) -> None:
        """Draw the two rows, and tell the screen."""
        self.refresh_line(old)
        self.refresh_line(new)
        self.show_row(new)
        if old != new:
            self.post_message(self.Moved(self, new))

    def action_move(self, by: int) -> None:
        """Move the cursor by rows."""
        self.cursor += by

    def action_page(self, by: int) -> None:
        """Move the cursor by pages."""
        self.cursor += by * max(1, self.size.height - 2)

    def action_to(self, row: int) -> None:
        """Move the cursor to a row; -1 is the last."""
        self.cursor = self.row_count - 1 if row < 0 else row

    def action_sideways(self, by: int) -> None:
        """Scroll by columns."""
        self.scroll_to(x=max(0, self.scroll_offset.x + by), animate=False, force=True)

    def action_choose(self) -> None:
        """Choose the cursor's row."""
        if self.row_count:
            self.post_message(self.Chosen(self, self.cursor))

    def on_resize(self) -> None:
        """Another height: the cursor stays in sight."""
        self.show_row(self.cursor, centre=True)

    def on_click(self, event: Click) -> None:
        """Put the cursor on the row; a second click chooses it."""
        row = event.y + self.scroll_offset.y
        if row < self.row_count:
            chosen = row == self.cursor and event.chain > 1
            self.cursor = row
            if chosen:
                self.action_choose()
