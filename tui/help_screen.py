"""The help screen: keys of the current screen, generated from its bindings so that the two cannot disagree."""
from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen, Screen

from ..artifacts.listing import Line, Listing
from .code_view import CodeView
from .line_view import LineView

NAMES = {"slash": "/", "right_square_bracket": "]", "left_square_bracket": "[", "right_curly_bracket": "}",
         "left_curly_bracket": "{", "question_mark": "?", "colon": ":"}


class HelpScreen(ModalScreen[None]):
    """A list of keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,question_mark,q", "leave", "close", id="help.leave", tooltip="close the help"),
    ]

    def __init__(self, screen: Screen[object], app_bindings: list[BindingType]) -> None:
        super().__init__()
        self._lines = help_lines(screen, app_bindings)

    def compose(self) -> ComposeResult:
        """The keys."""
        yield CodeView(id="help", numbers=False)

    def on_mount(self) -> None:
        """Fill and focus."""
        view = self.query_one("#help", CodeView)
        view.border_title = "keys (esc closes)"
        view.show(Listing("help", "text", tuple(Line(line) for line in self._lines)))
        view.focus()

    def action_leave(self) -> None:
        """Close."""
        self.dismiss()


def help_lines(screen: Screen[object], app_bindings: list[BindingType]) -> list[str]:
    """One line for each key of a screen, of the views in it, and of the whole workbench."""
    groups = (("here", screen.BINDINGS), ("in every list and listing", LineView.BINDINGS), ("everywhere", app_bindings))
    lines: list[str] = []
    for title, bindings in groups:
        lines += [title] + [f"  {keys_text(b.key):<18} {b.tooltip or b.description}" for b in bindings
                            if isinstance(b, Binding)] + [""]
    lines += ["symbols", "  >                  the cursor",
              "  =                  lines linked to that line in the other pane",
              "  B                  a graph break", "  + -                a collapsed and an expanded branch"]
    return lines


def keys_text(key: str) -> str:
    """The keys of a binding as people write them: `] }`."""
    return " ".join(NAMES.get(part, part) for part in key.split(","))
