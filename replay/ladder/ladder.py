"""All rungs on the recorded inputs of one compilation, and the first place where values differ.

The captured graph, run in eager, is what every other rung is compared with; a float64 run of it shows how much of a
difference is rounding. The later stages are generated again from the recorded graph with the recorded decisions; the
report names those that differ from the recording (another version of ptdebug or torch).
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

from ...artifacts.context import CompileContext, CompileId, run_stages
from ...artifacts.recording import Recording, RecordingError
from ...artifacts.records import SCHEMA, AnyRecord, Decision, Graph, Location, Pass, TensorMeta
from ...artifacts.stages import REPLAYED
from ...dependencies import msgspec
from ...engine.graphs.functional_graph import AtenGraph
from ...engine.runtime.entry import shares_written
from ...engine.stages import INFERENCE, Wrapped
from ..program.program import ProgramAbsent, ProgramRuns, compare_returned
from ..recorded.graphs import ReplayError, graph_module, on_device
from ..recorded.inputs import bind_symbols, clones, kept_or_made_up, load_random
from ..recorded.state import deterministic, restored
from ..verdicts.compare import EQUAL, Comparison, compare, worst
from .options import Options
from .pairs import buffer_pairs, difference, graph_pairs
from .rungs import Execution, run_aten, run_graph, run_kernels, run_loops


@dataclass(frozen=True)
class Rung:
    """One stage run on one device. `why` is set when it could not run, or says how it was judged."""

    stage: str
    device: str
    verdict: str  # equal | rounding | different | absent
    comparison: Comparison = EQUAL
    seconds: float = 0.0
    why: str = ""


@dataclass(frozen=True)
class Difference:
    """The first value that is different: in which stage, which node or buffer, and the program's line behind it."""

    stage: str
    node: str
    location: Location | None
    comparison: Comparison


@dataclass(frozen=True)
class Report:
    """The result of a replay. `drift` names stages that differ from the recording."""

    selector: str
    rungs: tuple[Rung, ...]
    first: Difference | None = None
    drift: tuple[str, ...] = ()
    inputs: str = ""  # how they were made up, where their values were not kept

    @property
    def verdict(self) -> str:
        """The worst verdict of all rungs that ran."""
        ran = [r.verdict for r in self.rungs if r.verdict != "absent"]
        return next((v for v in ("different", "rounding") if v in ran), "equal")

    def document(self) -> dict[str, Any]:
        """The JSON document. Infinite distances are given as null."""
        first = None
        if self.first is not None:
            where = self.first.location
            c = self.first.comparison
            first = {
                "stage": self.first.stage, "node": self.first.node, "file": where.file if where else None,
                "line": where.line if where else None, "max_abs": _number(c.max_abs), "max_rel": _number(c.max_rel),
                "ulp": _number(c.ulp),
            }
        rungs = [
            {"stage": r.stage, "device": r.device, "verdict": r.verdict, "max_abs": _number(r.comparison.max_abs),
             "max_rel": _number(r.comparison.max_rel), "seconds": round(r.seconds, 6), "why": r.why or r.comparison.why}
            for r in self.rungs
        ]
        return {"schema": SCHEMA, "selector": self.selector, "verdict": self.verdict, "first_difference": first,
                "rungs": rungs, "drift": list(self.drift), "inputs": self.inputs or "recorded"}


def _number(value: float) -> float | None:
    return value if value == value and abs(value) != float("inf") else None


@dataclass(frozen=True)
class Captured:
    """What the engine needs of a captured graph."""

    module: torch.fx.GraphModule
    inputs: tuple[Any, ...]
    grad_enabled: bool = False
    input_names: tuple[str, ...] = ()


