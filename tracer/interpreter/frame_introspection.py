"""Functions that inspect local variables by name, or code objects: of their own frame, or of a caller's.

A frame that breaks has stored only the variables that are still read, and a resume function has no others. So a
function that is inspected runs in eager.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..variables.core.base import Translator

_TO_FRAMES = frozenset(("_getframe", "currentframe", "f_back", "stack", "tb_frame"))
_TO_CALLERS = frozenset(("_getframe", "f_back"))
_PLACES = frozenset(("co_name", "co_filename", "co_qualname", "co_firstlineno"))
_PLACES_OF_FRAMES = frozenset(("f_code", "f_lineno"))


_IN_FRAMES = frozenset(("f_locals", *(name for name in dir(CodeType) if name.startswith("co_")))) - _PLACES


def reads_callers(code: CodeType) -> bool:
    """Whether a function with this code reads the variables or the code of its callers, beyond the location, for which
    a resume function answers as well."""
    names = frozenset(code.co_names)
    if _TO_FRAMES.isdisjoint(names):
        return False
    return not _IN_FRAMES.isdisjoint(names) or ("f_code" in names and _PLACES.isdisjoint(names))


def reader_above(frame: Translator) -> str:
    """The innermost function from `frame` outwards that reads its callers' variables and has a traced caller; "" for
    none."""
    while frame.parent is not None:
        if reads_callers(frame.code):
            return frame.code.co_qualname
        frame = frame.parent
    return ""


def _asks_who_called(code: CodeType) -> bool:
    """Whether a function with this code looks where its own caller is. Its resume function is called by what is left of
    it, one frame further in."""
    names = frozenset(code.co_names)
    return not _TO_CALLERS.isdisjoint(names) and not _PLACES_OF_FRAMES.isdisjoint(names)


def reader_called(code: CodeType, f_globals: dict[str, Any], closure: Iterable[CellType]) -> str:
    """A function named in `code` that reads its callers' variables, or `code` itself; "" for none."""
    if reads_callers(code) or _asks_who_called(code):
        return code.co_qualname
    for value in (*map(f_globals.get, code.co_names), *_contents(closure)):
        if isinstance(value, FunctionType) and reads_callers(value.__code__):
            return value.__qualname__
    return ""


def _contents(closure: Iterable[CellType]) -> Iterator[Any]:
    for cell in closure:
        with contextlib.suppress(ValueError):  # an empty one
            yield cell.cell_contents
