"""Tracebacks as the program's own: a frame that went on in resume functions is there as eager has it."""
from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from .eval_frame import skip_code
from .skips import is_program

_GENERATED = "<ptdebug", "<eval_with_key>"
_TRACEBACK: Any = BaseException.__dict__["__traceback__"]
"""Reads and writes the traceback of any exception; `error.__traceback__ = ...` is what its class makes of it (that of a
frozen dataclass refuses)."""


def traceback_of(error: BaseException) -> TracebackType | None:
    """The traceback of `error`."""
    found: TracebackType | None = _TRACEBACK.__get__(error)
    return found


def set_traceback(error: BaseException, traceback: TracebackType | None) -> None:
    """Give `error` another traceback."""
    _TRACEBACK.__set__(error, traceback)


def without_first(error: BaseException) -> None:
    """Take the first entry, that of the frame which has caught `error`, out of its traceback: what calls a compiled
    function, or calls the rest of its own frame, whose entry is the one after that. In eager there is no such call."""
    traceback = traceback_of(error)
    if traceback is not None:
        set_traceback(error, traceback.tb_next)


skip_code(without_first.__code__)


def below_graph(error: BaseException) -> TracebackType | None:
    """Of what a graph raised, as caught in the frame that calls it: the program's lines below that frame (a hook's)."""
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
