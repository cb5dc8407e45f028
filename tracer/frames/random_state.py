"""Python's `random` as other threads use it while a frame is compiled.

From 2.12 on, torch reads `random.getstate()` before it calls the hook's callback and restores that state when the
callback returns, so that nothing a compiler samples is visible. That would also undo what other threads have sampled or
seeded in the meantime. The tracer samples nothing from `random`, so while other threads run, that one call of
`random.setstate` does nothing. What a signal handler raises in it would be lost in C++: it is kept for the program.
"""
from __future__ import annotations

import os
import random
import sys
import threading
from typing import Any

from ...artifacts.fork_lock import ForkLock
from ..guards.interrupted import from_the_start, keep
from ..runtime.eval_frame import PUTS_RANDOM_STATE_BACK

_put_back = random.setstate
_lock = ForkLock(threading.Lock)
_awaited: dict[int, bool] = {}
"""The threads whose next call of random.setstate is torch's, and whether it does nothing."""


def runs_alone() -> bool:
    """Whether no other thread runs Python, and none can start while this one compiles."""
    return len(sys._current_frames()) == 1


def expect_put_back(ignored: bool) -> None:
    """Make torch's next `random.setstate` in this thread a no-op if `ignored`, and one that loses no exception in any
    case. Call it where the hook's callback returns."""
    with _lock.lock:
        if PUTS_RANDOM_STATE_BACK and random.setstate in (_put_back, _expected):  # not one that user code replaced
            random.setstate = _expected
            _awaited[threading.get_ident()] = ignored


def _expected(state: Any) -> None:
    try:
        if threading.get_ident() in _awaited:
            _put_back_for_torch(state)
        else:
            _put_back(state)
    except BaseException as error:
        if threading.get_ident() not in _awaited:
            raise
        keep(error)
        _put_back_for_torch(state)


from_the_start(_expected)


def _put_back_for_torch(state: Any) -> None:
    if not _awaited[threading.get_ident()]:
        _put_back(state)
    with _lock.lock:
        del _awaited[threading.get_ident()]
        if not _awaited:
            random.setstate = _put_back


def _after_fork() -> None:
    for thread in _awaited.keys() - {threading.get_ident()}:
        del _awaited[thread]
    if not _awaited and random.setstate is _expected:
        random.setstate = _put_back


os.register_at_fork(after_in_child=_after_fork)
