"""In a program that has warnings raise, those that compiling comes upon do not."""
from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator


class _ThisThread:
    """In the place of a filter's pattern for modules: every module, but only while this thread runs."""

    def __init__(self) -> None:
        self._thread: int | None = threading.get_ident()

    def match(self, module: str) -> bool:
        """Whether the warning comes from the thread that made this."""
        return threading.get_ident() == self._thread

    def end(self) -> None:
        """Match nothing from now on: another thread's `catch_warnings` may have kept a copy of the filters."""
        self._thread = None


@contextlib.contextmanager
def warnings_are_no_errors() -> Iterator[None]:
    """Warnings of this thread are ignored inside, where a filter of the program would make errors of some.

    The filters belong to the whole process. So one is added that holds for this thread alone, and that leaves no trace
    in the registries of what was warned of before (`ignore` writes none, and the filters' version stays).
    """
    filters = warnings.filters
    if not any(entry[0] == "error" for entry in filters):
        yield
        return
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
