"""Distinguishes exceptions that come from outside from ptdebug's own: of signal handlers, tracing functions, threads.

Python raises them wherever it happens to be, also in the compiler or the recorder. They belong to the program, so no
handler for ptdebug's own errors may swallow them.
"""
from __future__ import annotations

import opcode
import signal
from collections.abc import Iterator
from itertools import pairwise
from types import CodeType, FrameType, TracebackType

_INTERRUPTIBLE = ("RESUME", "JUMP_BACKWARD", "CALL", "PRECALL")
"""Prefixes of the instructions after which CPython checks for exceptions set by other threads."""
_RAISED_EMPTY = (StopIteration, StopAsyncIteration, NotImplementedError, AssertionError, MemoryError)
"""Exceptions that C functions raise without arguments, as those set by other threads are."""


def came_from_outside(error: BaseException) -> bool:
    """Whether `error`, just caught, interrupted the code that it was raised in, rather than being caused by it."""
    entries = list(_entries(error.__traceback__))
    if any(_was_called_by_python(entry.tb_frame) for entry in entries[1:]):
        return True
    if error.args or isinstance(error, _RAISED_EMPTY) or not entries:
        return False
    last = entries[-1]
    return opcode.opname[last.tb_frame.f_code.co_code[last.tb_lasti]].startswith(_INTERRUPTIBLE)


def _entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _was_called_by_python(frame: FrameType) -> bool:
    """Whether the frame is that of a signal handler or a tracing function, judged by its arguments: (number, frame) or
    (frame, event, ...)."""
    code = frame.f_code
    if code.co_argcount < 2 and not code.co_flags & 4:  # *args
        return False
    arguments = _arguments(code, frame)
    for first, second in pairwise(arguments):
        if isinstance(second, FrameType) and isinstance(first, int) and first in signal.valid_signals():
            return True
        if isinstance(first, FrameType) and isinstance(second, str):
            return True
    return False


def _arguments(code: CodeType, frame: FrameType) -> list[object]:
    values = frame.f_locals
    names = code.co_varnames[: code.co_argcount]
    rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount] if code.co_flags & 4 else ""
    packed = values.get(rest, ())
    return [*(values.get(name) for name in names), *(packed if isinstance(packed, tuple) else ())]
