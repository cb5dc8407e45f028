"""Exceptions raised while guards are checked that are not about the guards: those of a signal handler.

C++ treats whatever a guard raises as its failure. So anything else (KeyboardInterrupt; an exception of a user's signal
handler, which is gone when the guard is checked again) is kept here, and raised when the call of the compiled function
returns.
"""
from __future__ import annotations

import dis
import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any

from ..bytecode.assembly import encoded_exceptions

KEPT: list[tuple[int, BaseException]] = []
"""(thread, exception): nearly always empty, which is all that a warm call checks."""

_RESUME = dis.opmap["RESUME"]
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


def keep(error: BaseException) -> None:
    """Keep what was raised in the caller, for the end of this thread's call of the compiled function."""
    inside = error.__traceback__.tb_next if error.__traceback__ is not None else None
    KEPT.append((threading.get_ident(), error.with_traceback(inside)))


def raise_kept() -> None:
    """Raise the first exception that was kept in this thread, if any."""
    thread = threading.get_ident()
    for position, (owner, error) in enumerate(KEPT):
        if owner == thread:
            del KEPT[position]
            raise error


def protected(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """`check` as a guard of C++."""

    def holds(value: Any) -> bool:
        try:
            return check(value)
        except BaseException as error:
            return holds_after_all(check, value, error)

    holds.__dict__["check"] = check
    return from_the_start(holds)


def unprotected(function: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """The check, for a function that handles exceptions itself."""
    check: Callable[[Any], bool] = getattr(function, "__dict__", {}).get("check", function)
    return check


def from_the_start(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose body is a `try`, which from now on also handles what is raised while the function is entered:
    Python runs the handlers of signals there."""
    assert isinstance(function, FunctionType)
    code = function.__code__
    entry = next(offset for offset in range(0, len(code.co_code), 2) if code.co_code[offset] == _RESUME)
    (_, *first), *others = [
        (entry.start, entry.end, entry.target, entry.depth, entry.lasti)
        for entry in dis._parse_exception_table(code)  # type: ignore[attr-defined]
    ]
    table = encoded_exceptions([(entry, *first), *others])
    function.__code__ = code.replace(co_exceptiontable=table)
    return function
