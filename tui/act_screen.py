"""What can be done with a compilation: a menu of commands, run in the background, with their output as it comes."""
from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import textwrap
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.worker import get_current_worker

from ..artifacts.listing import Line, Listing, printable
from .acts import ACTS, Act
from .code_view import CodeView
from .key_bar import KeyBar
from .line_view import LineView
from .plain import TextLine
from .session import Session, Target


class ActScreen(Screen[None]):
    """The menu above, the output of the running command below. The workbench stays alive meanwhile."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "back", id="act.leave", tooltip="stop what runs; back to the panes"),
        Binding("tab", "app.focus_next", "pane", show=False, id="act.pane", tooltip="next pane"),
        *(Binding(str(n), f"number({n})", show=False, id=f"act.{n}", tooltip=f"run number {n}") for n in range(1, 10)),
        Binding("y", "copy", "copy", id="act.copy", tooltip="copy the command"),
    ]

    def __init__(self, session: Session, target: Target, first: tuple[Act, ...] = ()) -> None:
        super().__init__()
        self.acts = (*first, *ACTS)
        self._session = session
        self._target = Target(target.compile)
        self._process: subprocess.Popen[str] | None = None
        self._lines: list[Line] = []

    def compose(self) -> ComposeResult:
        """Menu, output, the command, the keys."""
        yield TextLine(f"{self._session.selector(self._target)}: enter runs one", id="title")
        yield CodeView(id="menu", numbers=False)
        yield CodeView(id="output", numbers=False)
        yield TextLine(id="status")
        yield KeyBar()

    def on_mount(self) -> None:
        """Show the menu."""
        titles = tuple(Line(printable(f"{number}  {act.title}")) for number, act in enumerate(self.acts, 1))
        self.query_one("#menu", CodeView).show(Listing("", "text", titles))
        self.query_one("#output", CodeView).show(Listing("", "text", (Line("nothing runs"),)))
        self.query_one("#menu").focus()
        self._status()

    def words(self, row: int) -> list[str]:
        """The command of a row, without the program's name."""
        selector = self._session.selector(self._target)
        name = "".join(c if c.isalnum() else "_" for c in f"{self._session.recording.name}_{self._target.compile}")
        return self.acts[row].command(selector, name.strip("_"))

    def _status(self, note: str = "") -> None:
        command = shlex.join(["ptdebug", *self.words(self.query_one("#menu", CodeView).cursor)])
        self.query_one("#status", TextLine).say(f"{note}  |  {command}" if note else f"$ {command}")

    @on(LineView.Moved, "#menu")
    def _moved(self) -> None:
        self._status()

    def action_number(self, number: int) -> None:
        """Run that one of the menu."""
        if number <= len(self.acts):
            self.query_one("#menu", CodeView).cursor = number - 1
            self._start(number - 1)

    @on(LineView.Chosen, "#menu")
    def _chosen(self, message: LineView.Chosen) -> None:
        self._start(message.row)

    def _start(self, row: int) -> None:
        self._stop()
        self._lines = []
        self._run([sys.executable, "-m", "ptdebug", *self.words(row)])
        self._status("running; esc stops it")

    @work(thread=True, exclusive=True, group="act", exit_on_error=False)
    def _run(self, command: list[str]) -> None:
        worker = get_current_worker()
        environment = os.environ | {"NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", env=environment, start_new_session=True) as process:
            self._process = process
            assert process.stdout is not None
            for text in process.stdout:
                if worker.is_cancelled:
                    return
                self.app.call_from_thread(self._output, text.rstrip("\n"))
        self.app.call_from_thread(self._ended, process, process.returncode)

    def _output(self, text: str) -> None:
        view = self.query_one("#output", CodeView)
        indent = " " * (len(text) - len(text.lstrip()) + 4)
        self._lines += [Line(printable(part)) for part in textwrap.wrap(
            text, max(20, view.size.width - 4), subsequent_indent=indent, drop_whitespace=False) or [""]]
        view.show(Listing("", "text", tuple(self._lines)), len(self._lines) - 1)

    def _ended(self, process: subprocess.Popen[str], code: int) -> None:
        if process is self._process:
            self._process = None
            self._status({0: "done", 1: "done: the answer is no (exit code 1)"}.get(code, f"exit code {code}"))

    def _stop(self) -> bool:
        """Stop what runs, with its children; whether anything ran."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return False
        os.killpg(process.pid, signal.SIGINT)
        return True

    def on_unmount(self) -> None:
        """Nothing is left running."""
        self._stop()

    def action_copy(self) -> None:
        """Copy the command."""
        self.app.copy_to_clipboard(shlex.join(["ptdebug", *self.words(self.query_one("#menu", CodeView).cursor)]))
        self._status("copied")

    def action_leave(self) -> None:
        """Stop what runs, else back."""
        if self._stop():
            self._status("stopped")
        else:
            self.dismiss()
