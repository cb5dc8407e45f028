"""The keys that work here, in the screen's last line; a click presses one.

Textual's Footer is a widget for each key, made anew whenever the focus moves: a fourth of what opening a screen takes.
"""
from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding
from textual.events import Click, MouseMove
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

LAST = 2  # keys that are always shown: quit, help


class KeyBar(Widget):
    """Draws the screen's bindings that are to be shown: key, description."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"key-bar--key", "key-bar--description"}
    DEFAULT_CSS = """
    KeyBar {
        dock: bottom; height: 1; background: $footer-background; color: $footer-foreground;
        & > .key-bar--key { color: $footer-key-foreground; text-style: bold; }
        & > .key-bar--description { color: $footer-description-foreground; }
    }
    """
    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self._shown: list[Binding] = []

    def on_mount(self) -> None:
        """Listen to what changes the keys: another focus."""
        self.screen.bindings_updated_signal.subscribe(self, self._changed)

    def on_unmount(self) -> None:
        """Stop listening."""
        self.screen.bindings_updated_signal.unsubscribe(self)

    def _changed(self, screen: Screen[object]) -> None:
        once: dict[str, Binding] = {}
        for active in screen.active_bindings.values():
            if active.binding.show:
                once.setdefault(active.binding.action, active.binding)
        if list(once.values()) != self._shown:
            self._shown = list(once.values())
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """The one line."""
        shown = self._fitting()
        key, description = (Style(color=style.color, bold=style.bold) for style in (
            self.get_component_rich_style(f"key-bar--{part}") for part in ("key", "description")))
        segments = [segment for binding in shown for segment in (
            Segment(f" {self.app.get_key_display(binding)} ", key), Segment(f"{binding.description} ", description))]
        return Strip(segments).crop_extend(0, self.size.width, None).apply_style(self.rich_style)

    def _fitting(self) -> list[Binding]:
        """The keys that there is room for: first those of the screen, but the last one, which leads to all, always."""
        room = self.size.width - sum(self._cells(binding) for binding in self._shown[-LAST:])
        found = []
        for binding in self._shown[:-LAST]:
            room -= self._cells(binding)
            found += [binding] if room >= 0 else []
        return [*found, *self._shown[-LAST:]]

    def _cells(self, binding: Binding) -> int:
        return cell_len(f" {self.app.get_key_display(binding)} {binding.description} ")

    def on_click(self, event: Click) -> None:
        """Press the key under the pointer."""
        if (binding := self._at(event.x)) is not None:
            self.app.simulate_key(binding.key)

    def on_mouse_move(self, event: MouseMove) -> None:
        """Say more of the key under the pointer."""
        binding = self._at(event.x)
        self.tooltip = binding.tooltip or None if binding is not None else None

    def _at(self, x: int) -> Binding | None:
        end = 0
        for binding in self._fitting():
            end += self._cells(binding)
            if x < end:
                return binding
        return None
