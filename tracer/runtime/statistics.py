"""Counters of what the tracer has done in this process."""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...artifacts.records import Break, Recompile

_BREAK = "graph break: "


class Converted(Protocol):
    """What is counted for a converted frame."""

    @property
    def graphs(self) -> int:
        """How many graphs were compiled."""

    @property
    def ops(self) -> int:
        """How many operations they have."""

    @property
    def breaks(self) -> tuple[Break, ...]:
        """The graph breaks of the frame."""


class Statistics:
    """Counters, and how often each reason for a break, a recompilation or an eager frame occurred."""

    _tell: Callable[[str, str, int], None] = staticmethod(lambda group, name, number: None)

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()
        self.frames = self.whole_frames = 0
        self.graphs = self.ops = self.graph_breaks = self.recompiles = 0

    def clear(self) -> None:
        """Reset all counters."""
        self.__init__()  # type: ignore[misc]

    def compiled(self, converted: Converted) -> None:
        """A frame was compiled."""
        self.graphs += converted.graphs
        self.ops += converted.ops
        self.frames += 1
        self.whole_frames += 1
        for group, name, number in self._as_dynamo(1, 1, converted.graphs, converted.ops):
            self._tell(group, name, number)
        self.broke(converted.breaks)

    def broke(self, breaks: Sequence[Break]) -> None:
        """A frame was broken, or skipped, for these reasons."""
        self.graph_breaks += len(breaks)
        for graph_break in breaks:
            self.reasons[f"{_BREAK}{graph_break.message}"] += 1
            self._tell("graph_break", graph_break.message, 1)

    def recompiled(self, reason: Recompile) -> None:
        """An entry existed, but its guards failed."""
        self.recompiles += 1
        self.reasons[f"recompile: {reason.guard}, got {reason.actual}"] += 1

    def skipped(self, reason: str) -> None:
        """There was nothing to compile in a frame."""
        self.frames += 1
        self._tell("frames", "total", 1)
        self.reasons[f"skipped: {re.sub(r' at 0x[0-9a-f]+', '', reason)}"] += 1

    def export(self, add: Callable[[str, str, int], None]) -> None:
        """Report all counts, past and future, through `add(group, name, number)`, under the names of Dynamo's
        counters."""
        self._tell = add
        for group, name, number in self._as_dynamo(self.frames, self.whole_frames, self.graphs, self.ops):
            add(group, name, number)
        for reason, number in self.reasons.items():
            if reason.startswith(_BREAK):
                add("graph_break", reason.removeprefix(_BREAK), number)

    def _as_dynamo(self, frames: int, whole: int, graphs: int, ops: int) -> tuple[tuple[str, str, int], ...]:
        return (("frames", "total", frames), ("frames", "ok", whole), ("stats", "unique_graphs", graphs),
                ("stats", "calls_captured", ops))

    def as_dict(self) -> dict[str, Any]:
        """The dictionary that `ptdebug.stats()` returns."""
        return {
            "graphs": self.graphs, "ops": self.ops, "graph_breaks": self.graph_breaks, "recompiles": self.recompiles,
            "reasons": dict(self.reasons),
        }


STATISTICS = Statistics()
