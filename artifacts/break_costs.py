"""What a graph break cost: extra graphs, lost fusions, compile time, and how often it was reached.

A break is followed by resume functions, compiled on their own. They are found by what they continue (`Frame.origin`,
which `Break.resumes` names).
"""
from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from .recording import Recording
from .records import Break, Graph, Schedule
from .resumed import origins_of


@dataclass(frozen=True)
class BreakCost:
    """Extra `graphs`, which would be part of the one before it; lost fusions of kernels on its two sides (`unfused`, an
    upper bound); `seconds` of compiling what follows and of tracing that was thrown away; `passes`, how often the
    program resumed after it in compiled code. Where it did not, `uncompiled` says what runs in eager, and why where
    that is not the break alone."""

    graphs: int = 0
    unfused: int = 0
    seconds: float = 0.0
    passes: int = 0
    uncompiled: str = ""

    def __add__(self, other: BreakCost) -> BreakCost:
        return BreakCost(
            self.graphs + other.graphs, self.unfused + other.unfused, self.seconds + other.seconds,
            self.passes + other.passes, self.uncompiled or other.uncompiled,
        )


class BreakCosts:
    """The costs of a recording's breaks; what they are computed from is read once."""

    def __init__(self, recording: Recording) -> None:
        infos = recording.compiles()
        self._seconds = {info.id: info.seconds.get("total", 0.0) for info in infos}
        self._skipped = {info.id: info.reason for info in infos if info.status == "skipped"}
        self._continued: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._functions: dict[str, str] = {}
        for owner, origin in origins_of(recording).items():
            self._continued[_process(owner), origin].append(owner)
            self._functions[owner] = origin.rpartition("+")[0]
        self._graphs = {i.compile for i in recording.artifacts(stage="capture")}
        self._calls = {i.compile: int(i.facts.get("calls", 0)) for i in recording.artifacts(kind="Runtime")}
        self._recording = recording

    def of(self, met: Sequence[tuple[str, Break]]) -> BreakCost:
        """The cost of one break, which each of some compilations reached. They resume in different functions where the
        function that breaks was inlined into others."""
        total = BreakCost(seconds=sum(found.seconds for _, found in met))
        before: dict[str, list[tuple[str, Break]]] = defaultdict(list)
        for owner, found in met:
            for origin in found.resumes:
                for other in self._continued[_process(owner), origin]:
                    before[other].append((owner, found))
        for other, sides in before.items():
            unfused = max(self._unfused(owner, other, found.live_tensors) for owner, found in sides)
            total += BreakCost(int(other in self._graphs), unfused, self._seconds.get(other, 0.0))
        uncompiled = next((self._uncompiled(owner, found) for owner, found in met if not found.resume), "")
        return replace(total, passes=self._passes(before), uncompiled=uncompiled)

    def _uncompiled(self, owner: str, found: Break) -> str:
        what = "the rest of the function" if owner in self._functions else "the whole function"
        why = self._skipped.get(owner, found.message)
        return what if why == found.message else f"{what}, since {why}"

    def _passes(self, continued: Iterable[str]) -> int:
        """How often the program resumed in these compilations. Each function around the one that breaks also resumes,
        so the function counts that resumes most often."""
        calls: Counter[str] = Counter()
        for other in continued:
            calls[self._functions[other]] += self._calls.get(other, 0)
        return max(calls.values(), default=0)

    def _unfused(self, before: str, after: str, live: tuple[str, ...]) -> int:
        first, second = (self._recording.find(Schedule, owner, "schedule") for owner in (before, after))
        if first is None or second is None or _process(before) != _process(after):
            return 0
        results = {buffer.id for buffer in first.buffers if buffer.role == "output"}
        inputs = self._inputs(after, live)
        writers = sum(g.kind == "loops" and bool(results.intersection(g.writes)) for g in first.groups)
        readers = sum(g.kind == "loops" and bool(inputs.intersection(g.reads)) for g in second.groups)
        return min(writers, readers)

    def _inputs(self, compile_id: str, live: tuple[str, ...]) -> set[str]:
        """The buffers of a compilation that come in as the variables `live`."""
        graph = self._recording.find(Graph, compile_id, "capture")
        if graph is None:
            return set()
        names = {f"l__{name}__".lower() for name in live}  # FX writes the names of nodes in small letters
        inputs = [node.id for node in graph.nodes if node.op == "placeholder"]
        return {f"arg{number}" for number, name in enumerate(inputs) if name.lower() in names}


def _process(compile_id: str) -> str:
    return compile_id.partition("@")[2]