@dataclass
class _Collector:
    """A recorder that keeps the engine's records, to compare them with the recording."""

    records: dict[tuple[str, str], AnyRecord] = field(default_factory=dict)

    def begin(self, compile_id: str, function: str, file: str, line: int) -> None:
        """Nothing to begin."""

    def record(self, compile_id: str, stage: str, name: str, record: AnyRecord) -> None:
        """Keep it."""
        self.records[stage, name] = record

    def absent(self, compile_id: str, stage: str, why: str) -> None:
        """Not compared."""

    def decision(self, compile_id: str, decision: Decision) -> None:
        """Not compared: decisions are taken over."""

    def end(self, compile_id: str, status: str, reason: str, seconds: Mapping[str, float]) -> None:
        """Nothing to end."""

    def source_file(self, path: str) -> None:
        """Not compared."""


class Ladder:
    """The rungs of one compilation on one device."""

    def __init__(
        self, recording: Recording, compile_id: str, device: str = "cpu", trust: bool = False,
        runs: ProgramRuns | None = None, options: Options | None = None,
    ) -> None:
        self.recording = recording
        self.compile_id = compile_id
        self.device = device
        self.options = options or Options()
        self.runs = runs or ProgramRuns(recording, [compile_id], trust)
        self.graph = self._artifact("capture", "", Graph)
        inputs = kept_or_made_up(recording, compile_id, self.graph, self.options.call)
        self.kept, saved, self.made_up = inputs.kept, inputs.values, inputs.made_up
        expected = sum(node.op == "placeholder" for node in self.graph.nodes)
        if expected != len(saved):
            raise ReplayError(f"the recording is damaged: its graph has {expected} inputs, and {len(saved)} were saved")
        self.saved = clones(saved, device)
        self.symbols = bind_symbols(self.graph, saved)
        self.captured = graph_module(self.graph, self.symbols, trust)
        self.trust = trust
        self.collector = _Collector()
        self.work: Wrapped  # set by `_compile`, before any rung that needs it runs
        self.rungs: list[Rung] = []
        self.first: Difference | None = None

    def _artifact(self, stage: str, name: str, kind: type[Any] | tuple[type[Any], ...]) -> Any:
        try:
            found = self.recording.artifact(self.compile_id, stage, name)
        except RecordingError as error:
            raise ReplayError(f"{error}") from error
        if not isinstance(found, kind):
            raise ReplayError(f"{self.compile_id}:{stage} is a {type(found).__name__}, which it should not be")
        return found

    def _fakes(self) -> tuple[Any, ...]:
        mode = FakeTensorMode()

        def fake(value: Any, meta: TensorMeta | None) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            return mode.from_tensor(value, static_shapes=True).requires_grad_(meta is not None and meta.requires_grad)

        return tuple(fake(value, item.meta) for value, item in zip(self.saved, self.kept.inputs))

    # ---- climbing
    def climb(self) -> Report:
        """Run all rungs, lowest first."""
        self.eager = eager = self._in_eager(lambda: run_graph(self.captured, clones(self.saved, self.device)))
        self.reference = self._reference()
        self._program()
        if self.options.wants("capture"):
            self._add("capture", eager)
        self._climb_stages(self._compile())
        return Report(f"{self.recording.name}:{self.compile_id}", tuple(self.rungs), self.first, self._drift())

    def _in_eager(self, run: Callable[[], Execution]) -> Execution:
        """The run that all others are compared with. Raises ReplayError if the recorded graph does not run at all."""
        try:
            with deterministic():
                return run()
        except Exception as error:
            raise ReplayError(f"the recorded graph does not run in eager: {reason(error)}") from error

    def _climb_stages(self, why: str) -> None:
        """The rungs of the engine's stages; `why`: the reason if they cannot be made."""
        self._rung("forward", why, lambda: self._recorded_aten("forward", ""))
        last = self._last_pass()
        unchanged = "" if last else "no pass changed the graph"
        self._rung("passes", why or unchanged, partial(self._recorded_aten, "passes", *last))
        copies = partial(clones, self.saved, self.device)
        self._rung("loop_ir", why, lambda: run_loops(self.work.aten, self.work.program, copies()))
        self._rung("kernels", why, self._kernels)

    def _program(self) -> None:
        if not self.options.wants("program"):
            return
        try:
            returned = self.runs.ask(self.compile_id)
        except ProgramAbsent as error:
            self.rungs.append(Rung("program", "cpu", "absent", why=str(error)))
            return
        found, why = compare_returned(returned.tensors, self.eager.observed()), "the program, run again in eager"
        if found.verdict == "different" and returned.unsure:
            self.rungs.append(Rung("program", "cpu", "absent", why=(
                "which of the program's calls was recorded cannot be told: another one may differ in "
                f"{', '.join(returned.unsure[:3])}")))
            return
        why = f"{why} ({returned.run_seconds:.1f} s until then)"
        self.rungs.append(Rung("program", "cpu", found.verdict, found, returned.seconds, why))
        if found.verdict == "different":
            self.first = Difference("capture", "results", None, found)

    def _reference(self) -> Execution | None:
        try:
            with deterministic():
                return run_graph(self.captured, clones(self.saved, self.device, torch.float64), wide=True)
        except (RuntimeError, TypeError):  # an operator that has no float64 form: then distances to eager count
            return None

    def _compile(self) -> str:
        """Generate the later stages again; returns the reason if that fails."""
        try:
            self._make()
        except Exception as error:
            return reason(error)
        return ran_in_eager(self.work.aten, self.saved) if hasattr(self, "work") else ""

    def _make(self) -> None:
        names = tuple(item.name for item in self.kept.inputs)
        self.work = run_stages(INFERENCE, Captured(self.captured, self._fakes(), input_names=names), self._context())

    def _context(self) -> CompileContext:
        """The recorded decisions as overrides."""
        decisions = [decision for _, decision in self.recording.decisions(self.compile_id)]
        forced = {d.id: d.chosen for d in decisions if d.forced}
        context = CompileContext(CompileId(0, 0), self.collector, forced, recording=True)
        context.freezing = any(d.kind == "freezing" and d.chosen == "fold" for d in decisions)
        context.cpp_wrapper = any(d.kind == "wrapper" and d.chosen == "cpp" for d in decisions)
        return context

    def _rung(self, stage: str, why: str, run: Callable[[], Execution]) -> None:
        if not self.options.wants(stage):
            return
        if why:
            self.rungs.append(Rung(stage, self.device, "absent", why=why))
            return
        try:
            with deterministic():
                ran = run()
        except (RecordingError, ReplayError) as error:
            self.rungs.append(Rung(stage, self.device, "absent", why=str(error)))
            return
        except Exception as error:  # eager ran through: whatever is raised here is a difference
            found = Comparison("different", why=f"raised {type(error).__name__}: {error}")
            self.rungs.append(Rung(stage, self.device, "different", found))
            self.first = self.first or Difference(stage, "results", None, found)
            return
        self._add(stage, ran)

    def _add(self, stage: str, ran: Execution) -> None:
        references = self.reference.observed() if self.reference is not None else [None] * len(ran.observed())
        comparison = worst([compare(*pair) for pair in zip(ran.observed(), self.eager.observed(), references)])
        self.rungs.append(Rung(stage, self.device, comparison.verdict, comparison, ran.seconds))
        if comparison.verdict == "different" and self.first is None:
            self.first = self._locate(stage, ran) or Difference(stage, "results", None, comparison)

    def _recorded_aten(self, stage: str, name: str) -> Execution:
        record = self._artifact(stage, name, (Graph, Pass))
        graph = record if isinstance(record, Graph) else record.graph
        module = graph_module(graph, self.symbols, self.trust)
        return run_aten(self.work.aten, module, clones(self.saved, self.device))

    def _last_pass(self) -> list[str]:
        return sorted(a.name for a in self.recording.artifacts(self.compile_id, "passes"))[-1:]

    def _kernels(self) -> Execution:
        work = self.work
        return run_kernels(work.aten, work.plan, work.kernels, work.signatures, clones(self.saved, self.device))

    # ---- where values first differ
    def _locate(self, stage: str, ran: Execution) -> Difference | None:
        if stage in ("forward", "passes"):
            name = (self._last_pass() or [""])[0] if stage == "passes" else ""
            record = self._artifact(stage, name, (Graph, Pass))
            pairs = graph_pairs(record, ran)
        else:
            pairs = buffer_pairs(self.work, stage, ran)
        for node, value, origin in pairs:
            wide = self.reference.values.get(origin) if self.reference is not None else None
            found = difference(value, self.eager.values.get(origin), wide)
            if found is not None:
                return Difference(stage, node, self._location(origin), found)
        return None

    def _location(self, node: str) -> Location | None:
        for recorded in self.graph.nodes:
            if recorded.id == node and recorded.stack:
                return recorded.stack[-1]
        return None

    def _drift(self) -> tuple[str, ...]:
        """Stages whose record, generated again, is not the recorded one. Not compared where symbolic sizes were bound,
        or on another device, which has other kernels."""
        recorded = {item.meta.device.partition(":")[0] for item in self.kept.inputs if item.meta is not None}
        if self.symbols or recorded - {self.device.partition(":")[0]}:
            return ()
        changed = []
        for (stage, name), record in self.collector.records.items():
            if stage in REPLAYED and _timeless(self._recorded(stage, name)) != _timeless(record):
                changed.append(stage)
        return tuple(dict.fromkeys(changed))

    def _recorded(self, stage: str, name: str) -> AnyRecord | None:
        try:
            found = self.recording.artifact(self.compile_id, stage, name)
        except RecordingError:
            return None
        return found


