"""What other threads draw from Python's `random` while a frame is compiled.

torch, from 2.12 on, reads `random.getstate()` before it calls the hook's callback, and puts that state back when the
callback has returned: what a compiler draws is not to be seen. What other threads have drawn meanwhile would come
again, and what they have seeded would be undone. We draw nothing from it, so while others run, that one call of
`random.setstate` does nothing.
"""
from __future__ import annotations

import os
import random
import sys
import threading
from typing import Any

from .eval_frame import PUTS_RANDOM_STATE_BACK

_put_back = random.setstate
_lock = threading.Lock()
_awaited: set[int] = set()  # the threads whose next call of random.setstate is torch's


def runs_alone() -> bool:
    """Whether no other thread runs Python, nor can one begin while this one compiles."""
    return len(sys._current_frames()) == 1


def preserve_other_threads_state() -> None:
    """To be called where the hook's callback returns, by its thread."""
    with _lock:
        if PUTS_RANDOM_STATE_BACK and random.setstate in (_put_back, _ignored_once):  # and no form of the program's
            random.setstate = _ignored_once
            _awaited.add(threading.get_ident())


def _ignored_once(state: Any) -> None:
    with _lock:
        torchs = threading.get_ident() in _awaited
        _awaited.discard(threading.get_ident())
        if not _awaited:
            random.setstate = _put_back
    if not torchs:
        _put_back(state)


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # a thread that is not in the child may have held it, and be awaited
    _awaited.intersection_update({threading.get_ident()})
    if not _awaited and random.setstate is _ignored_once:
        random.setstate = _put_back


os.register_at_fork(after_in_child=_after_fork)
