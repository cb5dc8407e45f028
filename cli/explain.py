"""`ptdebug.explain(fn)(*args)`: compile and run a function once, and report what the compiler saw."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..artifacts.facts import operations
from ..artifacts.records import AnyRecord, Break, Breaks, Decision, Graph, Guard, Guards
from ..tracer.frames import dispatch
from . import session
from .compile_anything import compile_anything
from .wiring import requested


@dataclass
class Collector:
    """A `Recorder` that keeps records in memory, by compile id."""

    records: dict[str, list[tuple[str, str, AnyRecord]]] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)  # of what was not compiled

    def begin(self, compile_id: str, function: str, file: str, line: int) -> None:
        """A compilation starts."""
        self.records.setdefault(compile_id, [])

    def record(self, compile_id: str, stage: str, name: str, record: AnyRecord) -> None:
        """Keep it."""
        self.records.setdefault(compile_id, []).append((stage, name, record))

    def absent(self, compile_id: str, stage: str, why: str) -> None:
        """Not part of the report."""

    def decision(self, compile_id: str, decision: Decision) -> None:
        """Keep it."""
        self.decisions.append(decision)

    def end(self, compile_id: str, status: str, reason: str, seconds: Mapping[str, float]) -> None:
        """Remember why something was not compiled."""
        if status != "compiled" and reason:
            self.reasons[compile_id] = f"{status}: {reason}"

    def source_file(self, path: str) -> None:
        """Not part of the report."""

    def of_stage(self, stage: str) -> list[AnyRecord]:
        """All records of a stage, in order."""
        return [record for items in self.records.values() for name, _, record in items if name == stage]


@dataclass(frozen=True)
class Explanation:
    """What one run of a function was compiled into. Prints as a report; `result` is what the function returned."""

    graphs: tuple[Graph, ...]
    graph_breaks: tuple[Break, ...]
    guards: tuple[Guard, ...]
    decisions: tuple[Decision, ...]
    not_compiled: Mapping[str, str]
    result: Any

    @property
    def ops(self) -> int:
        """How many operations the graphs hold."""
        return sum(operations(graph) for graph in self.graphs)

    def __str__(self) -> str:
        lines = [f"graphs: {len(self.graphs)}, operations: {self.ops}, graph breaks: {len(self.graph_breaks)}, "
                 f"guards: {len(self.guards)}, decisions: {len(self.decisions)}"]
        for found in self.graph_breaks:
            place = found.location
            lines += [f"break at {place.file}:{place.line} in {place.function}: {found.source.strip()}",
                      f"  {found.code}: {found.message}", f"  {found.hint}"]
        lines += [f"not compiled: {compile_id} {reason}" for compile_id, reason in self.not_compiled.items()]
        return "\n".join(lines)


def explain(fn: Any, **options: Any) -> Callable[..., Explanation]:
    """A callable that compiles `fn` afresh, runs it on its arguments, and returns an `Explanation`.

    What the process has compiled before is forgotten (as by `torch.compiler.reset`), so that nothing is missing.
    `options` are those of `compile`. What `fn` raises is raised.
    """

    request = requested(**options)

    def explained(*args: Any, **kwargs: Any) -> Explanation:
        dispatch.forget()
        collector = Collector()
        inside = session.enter(session.Session(session.Settings(inputs="none"), collector))
        try:
            result = compile_anything(fn, request)(*args, **kwargs)
        finally:
            session.leave(inside)
        graphs = tuple(r for r in collector.of_stage("capture") if isinstance(r, Graph))
        breaks = tuple(b for r in collector.of_stage("breaks") if isinstance(r, Breaks) for b in r.breaks)
        guards = tuple(g for r in collector.of_stage("guards") if isinstance(r, Guards) for g in r.guards)
        return Explanation(graphs, breaks, guards, tuple(collector.decisions), collector.reasons, result)

    return explained
