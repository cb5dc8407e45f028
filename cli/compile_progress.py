"""How far a compilation is that takes long: on a terminal one line that is written over, elsewhere a line now and then.
"""
from __future__ import annotations

import shutil
import sys
import time

SOON, LATER = 1.0, 10.0  # seconds before the first word, and between lines where there is no terminal


class _Progress:
    def __init__(self) -> None:
        self.started = self.said = 0.0
        self.shown = False

    def tell(self, text: str) -> None:
        now = time.monotonic()
        if not text or sys.stderr is None:
            self.end()
            return
        self.started = self.started or now
        if sys.stderr.isatty():
            if now - self.started >= SOON:
                columns = shutil.get_terminal_size().columns - 1
                self._write(f"\r\x1b[K{f'ptdebug: {text}'[:columns]}")
                self.shown = True
        elif now - max(self.started, self.said) >= LATER:
            self._write(f"ptdebug: {text}\n")
            self.said = now

    def end(self) -> None:
        if self.shown:
            self._write("\r\x1b[K")
        self.started, self.shown = 0.0, False

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


_PROGRESS = _Progress()


def told(text: str) -> None:
    """`text` says what is being compiled now; "" that it is done."""
    _PROGRESS.tell(text)
