"""The exception that ended a program, as text for its recording."""
from __future__ import annotations

import sys
import traceback

LIMIT = 20_000  # characters


def exception_text(exit_code: int | None) -> str:
    """The traceback that the interpreter has shown; "" where there was none. The program's own code is not called
    again: of a class with a `__str__` of its own the message is left out."""
    error = getattr(sys, "last_value", None)
    if not exit_code or not isinstance(error, BaseException):
        return ""
    kind = type(error)
    module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    own = type.__getattribute__(kind, "__str__")
    message = f": {own(error)}" if getattr(own, "__objclass__", None) is not None else ""
    last = f"{module}{kind.__qualname__}{message}"
    lines = ["Traceback (most recent call last):\n", *traceback.format_tb(error.__traceback__), last]
    return "".join(lines)[-LIMIT:]
