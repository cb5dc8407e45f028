"""The graph breaks in the source text: where, why, and what to change."""
from __future__ import annotations

import textwrap
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.screen import Screen

from ..artifacts.break_edits import edit_of
from ..artifacts.listing import Line, Listing, printable, short_place
from ..artifacts.records import Break
from ..artifacts.render_lists import break_lines, edit_lines
from .act_screen import ActScreen
from .acts import Act
from .code_view import CodeView
from .key_bar import KeyBar
from .line_view import LineView
from .plain import TextLine, plain
from .session import SOURCE, Session, Target


class BreaksScreen(Screen["tuple[Target, int] | None"]):
    """A list of breaks, the reason of the chosen one, and the program with the line marked; Enter there leads to the
    compilation, the screen's result."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,b", "leave", "back", id="breaks.leave", tooltip="back to the panes"),
        Binding("o", "open", "open", id="breaks.open", tooltip="go to the compilation that broke"),
        Binding("x", "act", "try", id="breaks.act",
                tooltip="make the edit on a copy of the program, run it, and see whether the break goes"),
        Binding("tab", "app.focus_next", "pane", id="breaks.pane", tooltip="next pane"),
        Binding("y", "copy_command", "copy", id="breaks.copy", tooltip="copy the command that lists these"),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._breaks: list[tuple[str, Break, int]] = []  # none while they are being read

    def compose(self) -> ComposeResult:
        """List, reason, program."""
        yield TextLine("graph breaks: why functions were not compiled into one graph", id="title")
        yield CodeView(id="breaks", numbers=False)
        yield CodeView(id="reason", numbers=False)
        yield CodeView(id="program", mark="B")
        yield TextLine(f"$ {self._command()}", id="status")
        yield KeyBar()

    def on_mount(self) -> None:
        """Show the first break; what they cost takes a while in a large recording."""
        self.query_one("#breaks").focus()
        if self._session.is_large:
            self.query_one("#breaks", CodeView).show(Listing("", "text", (Line("reading the recording ..."),)))
            self._rank()
        else:
            self._ranked()

    @work(thread=True, exit_on_error=False)
    def _rank(self) -> None:
        assert self._session.breaks is not None
        self.app.call_from_thread(self._ranked)

    def _ranked(self) -> None:
        self._breaks = self._session.breaks
        texts = [_title(*entry) for entry in self._breaks] or ["the recording's graph breaks are damaged"]
        lines = tuple(Line(printable(text)) for text in texts)
        self.query_one("#breaks", CodeView).show(Listing("graph breaks", "text", lines))
        self._show(0)

    @on(LineView.Moved, "#breaks")
    def _moved(self, message: LineView.Moved) -> None:
        self._show(message.row)

    @on(LineView.Chosen, "#breaks")
    def _chosen(self) -> None:
        self.query_one("#program").focus()

    @on(LineView.Chosen, "#program")
    def action_open(self) -> None:
        """Go to the compilation that broke."""
        if self._breaks:
            owner, _, _ = self._breaks[self.query_one("#breaks", CodeView).cursor]
            self.dismiss((Target(owner, "breaks"), 0))

    def action_act(self) -> None:
        """Try the edit for this break, or what else can be done with its compilation."""
        row = self.query_one("#breaks", CodeView).cursor
        if not self._breaks:
            return
        owner, found, _ = self._breaks[row]
        words = ("breaks", self._session.selector(Target()), "--try", str(row + 1))
        there = edit_of(found, self._session.recording.source) is not None
        acts = (Act("try the edit on a copy of the program: does the break go?", words),) if there else ()
        self.app.push_screen(ActScreen(self._session, Target(owner), acts))

    def _show(self, row: int) -> None:
        if row >= len(self._breaks):
            return
        owner, found, _ = self._breaks[row]
        source = self._session.recording.source
        self._show_reason(break_lines(found, source, cost=self._session.break_costs[row]) + edit_lines(found, source))
        place = found.location
        program = self.query_one("#program", CodeView)
        program.show(self._session.listing(Target(owner, SOURCE, place.file)), place.line - 1, self._marks(place.file))
        program.border_title = plain(self._session.short_path(place.file))
        program.border_subtitle = "B: graph break"

    def _show_reason(self, lines: list[Line]) -> None:
        view = self.query_one("#reason", CodeView)
        width = max(30, self.size.width - 6)
        wrapped = [Line(part) for line in lines for part in textwrap.wrap(line.text, width, subsequent_indent="    ")]
        view.show(Listing("reason", "text", tuple(wrapped)))

    @on(Resize)
    def _wrap_again(self) -> None:
        self._show(self.query_one("#breaks", CodeView).cursor)

    def _marks(self, file: str) -> list[int]:
        return [found.location.line - 1 for _, found, _ in self._breaks if found.location.file == file]

    def _command(self) -> str:
        return f"ptdebug breaks {self._session.selector(Target())}"

    def action_copy_command(self) -> None:
        """Copy the command line that lists the breaks."""
        self.app.copy_to_clipboard(self._command())
        self.query_one("#status", TextLine).say(f"copied  |  {self._command()}")

    def action_leave(self) -> None:
        """Back to the panes."""
        self.dismiss(None)


def _title(owner: str, found: Break, times: int) -> str:
    often = f" (in {times} compilations)" if times > 1 else ""
    return f"{owner}  {short_place(found.location)}  {found.code}{often}  {found.source}"
