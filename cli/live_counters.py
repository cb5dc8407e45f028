"""Writes the call counters while the program runs, so that the workbench counts calls as they happen (`run --live`)."""
from __future__ import annotations

import _thread
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from ..artifacts.records import Runtime
from ..artifacts.store import RecordingWriter

SECONDS = 0.3


class LiveCounters:
    """A thread that writes what has changed. It is no `threading.Thread`: the program does not see it among its own."""

    def __init__(self, recorder: RecordingWriter, counters: Callable[[], Mapping[str, Runtime]]) -> None:
        self._recorder = recorder
        self._counters = counters
        self._pid = os.getpid()
        self._written: dict[str, Runtime] = {}
        self.stopped = False

    def start(self) -> None:
        """Begin."""
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        while not self.stopped and self._pid == os.getpid():
            time.sleep(SECONDS)
            with suppress(Exception):  # the program may be changing what is counted: next time
                self.write()

    def write(self) -> None:
        """Write the counters that have changed."""
        now = dict(self._counters())
        changed = {compile_id: runtime for compile_id, runtime in now.items()
                   if self._written.get(compile_id) != runtime}
        if changed and not self.stopped:
            self._recorder.flush_runtime(changed)
            self._written = now
