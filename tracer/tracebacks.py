"""Tracebacks as the program's own: a frame that went on in a resume function stands there once."""
from __future__ import annotations

import weakref
from types import CodeType, FrameType, TracebackType

_CONTINUATIONS: weakref.WeakSet[CodeType] = weakref.WeakSet()


def continues_a_frame(code: CodeType) -> None:
    """Say that frames of `code` are the rest of the frame that calls them."""
    _CONTINUATIONS.add(code)


def as_in_eager(traceback: TracebackType | None) -> TracebackType | None:
    """`traceback` without its first frame (the caller's), and with one entry for a frame and those that continue it."""
    entries: list[TracebackType] = []
    places: dict[FrameType, int] = {}  # of frames that are continued, in `entries`
    entry = traceback.tb_next if traceback is not None else None
    while entry is not None:
        if entries and entry.tb_frame.f_code in _CONTINUATIONS:
            continued = entries.pop().tb_frame
            places[continued] = places[entry.tb_frame] = len(entries)
        elif entry.tb_frame in places:  # it raised, was continued in its handler, and that raised the same again
            del entries[places[entry.tb_frame] :]
        entries.append(entry)
        entry = entry.tb_next
    result: TracebackType | None = None
    for entry in reversed(entries):
        result = TracebackType(result, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return result
