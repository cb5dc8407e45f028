"""What differs between two compilations, two stages or two recordings."""
from __future__ import annotations

import sys
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from ..artifacts.diff.compilations import Comparison, Side
from ..artifacts.diff.recordings import diff_recordings
from ..artifacts.diff.render import render_compilations, render_recordings, render_stages
from ..artifacts.listing import Line, Listing
from ..artifacts.recording import RecordingError
from .code_view import CodeView
from .key_bar import KeyBar
from .plain import TextLine
from .session import SOURCE, Session, Target

CHANGES = ("  ~", "  - ", "  + ")
"""How the lines begin that are changes."""


class DiffScreen(Screen[None]):
    """The difference of a target of one session and a target of one (maybe the same) session."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,d", "leave", "back", id="diff.leave", tooltip="back"),
        Binding("n", "change(1)", "next", id="diff.next", tooltip="the next difference"),
        Binding("N", "change(-1)", "previous", id="diff.previous", tooltip="the previous difference"),
        Binding("right_square_bracket", "stage(1)", "stage", key_display="]", id="diff.stage",
                tooltip="the next stage"),
        Binding("left_square_bracket", "stage(-1)", "stage", key_display="[", show=False, id="diff.stage-back",
                tooltip="the previous stage"),
        Binding("y", "copy", "copy", id="diff.copy", tooltip="copy the command that prints this"),
    ]

    def __init__(self, first: Session, one: Target, second: Session, other: Target) -> None:
        super().__init__()
        self._sides = ((first, one), (second, other))

    def compose(self) -> ComposeResult:
        """Title, the difference, the command, the keys."""
        yield TextLine(id="title")
        yield CodeView(id="main", numbers=False)
        yield TextLine(f"$ {self.command}", id="status")
        yield KeyBar()

    @property
    def command(self) -> str:
        """The command that prints this."""
        return "ptdebug diff " + " ".join(session.selector(target) for session, target in self._sides)

    def on_mount(self) -> None:
        """Compare in the background."""
        names = [session.selector(target) for session, target in self._sides]
        self.query_one("#title", TextLine).say(f"{names[0]} -> {names[1]}")
        self.query_one("#main", CodeView).show(Listing("", "text", (Line("comparing ..."),)))
        self.query_one("#main").focus()
        self._compare()

    @work(thread=True, exclusive=True, group="diff", exit_on_error=False)
    def _compare(self) -> None:
        try:
            found = self._listing()
        except RecordingError as error:
            found = Listing("differences", "text", (Line(str(error)),))
        self.app.call_from_thread(self.query_one("#main", CodeView).show, found)

    def _listing(self) -> Listing:
        (first, one), (second, other) = self._sides
        if not one.compile:
            return render_recordings(diff_recordings(first.recording, second.recording), sys.maxsize)
        comparison = Comparison(Side.of(first.recording, one.compile), Side.of(second.recording, other.compile))
        if not one.stage or SOURCE in (one.stage, other.stage):
            return render_compilations(comparison.all(), sys.maxsize)
        if one.stage == other.stage:
            return render_stages(list(comparison.stage(one.stage)), sys.maxsize)
        infos = [session.recording.artifacts(t.compile, t.stage, name=t.name)[-1] for session, t in self._sides]
        return render_stages([comparison.artifact(*infos)], sys.maxsize)

    def _next(self, step: int, begins: tuple[str, ...]) -> None:
        view = self.query_one("#main", CodeView)
        rows = range(view.cursor + step, len(view.listing.lines) if step > 0 else -1, step)
        row = next((row for row in rows if view.listing.lines[row].text.startswith(begins)), None)
        if row is None:
            self.notify("there are no more" if step > 0 else "there are none before")
            return
        view.cursor = row
        view.show_row(row, centre=True)

    def action_change(self, step: int) -> None:
        """The next or previous difference."""
        self._next(step, CHANGES)

    def action_stage(self, step: int) -> None:
        """The next or previous stage or compilation."""
        self._next(step, ("-- ", "== "))

    def action_copy(self) -> None:
        """Copy the command."""
        self.app.copy_to_clipboard(self.command)
        self.query_one("#status", TextLine).say(f"copied  |  {self.command}")

    def action_leave(self) -> None:
        """Back."""
        self.dismiss()
