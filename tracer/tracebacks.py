"""Tracebacks as the program's own: a frame that went on in resume functions is there as eager has it."""
from __future__ import annotations

import dis
from collections.abc import Sequence
from types import CodeType, TracebackType

from .per_code import PerCode, cached_per_code
from .skips import is_program

_GENERATED = "<ptdebug", "<eval_with_key>"
_HANDS_OVER: PerCode[tuple[range, ...]] = PerCode()


def hands_over(code: CodeType, places: Sequence[range]) -> None:
    """Say which instructions of `code`, by number, call functions that are the rest of its own frame."""
    if places:
        _HANDS_OVER[code] = tuple(places)


def as_in_eager(error: BaseException) -> None:
    """Take out of the traceback of `error` its first entry (the caller's), and out of its own and those of all
    exceptions that it is linked with the calls of resume functions: what these raise is said by their own entries, and
    in eager there is no such call."""
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next
    seen: dict[int, BaseException] = {}
    pending: list[BaseException | None] = [error]
    while pending:
        linked = pending.pop()
        if linked is None or id(linked) in seen:
            continue
        seen[id(linked)] = linked
        linked.__traceback__ = _without_own_calls(linked.__traceback__)
        pending += [linked.__cause__, linked.__context__]
        if isinstance(linked, BaseExceptionGroup):
            pending += linked.exceptions


def _without_own_calls(traceback: TracebackType | None) -> TracebackType | None:
    entries: list[TracebackType] = []
    entry, dropped = traceback, False
    while entry is not None:
        code = entry.tb_frame.f_code
        places = _HANDS_OVER.get(code) or ()
        if places and any(_number(code, entry.tb_lasti) in place for place in places):
            dropped = True
        else:
            entries.append(entry)
        entry = entry.tb_next
    return _linked(entries) if dropped else traceback


def below_graph(error: BaseException) -> TracebackType | None:
    """Of what a graph raised, as caught in the frame that calls it: the program's lines below that frame (a hook's)."""
    entries: list[TracebackType] = []
    entry = error.__traceback__ and error.__traceback__.tb_next
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


@cached_per_code(256)
def _number(code: CodeType, offset: int) -> int:
    """Which instruction of `code` stands at `offset`, not counting EXTENDED_ARG and CACHE."""
    found = [raw.offset for raw in dis.get_instructions(code) if raw.opname not in ("EXTENDED_ARG", "CACHE")]
    return found.index(offset)
