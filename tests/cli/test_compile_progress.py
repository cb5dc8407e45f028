"""What is said while a compilation takes long."""
from __future__ import annotations

import io

import pytest
from ptdebug.cli import compile_progress


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream, seconds, said", [
    (_Terminal, (0, 0.5), ""),
    (_Terminal, (0, 2, 3), "\r\x1b[Kptdebug: kernel 1 of 3\r\x1b[Kptdebug: kernel 2 of 3\r\x1b[K"),
    (io.StringIO, (0, 2, 5), ""),
    (io.StringIO, (0, 11, 12, 22), "ptdebug: kernel 1 of 4\nptdebug: kernel 3 of 4\n"),
])
def test_a_line_that_is_written_over_or_one_now_and_then(monkeypatch, stream, seconds, said):
    written = stream()
    monkeypatch.setattr("sys.stderr", written)
    progress = compile_progress._Progress()
    for number, second in enumerate(seconds):
        monkeypatch.setattr(compile_progress.time, "monotonic", lambda now=second: 100 + now)
        progress.tell(f"kernel {number} of {len(seconds)}")
    progress.tell("")
    assert written.getvalue() == said
