"""Exceptions raised while guards are checked that are not about the guards: those of a signal handler.

C++ treats whatever a guard raises as its failure. So anything else (KeyboardInterrupt; an exception of a user's signal
handler, which is gone when the guard is checked again) is kept here, and raised when the call of the compiled function
returns.
"""
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

KEPT: list[tuple[int, BaseException]] = []
"""(thread, exception): nearly always empty, which is all that a warm call checks."""

_asking_again: set[int] = set()


def holds_after_all(check: Callable[[Any], bool], value: Any, error: BaseException) -> bool:
    """Whether `check(value)`, which raised `error`, holds after all; an error that is not about the guards is kept."""
    thread = threading.get_ident()
    inside = error.__traceback__.tb_next if error.__traceback__ is not None else None
    if not isinstance(error, Exception):
        KEPT.append((thread, error.with_traceback(inside)))
    elif inside is None:
        return False
    if thread in _asking_again:
        return False
    _asking_again.add(thread)
    try:
        holds = check(value)
    finally:
        _asking_again.discard(thread)
    if holds and isinstance(error, Exception):
        KEPT.append((thread, error.with_traceback(inside)))
    return holds


def raise_kept() -> None:
    """Raise the first exception that was kept while this thread's guards were checked, if any."""
    thread = threading.get_ident()
    for position, (owner, error) in enumerate(KEPT):
        if owner == thread:
            del KEPT[position]
            raise error
