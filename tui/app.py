"""The workbench: opens a recording and shows it on the screens."""
from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from typing import ClassVar

from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import Provider
from textual.screen import Screen
from textual.widgets import Static

from ..artifacts.home import existing_home, recordings
from ..artifacts.listing import printable
from ..artifacts.selector import Selector, open_selected, parse
from .help_screen import HelpScreen, keys_text
from .key_bar import KeyBar
from .panes import PanesScreen
from .session import Session, Target

NOTHING_YET = """\
There is no recording in {home} yet.

Record a program that uses torch.compile:

    ptdebug run your_script.py

Then come back with `ptdebug`. Open a recording elsewhere by its path:

    ptdebug tui path/to/recording
"""


def _places() -> type[Provider]:
    from .palette import Places  # when the palette is opened for the first time

    return Places


class Workbench(App[None]):
    """The application. `session` is None if there is no recording yet."""

    TITLE = "ptdebug"
    CSS_PATH = "workbench.tcss"
    COMMANDS = App.COMMANDS | {_places}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "help", "help", key_display="?", id="help", tooltip="the keys"),
        Binding("colon,ctrl+p", "command_palette", "commands", show=False, id="commands", tooltip="commands by name"),
        Binding("q,ctrl+q", "quit", "quit", key_display="q", id="quit", tooltip="quit the workbench"),
    ]

    def __init__(
        self, session: Session | None = None, target: Target = Target(), follow: bool = False,  # noqa: B008
    ) -> None:
        super().__init__()
        self._follow = follow
        self.animation_level = "none"
        self.session = session
        self._target = target

    def get_default_screen(self) -> Screen[None]:
        """The first screen: no empty one is drawn before it."""
        if self.session is None:
            return NothingScreen()
        return PanesScreen(self.session, self._target, self._follow)

    def action_help(self) -> None:
        """The keys of this screen."""
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.screen, list(self.BINDINGS)))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """What the palette offers beside places: the screen's actions, and the themes."""
        if isinstance(screen, PanesScreen):
            for binding in screen.BINDINGS:
                if isinstance(binding, Binding) and binding.id:
                    yield SystemCommand(sentence(binding.tooltip), f"key {keys_text(binding.key)}",
                                        _runner(screen, binding.action))
        yield SystemCommand("theme", "other colours", self.action_change_theme)
        yield SystemCommand("help", "the keys", self.action_help)
        yield SystemCommand("quit", "quit the workbench", self.action_quit)


class NothingScreen(Screen[None]):
    """Shown if there is no recording yet: how to make one."""

    def compose(self) -> ComposeResult:
        """The text."""
        yield Static("ptdebug", id="title", markup=False)
        yield Static(NOTHING_YET.format(home=printable(str(existing_home()))), id="nothing", markup=False)
        yield KeyBar()


def sentence(text: str) -> str:
    """A tooltip as the title of a command."""
    return text[:1].upper() + text[1:]


def _runner(screen: PanesScreen, action: str):  # type: ignore[no-untyped-def]
    async def run_action() -> None:
        await screen.run_action(action)

    return run_action


def workbench(selector: str = "@", follow: bool = False) -> Workbench:
    """The workbench on what a selector names; the newest recording may be missing, any other raises RecordingError."""
    parsed = parse(selector)
    if parsed == Selector() and not recordings(existing_home()):
        return Workbench()
    recording, found = open_selected(selector)
    session = Session(recording)
    name = found.name
    if found.stage and not name:
        name = next(iter(session.names(found.compile, found.stage)), "")
    return Workbench(session, Target(found.compile, found.stage, name), follow)


def run(selector: str = "@", follow: bool = False) -> int:
    """Open the workbench; returns the exit code when it is closed. Raises RecordingError for a selector of nothing."""
    sys.setswitchinterval(0.001)  # while a thread reads, a key does not wait for its turn
    app = workbench(selector, follow)
    gc.freeze()  # what is loaded stays: it need not be walked again
    app.run()
    return app.return_code or 0
