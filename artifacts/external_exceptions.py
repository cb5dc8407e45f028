"""Tells exceptions that interrupt us from our own: a signal's handler raised, a tracing function, or another thread.

Python raises them wherever it happens to be, in the compiler or in the recorder as well. They are the program's, and so
nothing that would catch an error of ours may keep them.
"""
from __future__ import annotations

import opcode
import signal
from collections.abc import Iterator
from itertools import pairwise
from types import CodeType, FrameType, TracebackType

_INTERRUPTIBLE = ("RESUME", "JUMP_BACKWARD", "CALL", "PRECALL")
"""Beginnings of the names of the instructions after which Python looks for what other threads ask this one to raise."""
_RAISED_EMPTY = (StopIteration, StopAsyncIteration, NotImplementedError, AssertionError, MemoryError)
"""What C functions raise without a word; what another thread sets is raised without one, too."""


def came_from_outside(error: BaseException) -> bool:
    """Whether `error`, just caught, interrupted what raised it, rather than came of it."""
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
    """Whether the frame is that of a signal's handler, or of a tracing function: by its arguments, (number, frame) or
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
