"""Questions about a recording as a whole, answered as JSON documents."""
from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from .break_costs import BreakCost, BreakCosts
from .failures import failure_document, failures
from .isolated_compiles import isolated_compiles
from .process_liveness import ending, is_running
from .recording import ArtifactInfo, CompileInfo, Recording
from .records import (
    LIMIT_REACHED,
    SCHEMA,
    Break,
    Breaks,
    Guard,
    Guards,
    Recompile,
)
from .resumed import display_name, resumed
from .stages import TIMINGS


def breaks(recording: Recording, compile_id: str | None = None) -> list[tuple[str, Break, int]]:
    """Each graph break once, with the first compilation that had it and how many had it."""
    return [(*met[0], len(met)) for met in _places(recording, compile_id)]


def break_costs(recording: Recording, compile_id: str | None = None) -> list[BreakCost]:
    """What each of `breaks` cost, in their order."""
    costs = BreakCosts(recording)
    return [costs.of(met) for met in _places(recording, compile_id)]


def ranked_breaks(
    recording: Recording, compile_id: str | None = None
) -> list[tuple[tuple[str, Break, int], BreakCost]]:
    """`breaks` with their costs: the function that lost the most compile time first, its breaks by line."""
    found = list(zip(breaks(recording, compile_id), break_costs(recording, compile_id)))
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    for (_, entry, _), cost in found:
        seconds[entry.location.file, entry.location.function] += cost.seconds

    def rank(item: tuple[tuple[str, Break, int], BreakCost]) -> tuple[float, tuple[str, str], int]:
        place = item[0][1].location
        return -seconds[place.file, place.function], (place.file, place.function), place.line

    return sorted(found, key=rank)


def _places(recording: Recording, compile_id: str | None) -> list[list[tuple[str, Break]]]:
    places: dict[tuple[Any, ...], list[tuple[str, Break]]] = {}
    for owner, record in recording.records(Breaks, compile_id):
        for found in record.breaks:
            key = (found.code, found.location.file, found.location.line, found.location.column, found.source)
            places.setdefault(key, []).append((owner, found))
    return list(places.values())


def guards(recording: Recording, compile_id: str | None = None) -> list[tuple[str, Guard]]:
    """All guards, with their compilation."""
    return [(owner, guard) for owner, record in recording.records(Guards, compile_id) for guard in record.guards]


def recompiles(recording: Recording, compile_id: str | None = None) -> list[tuple[str, Recompile]]:
    """The compilations that a failed guard caused, each with that guard."""
    return recording.records(Recompile, compile_id)


def limits(recording: Recording, compile_id: str | None = None) -> list[tuple[str, str]]:
    """The compilations that the recompile limit prevented, and the reason."""
    if compile_id:
        return []
    return [(info.id, info.reason) for info in recording.compiles() if LIMIT_REACHED in info.reason]


def summary(recording: Recording) -> dict[str, Any]:
    """The summary: `ptdebug show RECORDING --json` and `ptdebug run --json FILE`."""
    meta = recording.meta
    facts = _PerCompile(recording)
    infos = recording.compiles()
    after = resumed(recording)
    compiles = [_compile_document(info, facts, display_name(info, after)) for info in infos]
    found_breaks = breaks(recording)
    found_recompiles = recompiles(recording)
    by_id = {info.id: info for info in infos}
    return {
        "schema": SCHEMA,
        "recording": str(recording.path),
        "command": meta.get("command", []),
        "exit_code": meta.get("exit_code"),
        "exception": meta.get("exception"),
        "failures": [failure_document(found) for found in failures(recording)],
        "folder": meta.get("folder", ""),
        "options": meta.get("options", {}),
        "environment": meta.get("environment", {}),
        "output": meta.get("output"),
        "ended": "ended" in meta,
        "stopped": recording.stopped,
        "running": is_running(meta),
        "ending": "" if "exit_code" in meta else ending(meta),
        "compiler": meta.get("compiler", "ptdebug"),
        "versions": meta.get("versions", {}),
        "ranks": recording.ranks,
        "counts": {
            "frames": len({_frame(info.id) for info in infos}),
            "compiles": sum(info.status == "compiled" for info in infos),
            "graphs": len(facts.graph_nodes),
            "ops": sum(facts.ops.values()),
            "graph_breaks": len(found_breaks),
            "recompiles": len(found_recompiles),
            "guards": sum(facts.guards.values()),
            "kernels": sum(facts.kernels.values()),
            "extern_calls": sum(facts.extern_calls.values()),
            "decisions": recording.count_decisions(),
            "skipped_frames": len({_frame(info.id) for info in infos if info.status == "skipped"}),
        },
        "compiles": compiles,
        "graph_breaks": [break_document(*entry, cost) for entry, cost in zip(found_breaks, break_costs(recording))],
        "recompiles": [
            recompile_document(by_id[owner], found) for owner, found in found_recompiles
        ],
        "isolated_compiles": isolated_compiles(recording),
        "absent": [{"compile": owner, "stage": a.stage, "why": a.why} for owner, a in recording.absents()],
        "overhead_seconds": {"recording": _overhead(infos, meta.get("writer_seconds", {}))},
        "notes": recording.notes(),
        "problems": list(recording.problems),
    }


