"""Values of the stack that are passed to the next part of a frame."""
from __future__ import annotations

import sys
from types import FrameType, TracebackType

from ..bytecode.unbound_slots import Slot
from ..runtime.tracebacks import set_traceback, traceback_of
from ..variables.core.base import NULL, Value
from ..variables.python.exceptions import Handling
from .reconstruct import Codegen


def slot_of(value: Value) -> Slot:
    """The kind of stack position that holds `value`."""
    if value is NULL:
        return Slot.NULL
    return Slot.HANDLING if isinstance(value, Handling) else Slot.OBJECT


def push_object(codegen: Codegen, value: Value) -> None:
    """Push the object that is passed for a stack position. An exception that is being handled but was only raised in
    the trace gets a traceback; one that existed before and has none gets the None that raising it gives."""
    if not isinstance(value, Handling):
        codegen(value)
    else:
        made_here = value.exception.source is None
        codegen.call_const(ensure_traceback if made_here else ensure_none, [value.exception])


def ensure_traceback(exception: BaseException, frame: FrameType | None = None) -> BaseException:
    """The exception, with a traceback that begins in `frame`, or in its caller, unless it has one (WITH_EXCEPT_START
    needs it)."""
    if traceback_of(exception) is None:
        frame = frame or sys._getframe(1)
        set_traceback(exception, TracebackType(None, frame, frame.f_lasti, frame.f_lineno))
    return exception


def ensure_none(exception: BaseException) -> BaseException:
    """The exception, with its missing traceback set to None: the group that `except*` builds on Python 3.11 has no such
    field before it is raised, and WITH_EXCEPT_START passes the field as it is."""
    if traceback_of(exception) is None:
        set_traceback(exception, None)
    return exception
