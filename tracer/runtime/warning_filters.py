"""What torch warns of while a frame is compiled: of the program's calls at the program's lines, of ours nowhere."""
from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any


class _ThisThread:
    """In the place of a filter's pattern for modules: every module, but only while this thread runs none of the
    program's calls."""

    calls = 0
    """How many calls of the program's run: inside of each other, as one may be of a function that compiles."""

    def __init__(self) -> None:
        self._thread: int | None = threading.get_ident()

    def match(self, module: str) -> bool:
        """Whether the warning comes from the thread that made this."""
        return threading.get_ident() == self._thread and not self.calls

    def end(self) -> None:
        """Match nothing from now on: another thread's `catch_warnings` may have kept a copy of the filters."""
        self._thread = None


@contextlib.contextmanager
def no_warnings() -> Iterator[None]:
    """Warnings of this thread are ignored inside.

    The filters belong to the whole process. So one is added that holds for this thread alone, and that leaves no trace
    in the registries of what was warned of before (`ignore` writes none, and the filters' version stays).
    """
    filters = warnings.filters
    here = _ThisThread()
    ours = ("ignore", None, Warning, here, 0)
    filters.insert(0, ours)  # type: ignore[attr-defined]  # typeshed has a Sequence
    try:
        yield
    finally:
        here.end()
        for known in (filters, warnings.filters):
            if ours in known:
                known.remove(ours)  # type: ignore[attr-defined]


def warnings_are_no_errors() -> contextlib.AbstractContextManager[None]:
    """`no_warnings`, where a filter of the program would make errors of some."""
    raises = any(entry[0] == "error" for entry in warnings.filters)
    return no_warnings() if raises else contextlib.nullcontext()


_CALL: CodeType = (lambda function, args, kwargs: function(*args, **kwargs)).__code__  # all on its first line


def called_at(code: CodeType, line: int, f_globals: dict[str, Any]) -> Callable[..., Any]:
    """A function that calls another one, `(function, args, kwargs)`, from this line of the program: what is warned of
    there names it, is shown once for it, and may raise as the program's filters say."""
    place = _CALL.replace(co_filename=code.co_filename, co_firstlineno=line, co_name=code.co_name)
    call = FunctionType(place, f_globals)

    def called(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        _ThisThread.calls += 1
        try:
            if isinstance(function, FunctionType):  # which may warn of who called it: no line of ours
                return call(call, (call, (call, (function, args, kwargs), {}), {}), {})
            return call(function, args, kwargs)
        finally:
            _ThisThread.calls -= 1

    return called


@functools.cache
def passed_over(code: CodeType) -> CodeType:
    """The same code in a file that `warnings.warn(..., stacklevel=2)` and logging's `stacklevel` do not count: as they
    do with the import system's, by parts of the name."""
    return code.replace(co_filename=f"{code.co_filename} (importlib._bootstrap)")
