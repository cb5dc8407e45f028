"""The exception that ended a program, as facts for its recording."""
from __future__ import annotations

import sys
import traceback
from types import TracebackType
from typing import Any

LIMIT = 20_000  # characters
FRAMES = 200


def exception_facts(exit_code: int | None) -> dict[str, Any]:
    """`exception`, the traceback that the interpreter has shown, and `raised`, its parts; {} where there was none. The
    program's own code is not called again: of a class with a `__str__` of its own the message is left out."""
    error = getattr(sys, "last_value", None)
    if not exit_code or not isinstance(error, BaseException):
        return {}
    kind = type(error)
    module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    own = type.__getattribute__(kind, "__str__")
    message = own(error) if getattr(own, "__objclass__", None) is not None else ""
    name = f"{module}{kind.__qualname__}"
    last = f"{name}: {message}" if message else name
    lines = ["Traceback (most recent call last):\n", *traceback.format_tb(error.__traceback__), last]
    return {"exception": "".join(lines)[-LIMIT:],
            "raised": {"type": name, "message": message[:LIMIT], "frames": _frames(error.__traceback__)}}


def _frames(entry: TracebackType | None) -> list[dict[str, Any]]:
    """The frames of a traceback as locations, the innermost last."""
    found = []
    while entry is not None:
        code = entry.tb_frame.f_code
        positions = list(code.co_positions())
        line, end_line, column, end_column = positions[entry.tb_lasti // 2] if entry.tb_lasti >= 0 else (None,) * 4
        found.append({"record": "Location", "file": code.co_filename, "line": line or entry.tb_lineno or 0,
                      "function": code.co_qualname, "column": -1 if column is None else column,
                      "end_line": end_line or -1, "end_column": -1 if end_column is None else end_column})
        entry = entry.tb_next
    return found[-FRAMES:]
