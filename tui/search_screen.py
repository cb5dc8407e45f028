"""Search in every artifact and source file of a recording."""
from __future__ import annotations

import time
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input
from textual.worker import get_current_worker

from ..artifacts.listing import Line, Listing, printable
from ..artifacts.search import progress_text
from .code_view import CodeView
from .key_bar import KeyBar
from .line_view import LineView
from .plain import TextLine
from .session import Match, Session, short_name

SHOW_EVERY = 0.25  # seconds
LIMIT = 1000  # matches; there is no sense in reading more


class SearchScreen(Screen["Match | None"]):
    """An input, and the lines that contain its text; the screen's result is the line that was chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back", id="search.leave", tooltip="back to the panes"),
        Binding("tab,down", "app.focus_next", "results", id="search.results", tooltip="to the results"),
        Binding("slash", "ask", "search", key_display="/", id="search.ask", tooltip="search for something else"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._matches: list[Match] = []

    def compose(self) -> ComposeResult:
        """Input and results."""
        yield TextLine("search in all artifacts and the program", id="title")
        yield Input(placeholder="text, then enter", id="query")
        yield CodeView(id="results", numbers=False)
        yield TextLine(id="status")
        yield KeyBar()

    def on_mount(self) -> None:
        """Ask for the text."""
        self.query_one("#query").focus()

    @on(Input.Submitted)
    def _submitted(self, message: Input.Submitted) -> None:
        if message.value:
            self._matches = []
            self.query_one("#results", CodeView).query_text = message.value
            self._show([], "searching ...")
            self._search(message.value)

    @work(thread=True, exclusive=True, group="search", exit_on_error=False)
    def _search(self, text: str) -> None:
        worker = get_current_worker()
        found: list[Match] = []
        shown, last = 0, time.monotonic()
        for step, matches in self._session.search(text):
            if worker.is_cancelled:
                return
            found += matches
            if len(found) >= LIMIT:
                break
            if (found and not shown) or time.monotonic() - last > SHOW_EVERY:
                shown, last = len(found), time.monotonic()
                self.app.call_from_thread(self._show, found[:], progress_text(step, bool(found)))
        self.app.call_from_thread(self._show, found[:LIMIT], "there are more" if len(found) >= LIMIT else "")

    def _show(self, found: list[Match], note: str) -> None:
        first = not self._matches
        if len(found) != len(self._matches) or not found:
            self._matches = found
            width = max((len(short_name(match.target)) for match in found), default=0)
            texts = [f"{short_name(m.target):<{width}} {m.row + 1:>5}  {m.text.strip()}" for m in found]
            results = self.query_one("#results", CodeView)
            results.show(Listing("results", "text", tuple(Line(printable(text)) for text in texts)),
                         0 if first else results.cursor)
            if found and first:
                results.focus()
        counted = f"{len(found)} lines{f' ({note})' if note else ''}; enter opens one"
        self.query_one("#status", TextLine).say(counted if found else note or "no match")

    @on(LineView.Chosen, "#results")
    def _chosen(self, message: LineView.Chosen) -> None:
        self.dismiss(self._matches[message.row])

    def action_ask(self) -> None:
        """Back to the input."""
        self.query_one("#query").focus()

    def action_leave(self) -> None:
        """Back without a result."""
        self.dismiss(None)
