"""Who looks at the variables of a function by their names: the function itself, or one that it calls, in its frame.

A frame that breaks has set those variables alone that are read again, and a resume function has no others: a function
that is looked at runs as it was written.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .interpreter import Interpreter

_TO_FRAMES = frozenset(("_getframe", "currentframe", "f_back", "stack", "tb_frame"))


def reads_callers(code: CodeType) -> bool:
    """Whether a function with this code reads the variables of those that call it."""
    return "f_locals" in code.co_names and not _TO_FRAMES.isdisjoint(code.co_names)


def reader_above(frame: Interpreter) -> str:
    """The innermost function from `frame` outwards that reads its callers' variables, and has a caller that is traced;
    "" for none."""
    while frame.parent is not None:
        if reads_callers(frame.code):
            return frame.code.co_qualname
        frame = frame.parent
    return ""


def reader_called(code: CodeType, f_globals: dict[str, Any], closure: Iterable[CellType]) -> str:
    """A function that `code` names and that reads its callers' variables, or `code` itself; "" for none."""
    if reads_callers(code):
        return code.co_qualname
    for value in (*map(f_globals.get, code.co_names), *_contents(closure)):
        if isinstance(value, FunctionType) and reads_callers(value.__code__):
            return value.__qualname__
    return ""


def _contents(closure: Iterable[CellType]) -> Iterator[Any]:
    for cell in closure:
        with contextlib.suppress(ValueError):  # an empty one
            yield cell.cell_contents
