"""Python's `random` as other threads use it while a frame is compiled.

From 2.12 on, torch reads `random.getstate()` before it calls the hook's callback and restores that state when the
callback returns, so that nothing a compiler samples is visible. That would also undo what other threads have sampled or
seeded in the meantime. The tracer samples nothing from `random`, so while other threads run, that one call of
`random.setstate` does nothing.
"""
from __future__ import annotations

import os
import random
import sys
import threading
from typing import Any

from .eval_frame import PUTS_RANDOM_STATE_BACK
from .fork_lock import ForkLock

_put_back = random.setstate
_lock = ForkLock(threading.Lock)
_awaited: set[int] = set()  # the threads whose next call of random.setstate is torch's


def runs_alone() -> bool:
    """Whether no other thread runs Python, and none can start while this one compiles."""
    return len(sys._current_frames()) == 1


def preserve_other_threads_state() -> None:
    """Make torch's next `random.setstate` in this thread a no-op. Call it where the hook's callback returns."""
    with _lock.lock:
        if PUTS_RANDOM_STATE_BACK and random.setstate in (_put_back, _ignored_once):  # not one that user code replaced
            random.setstate = _ignored_once
            _awaited.add(threading.get_ident())


def _ignored_once(state: Any) -> None:
    with _lock.lock:
        torchs = threading.get_ident() in _awaited
        _awaited.discard(threading.get_ident())
        if not _awaited:
            random.setstate = _put_back
    if not torchs:
        _put_back(state)


def _after_fork() -> None:
    _awaited.intersection_update({threading.get_ident()})
    if not _awaited and random.setstate is _ignored_once:
        random.setstate = _put_back


os.register_at_fork(after_in_child=_after_fork)
