"""Distinguishes exceptions that come from outside from ptdebug's own: of signal handlers, tracing functions, threads.

Python raises them wherever it happens to be, also in the compiler or the recorder. They belong to the program, so no
handler for ptdebug's own errors may swallow them.
"""
from __future__ import annotations

import dis
import opcode
import signal
from collections.abc import Iterator
from itertools import pairwise
from types import CodeType, FrameType, TracebackType

_INTERRUPTIBLE = ("RESUME", "JUMP_BACKWARD", "CALL", "PRECALL")
"""Prefixes of the instructions after which CPython checks for exceptions set by other threads."""
_ALWAYS_BETWEEN = ("RESUME", "JUMP_BACKWARD")
"""Those of them that raise nothing themselves."""
_RAISED_EMPTY: dict[type[BaseException], tuple[str, ...]] = {
    StopIteration: ("next", "__next__", "send", "throw"),
    StopAsyncIteration: ("anext", "__anext__", "asend", "athrow"),
}
"""Exceptions that C functions raise without arguments, as those set by other threads are, and the names of these."""


def came_from_outside(error: BaseException) -> bool:
    """Whether `error`, just caught, interrupted the code that it was raised in, rather than being caused by it."""
    entries = list(_entries(error.__traceback__))
    if any(_was_called_by_python(entry.tb_frame) for entry in entries[1:]):
        return True
    if error.args or not entries:
        return False
    code, offset = entries[-1].tb_frame.f_code, entries[-1].tb_lasti
    last = opcode.opname[code.co_code[offset]]
    if not last.startswith(_INTERRUPTIBLE):
        return False
    if last.startswith(_ALWAYS_BETWEEN):
        return True
    if isinstance(error, MemoryError):  # any call may need memory
        return False
    return _called(code, offset) not in _RAISED_EMPTY.get(type(error), ())


def ran_out_of_stack(error: BaseException) -> bool:
    """Whether Python itself raised `error`, because calls are nested too deeply."""
    return isinstance(error, RecursionError) and str(error).startswith("maximum recursion depth exceeded")


def _called(code: CodeType, offset: int) -> str:
    """The name of the function that the call at `offset` calls: the last part of the expression that begins there."""
    before: list[dis.Instruction] = []
    for instruction in dis.get_instructions(code):
        if instruction.offset == offset:
            starts = _start(instruction)
            loads = (i for i in reversed(before) if i.opname.startswith("LOAD_") and _start(i) == starts)
            return next((str(i.argval) for i in loads), "")
        before.append(instruction)
    return ""


def _start(instruction: dis.Instruction) -> tuple[int | None, int | None]:
    positions = instruction.positions
    return (positions.lineno, positions.col_offset) if positions is not None else (None, None)


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
