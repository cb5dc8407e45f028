"""The last lines that a program prints, on request, for its recording.

stdout and stderr become streams of the same kind over the same buffers, which remember what is written; what writes to
the descriptors itself (C code, child processes) is not seen.
"""
from __future__ import annotations

import io
import sys
from collections import deque

LONGEST = 2000  # characters of a line
_MOST = 100_000  # characters of all lines


class _Remembering(io.TextIOWrapper):
    """A text stream that remembers its last lines."""

    kept: KeptOutput

    def write(self, text: str) -> int:
        """Write and remember `text`."""
        count = super().write(text)
        self.kept.add(text)
        return count


_Remembering.__name__ = _Remembering.__qualname__ = "TextIOWrapper"


class KeptOutput:
    """The last `lines` lines of stdout and stderr, in the order of their writing."""

    def __init__(self, lines: int) -> None:
        self._lines: deque[str] = deque(maxlen=lines)
        self._open = ""

    def start(self) -> None:
        """Remember from now on."""
        for name in ("stdout", "stderr"):
            own = getattr(sys, name)
            if type(own) is not io.TextIOWrapper:  # none, or something else that the interpreter was given
                continue
            encoding, errors, lines, through = own.encoding, own.errors, own.line_buffering, own.write_through
            mode = own.mode  # set by the interpreter; the constructor does not
            stream = _Remembering(own.detach(), encoding, errors, None, lines, through)
            stream.mode = mode  # type: ignore[misc]
            stream.kept = self
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)

    def add(self, text: object) -> None:
        """Remember a piece of output."""
        *whole, self._open = (self._open + str(text)).split("\n")
        self._lines.extend(line[:LONGEST] for line in whole)
        self._open = self._open[-LONGEST:]

    @property
    def text(self) -> str:
        """The lines."""
        lines = [*self._lines, *([self._open] if self._open else [])]
        return "\n".join(lines[-(self._lines.maxlen or 0):])[-_MOST:]