def _timeless(record: AnyRecord | None) -> AnyRecord | None:
    return msgspec.structs.replace(record, seconds=0.0) if isinstance(record, Pass) else record


def ran_in_eager(aten: AtenGraph, inputs: tuple[Any, ...]) -> str:
    """Why a call with these inputs did not run what was compiled; "" if it did."""
    written = set(aten.mutations.values())
    if written and shares_written(inputs, written):
        return "an input that the graph writes shares memory with another: such a call runs in eager, as captured"
    return ""


def reason(error: Exception) -> str:
    """Why a stage cannot be made again, in words."""
    if isinstance(error, ReplayError):
        return str(error)
    if isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)):
        return f"replay does not support graphs with unbacked symbols ({error.func})"
    return f"{type(error).__name__}: {str(error).partition(chr(10) + 'Exception raised from')[0]}"


def replay(
    recording: Recording, compile_id: str, device: str = "cpu", trust: bool = False, runs: ProgramRuns | None = None,
    options: Options | None = None,
) -> Report:
    """Climb the ladder of one compilation. To replay several of a recording, pass the same `runs` to all, so that the
    program runs once. Raises ReplayError where it cannot be run again."""
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ReplayError("there is no CUDA device here: replay with --device cpu")
    from .control import ControlLadder, calls_functions  # which is a Ladder, as is the next
    from .training import TrainingLadder

    kind = TrainingLadder if "joint" in recording.stages(compile_id) else Ladder
    if calls_functions(recording, compile_id):
        kind = ControlLadder
    try:
        with on_device(device):
            ladder = kind(recording, compile_id, device, trust, runs, options)
            with restored(ladder.kept.state, load_random(recording.path, ladder.kept), device):
                report = ladder.climb()
        ran = {rung.stage for rung in report.rungs}
        missing = [Rung(stage, device, "absent", why="this compilation has no such stage")
                   for stage in sorted(ladder.options.stages - ran)]
        return replace(report, rungs=(*report.rungs, *missing), inputs=ladder.made_up)
    except ReplayError:
        raise
    except Exception as error:  # what is recorded is data: whatever it leads to is said of it
        raise ReplayError(f"{compile_id} cannot be run again from what is recorded: {reason(error)}") from error
