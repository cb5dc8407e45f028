"""The decisions that the compilation of a case makes, with the lines of the program that each is about."""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from ...artifacts.recorder import NullRecorder
from ...artifacts.records import AnyRecord, Decision, Graph, Location, Loops, Pass, Ref, ref, split_ref
from ...dependencies import msgspec

_CUTS = re.compile(r"[+:@]")


class Made(msgspec.Struct, frozen=True):
    """A decision, and where in the program what it is about comes from."""

    decision: Decision
    lines: tuple[Location, ...] = ()


class Decisions(NullRecorder):
    """A recorder that keeps decisions, and hands each to `tell` at once: the process may die in the next moment."""

    def __init__(self, graph: Graph, tell: Callable[[Decision], object] = lambda decision: None) -> None:
        self.found: list[Decision] = []
        self._tell = tell
        self._lines: dict[Ref, tuple[Location, ...]] = {}
        self._named: dict[str, Ref] = {}
        self._take(graph, "capture", "")

    def decision(self, compile_id: str, decision: Decision) -> None:
        """Keep it."""
        self.found.append(decision)
        self._tell(decision)

    def record(self, compile_id: str, stage: str, name: str, record: AnyRecord) -> None:
        """Keep the lines that its items come from."""
        if isinstance(record, Pass):
            self._take(record.graph, stage, name)
        elif isinstance(record, Graph):
            self._take(record, stage, name)
        elif isinstance(record, Loops):
            origins = [origin for statement in record.statements for origin in statement.origins]
            self._lines[ref(stage, "", name).rstrip("#")] = self._of(origins)
            self._named[name] = ref(stage, "", name).rstrip("#")

    def _take(self, graph: Graph, stage: str, name: str) -> None:
        for node in graph.nodes:
            key = ref(stage, node.id, name)
            self._lines[key] = node.stack[-1:] or self._of(node.origins)
            self._named.setdefault(node.id, key)

    def _of(self, origins: Iterable[Ref]) -> tuple[Location, ...]:
        return tuple(dict.fromkeys(line for origin in origins for line in self._lines.get(origin, ())))

    def made(self) -> list[Made]:
        """The decisions; of those that have one id, the last."""
        last = {decision.id: decision for decision in self.found}
        return [Made(decision, self._about(decision)) for decision in last.values()]

    def _about(self, decision: Decision) -> tuple[Location, ...]:
        if decision.location is not None:
            return (decision.location,)
        origins = [o for o in decision.origins if split_ref(o)[0] == "capture"] or decision.origins
        words = [w for word in _CUTS.split(decision.subject) for w in (word, word.rpartition(".")[2])]
        return self._of(origins) or self._of(self._named[word] for word in words if word in self._named)


def read_told(path: Path, graph: Graph) -> list[Made]:
    """What a process had written of its decisions, a line each, before it died."""
    try:
        lines = path.read_bytes().splitlines()
        found = [msgspec.json.decode(line, type=Decision) for line in lines]
    except (OSError, msgspec.MsgspecError):
        return []
    told = Decisions(graph)
    told.found += found
    return told.made()