def break_document(owner: str, found: Break, times: int, cost: BreakCost) -> dict[str, Any]:
    """A graph break as JSON, with the columns of its expression and its cost."""
    place = found.location
    return {"compile": owner, "code": found.code, "message": found.message, "hint": found.hint,
            "file": place.file, "line": place.line, "source": found.source, "times": times,
            "function": place.function, "resume": found.resume, "expression": found.expression,
            "column": place.column, "end_line": place.end_line, "end_column": place.end_column,
            "cost": {"graphs": cost.graphs, "kernels_not_fused": cost.unfused, "seconds": cost.seconds,
                     "passes": cost.passes, "uncompiled": cost.uncompiled}}


def recompile_document(info: CompileInfo, found: Recompile) -> dict[str, Any]:
    """A recompilation as JSON, with the seconds that it took. A guard that no line needs (on a setting of torch) gets
    the first line of the function."""
    place, call = found.location, found.call_site
    return {"compile": info.id, "guard": found.guard, "expected": _number(found.expected),
            "actual": _number(found.actual), "file": place.file if place else info.file,
            "line": place.line if place else info.line, "hint": found.hint, "compared_with": found.compared_with,
            "subject": found.subject, "other_failures": list(found.other_failures), "entries": found.entries,
            "seconds": info.seconds.get("total", 0.0),
            "call_site": {"file": call.file, "line": call.line} if call else None}


class _PerCompile:
    """Counts for each compilation, from one walk over the records that hold them."""

    def __init__(self, recording: Recording) -> None:
        self.graph_nodes: Counter[str] = Counter()
        self.ops: Counter[str] = Counter()
        self.guards: Counter[str] = Counter()
        self.kernels: Counter[str] = Counter()
        self.extern_calls: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.library_calls: Counter[str] = Counter()
        self.stages: dict[str, dict[str, None]] = defaultdict(dict)  # keys in the order of stages
        planned: dict[str, ArtifactInfo] = {}
        stock: dict[str, int] = defaultdict(int)
        for info in recording.artifacts():
            self.stages[info.compile][info.stage] = None
            if info.stage == "capture":
                self.graph_nodes[info.compile] += info.items
                self.ops[info.compile] += _count(info, "operations")
            elif info.kind == "Guards":
                self.guards[info.compile] += info.items
            elif info.kind == "Runtime":
                self.calls[info.compile] += _count(info, "calls")
            elif info.kind == "Schedule":
                planned[info.compile] = info
                self.kernels[info.compile] += _count(info, "kernels")
                self.extern_calls[info.compile] += _count(info, "extern_calls")
            elif info.kind == "Kernel":
                stock[info.compile] += _count(info, "kernels")
            elif info.kind == "Wrapper":
                self.library_calls[info.compile] += _count(info, "library_calls")
        for owner in recording.decisions_by_compile():
            self.stages[owner]["decisions"] = None
        for owner, stages in self.stages.items():
            if "wrapper" not in stages:  # scheduled, but no wrapper was made
                del self.kernels[owner], self.extern_calls[owner]
            elif owner not in planned:  # stock's trace has the code, but no schedule
                self.kernels[owner], self.extern_calls[owner] = stock[owner], self.library_calls[owner]


def _count(info: ArtifactInfo, name: str) -> int:
    value = info.facts.get(name, 0)
    return value if isinstance(value, int) else 0


def _compile_document(info: CompileInfo, facts: _PerCompile, display_name: str) -> dict[str, Any]:
    seconds = dict(info.seconds)
    phases = {name: seconds.get(name, 0.0) for name in TIMINGS}
    total = seconds.get("total", sum(v for k, v in seconds.items() if k != "recording"))
    extra = {name: value for name, value in seconds.items() if name not in phases and name != "total"}
    return {
        "id": info.id, "function": info.function, "file": info.file, "line": info.line, "status": info.status,
        "reason": info.reason or None, "graph_nodes": facts.graph_nodes[info.id], "kernels": facts.kernels[info.id],
        "extern_calls": facts.extern_calls[info.id], "guards": facts.guards[info.id], "calls": facts.calls[info.id],
        "seconds": {"total": total, **phases, **extra},
        "stages": list(facts.stages[info.id]),
        "display_name": display_name,
    }


_IN_DESCRIBED = ("record_stage", "record")  # as it is called, and was
"""The writer's methods whose time is part of a compilation's `recording`."""


def _overhead(infos: list[CompileInfo], writer: dict[str, float]) -> float:
    described = sum(info.seconds.get("recording", 0.0) for info in infos)  # holds the time of `record_stage` too
    rest = sum(seconds for method, seconds in writer.items() if method not in _IN_DESCRIBED or not described)
    return described + rest


def _frame(compile_id: str) -> str:
    frame, _, rest = compile_id.partition("/")
    return frame + "@" + rest.partition("@")[2]


def _number(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return text


