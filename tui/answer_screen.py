"""One question's answer: its rows, foldable and filtered, with the details of the selected one wrapped beside them."""
from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.events import Resize
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Input

from ..artifacts.listing import Line, Listing, printable
from .act_screen import ActScreen
from .answers.answer import Answer, Fixed, Question, filtered, is_branch, rows_of, unfolded
from .code_view import CodeView
from .diff_screen import DiffScreen
from .key_bar import KeyBar
from .line_view import LineView
from .plain import TextLine
from .session import Session, Target

BESIDE = 110
"""Cells from which on the details stand beside the rows, in two fifths of the screen (workbench.tcss)."""
DETAILS_AFTER = 0.06
"""Seconds that the cursor rests in a large recording before the details of its row are read."""
CLOSED_ABOVE = 60
"""Rows of an answer above which its branches are closed at first."""


class AnswerView(LineView):
    """The rows of an answer."""

    DEFAULT_CSS = "AnswerView { overflow-x: hidden; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose", "open", key_display="enter",
                id="answer.open", tooltip="go to what this row is about"),
    ]

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.answers: list[Answer] = []
        self.places: list[int] = []
        self.closed: set[int] = set()
        self.query_text = ""

    def show(self, answers: list[Answer]) -> None:
        """Show an answer; a long one with its branches closed."""
        self.answers = answers
        branches = {place for place in range(len(answers)) if is_branch(answers, place)}
        top = {place for place in branches if answers[place].depth == 0}
        self.closed = branches if len(answers) > CLOSED_ABOVE else set()
        if len(top) == 1:
            self.closed -= top
        self._visible()
        self.content_changed(0)

    def filter(self, text: str) -> int:
        """Show the rows that hold the words of `text` alone; returns how many there are."""
        self.query_text = text
        if text:
            self.closed = set()
        self._visible()
        self.content_changed(0)
        return len(self.places)

    def toggle(self, place: int) -> None:
        """Open or close a branch."""
        self.closed ^= {place}
        self._visible()
        self.virtual_size = self.virtual_size.with_height(self.row_count)
        self.refresh()

    @property
    def answer(self) -> Answer | None:
        """The selected row."""
        return self.answers[self.places[self.cursor]] if self.cursor < len(self.places) else None

    @property
    def row_count(self) -> int:
        """How many rows are shown."""
        return len(self.places)

    def row_text(self, row: int) -> str:
        """Indentation, a sign for branches, the title."""
        place = self.places[row]
        sign = ("+ " if place in self.closed else "- ") if is_branch(self.answers, place) else "  "
        return printable(f"{'  ' * self.answers[place].depth}{sign}{self.answers[place].title}")

    def row_segments(self, row: int) -> list[Segment]:
        """Rows without others above them stand out."""
        return [Segment(self.row_text(row), Style(bold=True) if self.answers[self.places[row]].depth == 0 else None)]

    def row_gutter(self, row: int) -> str:
        """The cursor as a character."""
        return ">" if row == self.cursor else " "

    def action_sideways(self, by: int) -> None:
        """Right opens a branch, left closes it or goes to the row above."""
        if not self.places:
            return
        place = self.places[self.cursor]
        if is_branch(self.answers, place) and (place in self.closed) == (by > 0):
            self.toggle(place)
        elif by < 0:
            depth = self.answers[place].depth
            above = (row for row in range(self.cursor, -1, -1) if self.answers[self.places[row]].depth < depth)
            self.cursor = next(above, self.cursor)
        elif is_branch(self.answers, place):
            self.cursor += 1

    def _visible(self) -> None:
        self.places = unfolded(self.answers, filtered(self.answers, self.query_text), self.closed)


