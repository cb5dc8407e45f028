"""Exceptions that came while guards were checked and are not about them: a signal's handler raised.

C++ takes whatever a guard raises for its failure. So what is not the guard's (KeyboardInterrupt; what a handler of the
program raises, which is gone when the guard is asked again) is kept here, and raised in the program when the call of
the compiled function returns.
"""
from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

KEPT: list[tuple[int, BaseException]] = []
"""(thread, exception): nearly always empty, which is what a warm call looks at."""

_asking_again: set[int] = set()


def holds_after_all(check: Callable[[Any], bool], value: Any, error: BaseException) -> bool:
    """Whether `check(value)`, which raised `error`, holds; an error that is not about the guards is kept."""
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
    """Raise the exception that came first while this thread's guards were checked, if any."""
    thread = threading.get_ident()
    for position, (owner, error) in enumerate(KEPT):
        if owner == thread:
            del KEPT[position]
            raise error
