"""How far a search is: one line on stderr that is written over, on a terminal only."""
from __future__ import annotations

import shutil
import sys
import time


class Progress:
    """`say` what is looked at; `ran` counts runs."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._text = ""
        self._runs = 0
        self._started = time.monotonic()
        self._shows = sys.stderr is not None and sys.stderr.isatty()

    def say(self, text: str) -> None:
        """What is looked at now."""
        self._text = text
        self._show()

    def ran(self) -> None:
        """One more run has ended."""
        self._runs += 1
        self._show()

    def end(self) -> None:
        """Remove the line."""
        if self._shows:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _show(self) -> None:
        if self._shows:
            took = time.monotonic() - self._started
            text = f"{self._name}: {self._runs} runs, {took:.0f} s: {self._text}"
            columns = shutil.get_terminal_size().columns - 1
            sys.stderr.write(f"\r\x1b[K{text.encode(errors='replace').decode()[:columns]}")
            sys.stderr.flush()
