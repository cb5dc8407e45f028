"""How far the tracing of one frame goes: limits that an override may move (decisions).

A limit is recorded where it is reached, or where an override sets it: of most frames nobody wants to know.
"""
from __future__ import annotations

from dataclasses import dataclass, field

from ...artifacts.context import CompileContext

MAX_DEPTH = 80
"""Nested calls that are inlined; each takes about ten Python frames of ptdebug's."""
MOST_WORK = 50_000
"""Turns of loops and calls that are followed in one frame: some seconds. Transformers take some thousand."""


@dataclass
class Limits:
    """The limits of all attempts at one frame, which is `subject` in their decisions."""

    context: CompileContext
    subject: str
    depth: int = field(default_factory=lambda: MAX_DEPTH)
    work: int = field(default_factory=lambda: MOST_WORK)
    _recorded: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.context.override("inline-depth", self.subject) is not None:
            self.depth = self._decide("inline-depth", MAX_DEPTH, "nested calls that are inlined")
        if self.context.override("trace-limit", self.subject) is not None:
            self.work = self._decide("trace-limit", MOST_WORK, "steps that are traced")

    def depth_reached(self) -> None:
        """Record that a call is not inlined, since it is as deep as the limit."""
        self._decide("inline-depth", MAX_DEPTH, "reached: a call this deep is not inlined")

    def work_reached(self) -> None:
        """Record that the frame is not traced any further."""
        self._decide("trace-limit", MOST_WORK, "reached: loop iterations, calls and list items")

    def _decide(self, kind: str, default: int, why: str) -> int:
        if kind in self._recorded:
            return default
        self._recorded.add(kind)
        return self.context.number(kind, self.subject, default, why)