class AnswerScreen(Screen["tuple[Target, int | str] | None"]):
    """The answer to `question`; the screen's result is where Enter leads."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (BESIDE, "-wide")]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back", id="answer.leave", tooltip="end the filter; back to the panes"),
        Binding("slash", "filter", "filter", key_display="/", id="answer.filter",
                tooltip="show the rows with these words; !word: without it"),
        Binding("x", "act", "try", id="answer.act",
                tooltip="try the other option of this row; replay, bisect, repro of its compilation"),
        Binding("z", "fold", "fold", id="answer.fold", tooltip="open or close this branch (as do left and right)"),
        Binding("d", "diff", "diff", id="answer.diff", tooltip="of a recompilation: what is other than before"),
        Binding("c", "all", "all", id="answer.all", tooltip="this compilation, or all of them"),
        Binding("tab", "app.focus_next", "pane", show=False, id="answer.pane", tooltip="next pane"),
        Binding("y", "copy", "copy", id="answer.copy", tooltip="copy what can be done about it, or the command"),
    ]

    def __init__(self, session: Session, question: Question, compile_id: str = "") -> None:
        super().__init__()
        self.session = session
        self.question = question
        self.compile_id = compile_id
        self._own = compile_id
        self._reading: Timer | None = None

    def compose(self) -> ComposeResult:
        """Title, rows, details, the filter's input, the command, the keys."""
        yield TextLine(id="title")
        with Container(id="answer"):
            yield AnswerView(id="rows")
            yield CodeView(id="details", numbers=False)
        yield Input(placeholder="words that rows must have; !word: must not (enter; esc shows all)", id="find")
        yield TextLine(id="status")
        yield KeyBar()

    def on_mount(self) -> None:
        """Ask."""
        self._ask()
        self.query_one("#rows").focus()

    def _ask(self) -> None:
        whole = "all compilations" if not self.compile_id else self.compile_id
        name, _, what = self.question.title.partition(": ")
        scope = f" ({whole})" if self.question.id != "run" else ""
        self.query_one("#title", TextLine).say(f"{name}{scope}: {what}")
        per_compile = self.compile_id if self.question.per_compile else ""
        if self.session.is_large_compile(per_compile) if per_compile else self.session.is_large:
            self._show_rows([Answer("reading the recording ...", tuple)])
            self._ask_in_background(self.compile_id)
        else:
            self._show_rows(rows_of(self.question, self.session, self.compile_id))

    @work(thread=True, exclusive=True, group="ask", exit_on_error=False)
    def _ask_in_background(self, compile_id: str) -> None:
        rows = rows_of(self.question, self.session, compile_id)
        self.app.call_from_thread(self._show_rows, rows)

    def _show_rows(self, rows: list[Answer]) -> None:
        if not rows:
            where = f" in {self.compile_id}; c: all compilations" if self.compile_id else ""
            rows = [Answer(f"{self.question.nothing}{where}", tuple)]
        view = self.query_one("#rows", AnswerView)
        view.show(rows)
        self._status()
        self._show_details()

    def _status(self, note: str = "") -> None:
        command = f"{self.question.command} {self.session.selector(Target(self.compile_id))}"
        self.query_one("#status", TextLine).say(f"{note}  |  {command}" if note else f"$ {command}")

    @on(LineView.Moved, "#rows")
    @on(Resize)
    def _show_details(self) -> None:
        answer = self.query_one("#rows", AnswerView).answer
        if self._reading is not None:
            self._reading.stop()
        if answer is None or isinstance(answer.details, Fixed) or not self.session.is_large:
            self._show_lines(answer, answer.details() if answer is not None else ())
        else:
            self._show_lines(answer, ("...",))
            self._reading = self.set_timer(DETAILS_AFTER, partial(self._read_details, answer))

    @work(thread=True, exclusive=True, group="details", exit_on_error=False)
    def _read_details(self, answer: Answer) -> None:
        lines = answer.details()
        self.app.call_from_thread(self._details_read, answer, lines)

    def _details_read(self, answer: Answer, lines: Sequence[str]) -> None:
        if answer is self.query_one("#rows", AnswerView).answer:
            self._show_lines(answer, lines)

    def _show_lines(self, answer: Answer | None, details: Sequence[str]) -> None:
        view = self.query_one("#details", CodeView)
        texts = [] if answer is None else [answer.title, "", *details]
        if answer is not None and answer.hint:
            texts += ["", f"to change it: {answer.hint}"]
        whole = self.app.size.width
        width = max(20, (whole * 2 // 5 if whole >= BESIDE else whole) - 6)
        wrapped = [Line(printable(part)) for text in texts
                   for part in textwrap.wrap(text, width, subsequent_indent="    ", drop_whitespace=False) or [""]]
        view.show(Listing("details", "text", tuple(wrapped)))

    @on(LineView.Chosen, "#rows")
    def _chosen(self) -> None:
        answer = self.query_one("#rows", AnswerView).answer
        if answer is not None and answer.opens is not None:
            self.dismiss(answer.opens)
        else:
            self.action_fold()

    @on(Input.Submitted, "#find")
    def _filtered(self, message: Input.Submitted) -> None:
        message.input.remove_class("shown")
        view = self.query_one("#rows", AnswerView)
        count = view.filter(message.value)
        self._status(f"{count} rows with {message.value}" if message.value else "")
        view.focus()
        self._show_details()

    def action_filter(self) -> None:
        """Ask for words."""
        field = self.query_one("#find", Input)
        field.add_class("shown")
        field.focus()

    def action_fold(self) -> None:
        """Open or close a branch."""
        view = self.query_one("#rows", AnswerView)
        if view.places and is_branch(view.answers, view.places[view.cursor]):
            view.toggle(view.places[view.cursor])

    def action_all(self) -> None:
        """All compilations, or the one that the question was asked for: that of the row, where it was asked for all."""
        opens = answer.opens if (answer := self.query_one("#rows", AnswerView).answer) is not None else None
        self.compile_id = "" if self.compile_id else self._own or (opens[0].compile if opens is not None else "")
        self._ask()

    def action_diff(self) -> None:
        """Of a recompilation, the difference to the compilation that it was compared with."""
        answer = self.query_one("#rows", AnswerView).answer
        if answer is None or not answer.compares:
            self.notify("this row compares nothing: d is for recompilations")
            return
        first, second = answer.compares
        self.app.push_screen(DiffScreen(self.session, Target(first), self.session, Target(second)))

    def action_act(self) -> None:
        """What can be tried with this row, and with its compilation."""
        answer = self.query_one("#rows", AnswerView).answer
        opens = answer.opens[0].compile if answer is not None and answer.opens is not None else ""
        acts = answer.acts if answer is not None else ()
        self.app.push_screen(ActScreen(self.session, Target(opens or self.compile_id), acts))

    def action_copy(self) -> None:
        """Copy the row's hint, where there is one, else the command that lists these."""
        answer = self.query_one("#rows", AnswerView).answer
        command = f"{self.question.command} {self.session.selector(Target(self.compile_id))}"
        self.app.copy_to_clipboard(answer.hint if answer is not None and answer.hint else command)
        self._status("copied")

    def action_leave(self) -> None:
        """End the filter, else back to the panes."""
        field, view = self.query_one("#find", Input), self.query_one("#rows", AnswerView)
        if field.has_class("shown"):
            field.remove_class("shown")
            view.focus()
        elif view.query_text:
            view.filter("")
            self._status()
            self._show_details()
        else:
            self.dismiss(None)
