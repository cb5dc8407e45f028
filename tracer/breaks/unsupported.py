"""What stops tracing: the one exception that becomes a graph break."""
from __future__ import annotations

from typing import Any


class Unsupported(Exception):
    """The tracer cannot follow: becomes a graph break. `code` names an entry of `breaks.BREAKS`."""

    def __init__(self, code: str, detail: str = "", **context: Any) -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code
        self.detail = detail
        self.context = context
