"""The positions of a frame's value stack, as they are passed from one part of the frame to the next."""
from __future__ import annotations

import enum
from typing import Any


class Slot(enum.Enum):
    """What a position of the value stack holds: an object, NULL, or what PUSH_EXC_INFO pushes (it is passed as the
    exception that is being handled)."""

    OBJECT = "object"
    NULL = "null"
    HANDLING = "handling"


def push_slot(slot: Slot, name: str) -> list[tuple[str, Any] | tuple[str]]:
    """The instructions that push such a position from the variable `name`."""
    if slot is Slot.NULL:
        return [("PUSH_NULL",)]
    if slot is Slot.OBJECT:
        return [("LOAD_FAST", name)]
    return [("LOAD_FAST", name), ("PUSH_EXC_INFO",), ("POP_TOP",)]


