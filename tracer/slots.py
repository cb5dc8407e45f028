"""The positions of a frame's value stack, as they are handed from one piece of the frame to the next."""
from __future__ import annotations

import enum
import sys
from types import TracebackType
from typing import Any

from .codegen import Codegen
from .opcodes.exceptions import Handling
from .tracebacks import set_traceback, traceback_of
from .values.base import NULL, Value


class Slot(enum.Enum):
    """What a position of the value stack holds: an object, NULL, or what PUSH_EXC_INFO leaves there (it is passed on as
    the exception that is being handled)."""

    OBJECT = "object"
    NULL = "null"
    HANDLING = "handling"


def slot_of(value: Value) -> Slot:
    """The kind of position that holds `value`."""
    if value is NULL:
        return Slot.NULL
    return Slot.HANDLING if isinstance(value, Handling) else Slot.OBJECT


def push_slot(slot: Slot, name: str) -> list[tuple[str, Any] | tuple[str]]:
    """The instructions that push such a position, from the variable `name`."""
    if slot is Slot.NULL:
        return [("PUSH_NULL",)]
    if slot is Slot.OBJECT:
        return [("LOAD_FAST", name)]
    return [("LOAD_FAST", name), ("PUSH_EXC_INFO",), ("POP_TOP",)]


def push_object(codegen: Codegen, value: Value) -> None:
    """Push the object that is passed on for a position. An exception that is being handled but was only raised in the
    trace gets a traceback, and one that was made before and has none gets the None that raising it gives it."""
    if not isinstance(value, Handling):
        codegen(value)
    else:
        made_here = value.exception.source is None
        codegen.call_const(ensure_traceback if made_here else ensure_none, [value.exception])


def ensure_traceback(exception: BaseException) -> BaseException:
    """The exception, with a traceback that begins in the calling frame unless it has one (WITH_EXCEPT_START needs it).
    """
    if traceback_of(exception) is None:
        frame = sys._getframe(1)
        set_traceback(exception, TracebackType(None, frame, frame.f_lasti, frame.f_lineno))
    return exception


def ensure_none(exception: BaseException) -> BaseException:
    """The exception, with None for a traceback that is not there: what `except*` puts together on Python 3.11 has no
    field for it before it is raised, and WITH_EXCEPT_START passes that field on as it is."""
    if traceback_of(exception) is None:
        set_traceback(exception, None)
    return exception
