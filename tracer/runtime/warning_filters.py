"""Warnings while a frame is compiled: those of the user's calls are shown at the user's lines, the tracer's own are not
shown."""
from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any


class _ThisThread:
    """Replaces a filter's module pattern: matches every module, but only in one thread and while none of the user's
    calls runs there."""

    calls = 0
    """How many of the user's calls run, nested: one may call a function that compiles."""

    def __init__(self) -> None:
        self._thread: int | None = threading.get_ident()

    def match(self, module: str) -> bool:
        """Whether the warning comes from the thread that made this filter."""
        return threading.get_ident() == self._thread and not self.calls

    def end(self) -> None:
        """Match nothing from now on: another thread's `catch_warnings` may have kept a copy of the filters."""
        self._thread = None


@contextlib.contextmanager
def no_warnings() -> Iterator[None]:
    """Ignore warnings of this thread inside the block.

    Filters are process-wide. So one filter is added that applies to this thread only and leaves no trace in the
    registries of warnings that were shown (`ignore` writes none, and the filters' version stays).
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
    """`no_warnings`, where one of the user's filters would turn some into errors."""
    raises = any(entry[0] == "error" for entry in warnings.filters)
    return no_warnings() if raises else contextlib.nullcontext()


_CALL: CodeType = (lambda function, args, kwargs: function(*args, **kwargs)).__code__  # all on one line


def called_at(code: CodeType, line: int, f_globals: dict[str, Any]) -> Callable[..., Any]:
    """A function that calls `(function, args, kwargs)` from this line of the user's program, so that a warning names
    the line, is shown once for it, and raises if the user's filters say so."""
    place = _CALL.replace(co_filename=code.co_filename, co_firstlineno=line, co_name=code.co_name)
    call = FunctionType(place, f_globals)

    def called(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        _ThisThread.calls += 1
        try:
            if isinstance(function, FunctionType):  # it may warn about its caller: none of the tracer's lines
                return call(call, (call, (call, (function, args, kwargs), {}), {}), {})
            return call(function, args, kwargs)
        finally:
            _ThisThread.calls -= 1

    return called


@functools.cache
def passed_over(code: CodeType) -> CodeType:
    """The same code in a file that `warnings.warn(..., stacklevel=2)` and logging's `stacklevel` skip, as they skip the
    import system's, by parts of the name."""
    return code.replace(co_filename=f"{code.co_filename} (importlib._bootstrap)")
