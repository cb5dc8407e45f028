"""Tracebacks as in eager: a frame that continued in resume functions appears as one frame."""
from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from .eval_frame import skip_code
from .skips import is_program

_GENERATED = "<ptdebug", "<eval_with_key>"
_TRACEBACK: Any = BaseException.__dict__["__traceback__"]
"""Get and set the traceback of any exception. `error.__traceback__ = ...` may be overridden (a frozen dataclass refuses
it)."""


def traceback_of(error: BaseException) -> TracebackType | None:
    """The traceback of `error`."""
    found: TracebackType | None = _TRACEBACK.__get__(error)
    return found


def set_traceback(error: BaseException, traceback: TracebackType | None) -> None:
    """Give `error` another traceback."""
    _TRACEBACK.__set__(error, traceback)


def without_first(error: BaseException) -> None:
    """Drop the first entry of the traceback of `error`: the frame that caught it, which calls a compiled function or
    the rest of its own frame (that entry follows). Eager has no such call."""
    traceback = traceback_of(error)
    if traceback is not None:
        set_traceback(error, traceback.tb_next)


skip_code(without_first.__code__)


def below_graph(error: BaseException) -> TracebackType | None:
    """The user's lines of a traceback below the frame that calls the graph, for an error that the graph raised (a
    hook's lines)."""
    entries: list[TracebackType] = []
    traceback = traceback_of(error)
    entry = traceback and traceback.tb_next
    while entry is not None:
        name = entry.tb_frame.f_code.co_filename
        if not name.startswith(_GENERATED) and is_program(name):
            entries.append(entry)
        entry = entry.tb_next
    return _linked(entries)


def _linked(entries: Sequence[TracebackType]) -> TracebackType | None:
    result: TracebackType | None = None
    for entry in reversed(entries):
        result = TracebackType(result, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return result
