"""All rungs on the recorded inputs of one compilation, and the first place where values differ.

The captured graph, run in eager, is what every other rung is compared with; a float64 run of it shows how much of a
difference is rounding. The later stages are generated again from the recorded graph with the recorded decisions; the
report names those that differ from the recording (another version of ptdebug or torch).

Whatever a rung raises is said of that rung: the others are run all the same.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch

from ...artifacts.context import CompileContext
from ...artifacts.input_names import in_words
from ...artifacts.recording import Recording, RecordingError
from ...artifacts.records import Graph, Location, Pass
from ...engine.stages import INFERENCE
from ..program.program import ProgramAbsent, ProgramRuns, compare_returned
from ..program.served import ServedCalls
from ..recorded.graphs import ReplayError, graph_module
from ..recorded.inputs import bind_symbols, clones, kept_or_made_up
from ..recorded.state import as_compiled, deterministic
from ..verdicts.classes import MEMORY_PLAN, NONDETERMINISM, OF_MEMORY, UNINITIALIZED
from ..verdicts.compare import Comparison, worst
from ..verdicts.nonfinite import Birth, kind_of
from . import regenerate
from .arena import Arena
from .births import differs, graph_births, input_names, unknown_line
from .calls import call_rungs
from .entry import ran_in_eager
from .explain import explained, random_results
from .locate import at_buffer, first_birth, first_inside, place_of, seen_place
from .memory import memory_fault, unlike
from .options import MAKING, Options
from .pairs import LoweredPart, Pair, buffer_pairs, graph_pairs, sources_of
from .reference import Noise, Reference
from .regenerate import Captured, Collector, reason
from .report import UNCHANGED, Compared, Difference, Report, Rung
from .rewrites import blamed
from .rungs import Execution, run_aten, run_graph, with_folded
from .steps import kernels_alone, lowered
from .unbacked import bind_unbacked
from .wrapper_steps import first_step

LOWERED = ("loop_ir", "kernels", "wrapper")
ALONE_WITHIN = 2.0  # seconds of interpreted loop IR, for which each kernel runs alone, too, though nothing is wrong


class Ladder:
    """The rungs of one compilation on one device."""

    def __init__(
        self, recording: Recording, compile_id: str, device: str = "cpu", trust: bool = False,
        runs: ProgramRuns | None = None, options: Options | None = None, served: ServedCalls | None = None,
    ) -> None:
        self.recording = recording
        self.served = served
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
        self.trust = trust
        self.sizes = bind_symbols(self.graph, saved)  # of inputs; `symbols` has the data-dependent ones, too
        self.symbols = bind_unbacked(self.graph, self.sizes, self.saved, trust)
        self.captured = graph_module(self.graph, self.symbols, trust)
        unended = recording.compile(compile_id).was_left_unended
        self.collector = Collector(making=partial(self._tell, making=True)) if unended else Collector()
        self.program = Reference(self._run_captured, record=self.graph)  # the captured graph in eager
        self.work: Any  # set by `_make`, before any rung that needs it runs
        self.rungs: list[Rung] = []
        self.first: Difference | None = None
        self.births: list[Birth] = []
        self.culprit = ""  # the buffer that a fault of memory is about

    def _artifact(self, stage: str, name: str, kind: type[Any] | tuple[type[Any], ...]) -> Any:
        try:
            found = self.recording.artifact(self.compile_id, stage, name)
        except RecordingError as error:
            raise ReplayError(f"{error}") from error
        if not isinstance(found, kind):
            raise ReplayError(f"{self.compile_id}:{stage} is a {type(found).__name__}, which it should not be")
        return found

    def _inputs(self, dtype: torch.dtype | None = None) -> tuple[Any, ...]:
        return clones(self.saved, self.device, dtype)

    def _run_captured(self, dtype: torch.dtype | None, noise: Noise) -> Execution:
        return run_graph(self.captured, self._inputs(dtype), dtype is not None, noise=noise)

    # ---- climbing
    def climb(self) -> Report:
        """Run all rungs, lowest first."""
        eager = self._in_eager()
        self._program()
        self._add("capture", eager)
        self._climb_stages(self._compile())
        return self._report()

    def _report(self) -> Report:
        name, births = f"{self.recording.name}:{self.compile_id}", (*self._eager_births(), *self.births)
        return Report(name, tuple(self.rungs), self.first, self._drift(), births)

    def _drift(self) -> tuple[str, ...]:
        return regenerate.drift(self.recording, self.compile_id, self.collector, self.device)

    def _in_eager(self) -> Execution:
        """The run that all others are compared with. Raises ReplayError if the recorded graph does not run at all."""
        try:
            return self.program.eager
        except Exception as error:
            raise ReplayError(f"the recorded graph does not run in eager: {reason(error)}") from error

    def _climb_stages(self, why: str) -> None:
        """The rungs of the engine's stages; `why`: the reason if they cannot be made."""
        self._rung("forward", why, lambda: self._recorded_aten("forward", ""))
        names = self._pass_names()
        shown = names if self.options.each_pass else names[-1:]
        for name in shown or [""]:
            label = name if self.options.each_pass else ""
            unchanged = "" if names else UNCHANGED
            self._rung("passes", why or unchanged, partial(self._recorded_aten, "passes", name), label)
        for stage in LOWERED:
            self._rung(stage, why, partial(self.lowered, stage, None))

    def _program(self) -> None:
        """The rungs for which the program runs again."""
        if self.options.wants("program"):
            self._returned()
        if self.served is not None:
            rungs, first = call_rungs(self.served, self.compile_id, self.options.wants, self._tell)
            self.rungs += rungs
            self.first = self.first or first

    def _returned(self) -> None:
        self._tell("program")
        try:
            returned = self.runs.ask(self.compile_id)
        except ProgramAbsent as error:
            self.rungs.append(Rung("program", "cpu", "absent", why=str(error)))
            return
        finally:
            self._tell("")
        found = compare_returned(returned.tensors, self.program.eager.observed())
        unsure = self.program.unwritten or returned.why_unsure
        if found.verdict == "different" and unsure:
            self.rungs.append(Rung("program", "cpu", "absent", why=unsure))
            return
        why = f"the program, run again in eager ({returned.run_seconds:.1f} s until then)"
        self.rungs.append(Rung("program", "cpu", found.verdict, found, returned.seconds, why))
        if found.verdict == "different":
            self.first = Difference("capture", "results", self._tried(lambda: unknown_line(self, returned)), found)

    # ---- making the stages again
    def _compile(self) -> str:
        """Generate the later stages again; returns the reason if that fails."""
        try:
            self.work = self._generated({}, self.collector)
        except Exception as error:
            return reason(error)
        self._tell("")
        return self._in_eager_why()

    def _in_eager_why(self) -> str:
        """Why the recorded call did not run what was compiled; "" if it did."""
        return ran_in_eager(self.work.aten, self.saved)

    def _generated(self, forced: Mapping[str, str], collector: Collector, expose: bool = False) -> Any:
        """The stages made again, with more decisions `forced`; with `expose`, kernels keep nothing to themselves."""
        stages = regenerate.exposing(INFERENCE) if expose else INFERENCE
        names = tuple(item.name for item in self.kept.inputs)
        captured = Captured(self.captured, self._fakes(), input_names=names)
        return regenerate.made(stages, captured, self._context(forced, collector))

    def _fakes(self) -> tuple[Any, ...]:
        placeholders = [node for node in self.graph.nodes if node.op == "placeholder"]
        unbacked = self.captured if self.symbols != self.sizes else None
        return regenerate.fakes(self.saved, self.kept.inputs, placeholders, self.sizes, self.device, unbacked)

    def _context(self, forced: Mapping[str, str], collector: Collector) -> CompileContext:
        return regenerate.context(self.recording, self.compile_id, collector, forced, self.device)

    def context(self) -> CompileContext:
        """A context that decides as the recorded compilation did."""
        return self._context({}, Collector())

    def variant(self, forced: Mapping[str, str], expose: bool = False) -> Any:
        """The stages made again, with more decisions forced."""
        return self._generated(forced, Collector(), expose)

    # ---- one rung
    def _rung(self, stage: str, why: str, run: Callable[[], Execution], name: str = "") -> None:
        def absent(why: str) -> None:
            self.rungs.append(Rung(stage, self.device, "absent", why=why, name=name))

        if not self.options.wants(stage):
            return
        if why:
            absent(why)
            return
        self._tell(stage)
        try:
            with deterministic():
                ran = run()
        except (RecordingError, ReplayError) as error:
            absent(str(error))
        except (NotImplementedError, MemoryError, torch.OutOfMemoryError) as error:
            absent(f"it cannot be run here: {reason(error)}")
        except Exception as error:  # eager ran through: whatever is raised here is a difference
            found = Comparison("different", why=f"raised {reason(error)}")
            self.rungs.append(Rung(stage, self.device, "different", found, name=name))
            self.first = self.first or Difference(stage, "results", None, found)
        else:
            self._tell(stage)  # again: what is said of it takes time of its own
            self._add(stage, ran, name)
        self._tell("")

    def _tell(self, stage: str, making: bool = False) -> None:
        """Say what begins now, or is generated again; "": nothing that is a stage."""
        self.options.told(MAKING + stage if making else stage, self.rungs, self.first)

    def _add(self, stage: str, ran: Execution, name: str = "") -> None:
        if not self.options.wants(stage):
            return
        found = self.program.observed(ran)
        seen = [Compared(label, role, c) for (label, role), c in zip(self._names(ran), found)]
        nodes = self._tried(lambda: list(self._compared(stage, name, ran))) or []
        whole = worst(found)
        if whole.verdict != "equal":
            where = next(value.name for value in seen if value.comparison is whole)
            whole = dataclasses.replace(whole, why=f"{where}: {whole.why}")
        whole = self._classified(stage, ran, whole)
        if whole.verdict == "rounding" and whole.kind:  # what was different has been explained
            seen, nodes = ([value.explained_by(whole) for value in values] for values in (seen, nodes))
        alone = self._alone(stage, ran, whole)
        self.rungs.append(Rung(stage, self.device, whole.verdict, whole, ran.seconds, "", name, (*seen, *nodes), alone))
        if whole.verdict == "different" and self.first is None:
            self.first = self._tried(lambda: self._first(stage, name, whole, seen, nodes)) or Difference(
                stage, "results", None, whole)
        if stage in LOWERED and differs(ran, self.program.eager) and not self.births:
            birth = self._tried(lambda: first_birth(self, stage))
            self.births += [birth] if birth is not None else []

    def _names(self, ran: Execution) -> list[tuple[str, str]]:
        """(name, role) of what the program sees."""
        inputs = [in_words(item.name) for item in self.kept.inputs]
        return [*((f"result {i}", "result") for i in range(len(ran.outputs))), *((name, "input") for name in inputs)]

    def _compared(self, stage: str, name: str, ran: Execution) -> Iterator[Compared]:
        try:
            pairs = list(self.pairs(stage, name, ran))
        except ReplayError:  # the graph that the stage was made from was not recorded: only results are compared
            return
        for pair in pairs:
            found = pair.reference.node(pair.value, pair.node)
            if found is not None:
                wrong = found.verdict == "different"
                at = place_of(pair.value, pair.reference.expected(pair.value, pair.node)) if wrong else {}
                yield Compared(pair.name, "node", found, pair.source, self.location(pair.source), at)

    def _classified(self, stage: str, ran: Execution, found: Comparison) -> Comparison:
        """`found` with its class: what memory, chance and elided roundings do with it."""
        if stage == "capture":
            if self.program.unwritten:
                return dataclasses.replace(found, kind=UNINITIALIZED, explanation=self.program.unwritten)
            return self._repeated(found, ran, lambda: self._run_captured(None, None), "eager itself")
        if stage not in LOWERED:
            return found
        if stage == "kernels":
            fault = self._tried(lambda: memory_fault(lambda arena: self.lowered("kernels", None, arena=arena),
                                                     self._buffers(), bool(self.program.unwritten)))
            if fault is not None:
                fault, self.culprit = fault
                if fault.kind == NONDETERMINISM:
                    with deterministic():  # memory that happens to hold what is right would hide it
                        other = self.lowered("kernels", None, arena=Arena())
                    return self._varying(found, other, fault.explanation)
                return dataclasses.replace(found, verdict=fault.verdict, kind=fault.kind, explanation=fault.explanation)
            if not self.program.unwritten:
                found = self._repeated(found, ran, lambda: self.lowered("kernels", None), "the compiled graph")
        if found.verdict != "different" and not found.explanation:
            return found
        fault = next((r.comparison for r in self.rungs if r.stage in LOWERED and r.comparison.kind in OF_MEMORY), None)
        if stage == "wrapper" and fault is not None:
            return dataclasses.replace(found, kind=fault.kind, explanation=fault.explanation)
        if stage == "wrapper" and found.verdict == "different" and self._tried(self._shared_is_wrong):
            why = "right where each buffer has memory of its own, wrong where buffers share it as planned"
            return dataclasses.replace(found, kind=MEMORY_PLAN, explanation=why)
        random = self._tried(lambda: self._random(stage, ran)) or {}
        return explained(found, self.program, self.work, lambda work, given: self.lowered(stage, work, random=given),
                         self.collector, self.variant, random)

    def _shared_is_wrong(self) -> bool:
        """Whether the kernels give other results if buffers share memory as planned."""
        runs = []
        for shared in (False, True):
            with deterministic():
                runs.append(self.lowered("kernels", None, shared=shared))
        return bool(unlike(*runs))

    def _repeated(self, found: Comparison, ran: Execution, again: Callable[[], Execution], what: str) -> Comparison:
        for _ in range(1, self.options.repeat):
            with deterministic():
                other = again()
            if where := unlike(ran, other):
                why = f"{what} gives other results when it runs again on the same inputs; first seen in {where}"
                return self._varying(found, other, why)
        return found

    def _varying(self, found: Comparison, other: Execution, why: str) -> Comparison:
        """`found`, or what is worse of another run, of results that differ from run to run."""
        both = worst([found, worst(self.program.observed(other)), Comparison("rounding")])
        return dataclasses.replace(both, kind=NONDETERMINISM, explanation=why)

    def _tried(self, run: Callable[[], Any]) -> Any:
        """The result of an examination; None where it fails: what cannot be examined further is reported as it is."""
        try:
            return run()
        except Exception:
            return None

    # ---- what runs
    def lowered(
        self, stage: str, work: Any, arena: Arena | None = None, shared: bool = False,
        random: Mapping[str, Any] | None = None,
    ) -> Execution:
        """Run a stage of the lowered graph, or of another generation of it."""
        return lowered(stage, work or self.work, self._inputs(), arena, shared, random)

    def _recorded_aten(self, stage: str, name: str) -> Execution:
        record = self._aten_record(stage, name)
        return run_aten(self.work.aten, self._aten_module(record), self._inputs(), self.symbols)

    def _aten_record(self, stage: str, name: str) -> Graph:
        record = self._artifact(stage, name, (Graph, Pass))
        return record if isinstance(record, Graph) else record.graph

    def _aten_module(self, record: Graph) -> torch.fx.GraphModule:
        inputs = with_folded(self.work.aten, self._inputs())
        return graph_module(record, bind_unbacked(record, self.symbols, inputs, self.trust), self.trust)

    def _pass_names(self) -> list[str]:
        return sorted(a.name for a in self.recording.artifacts(self.compile_id, "passes"))

    # ---- what is held against what
    @cached_property
    def _last_aten(self) -> Graph:
        """The ATen graph that was lowered, as recorded; the one before the passes where these are wrong."""
        wrong = any(rung.stage == "passes" and rung.verdict == "different" for rung in self.rungs)
        names = self._pass_names()
        return self._aten_record("passes", names[-1]) if names and not wrong else self._aten_record("forward", "")

    @cached_property
    def nodes(self) -> Reference:
        """Its nodes in eager."""
        module = self._aten_module(self._last_aten)
        return Reference(lambda dtype, noise: as_compiled()(run_graph)(
            module, with_folded(self.work.aten, self._inputs(dtype)), dtype is not None, noise=noise),
            record=self._last_aten)

    def pairs(self, stage: str, name: str, ran: Execution, work: Any = None) -> Iterator[Pair]:
        """The values of a rung that have a counterpart in eager."""
        if stage in ("forward", "passes"):
            return graph_pairs(self._aten_record(stage, name or (self._pass_names()[-1] if stage == "passes" else "")),
                               ran, self.program)
        if stage not in ("loop_ir", "kernels"):
            return iter(())
        work = work or self.work
        steps: Sequence[Any] = work.program.steps if stage == "loop_ir" else work.plan.items
        return buffer_pairs(steps, ran.values, self.nodes, sources_of(self._last_aten))

    def _random(self, stage: str, ran: Execution) -> dict[str, Any]:
        return random_results(self.work.plan.items, self.nodes, ran.values)

    # ---- where values first differ
    def _first(
        self, stage: str, name: str, whole: Comparison, seen: Sequence[Compared], nodes: Sequence[Compared]
    ) -> Difference:
        """The first value that is different; of a lowered stage, the first inside of its loops."""
        if whole.kind == MEMORY_PLAN:
            return self._tried(self._where_shared) or Difference(stage, "results", None, whole)
        if self.culprit:
            return at_buffer(self, stage, self.culprit, whole)
        step = self._tried(lambda: first_step(self)) if stage == "wrapper" else None
        inside = step or (first_inside(self, stage) if stage in LOWERED else None)
        wrong = next((value for value in nodes if value.comparison.verdict == "different"), None)
        if inside is not None:
            return inside
        if wrong is not None:
            found = dataclasses.replace(wrong.comparison, kind=whole.kind, explanation=whole.explanation)
            of_pass = self._wrong_pass(stage, name)
            first = Difference(stage, wrong.name, wrong.location, found, of_pass, wrong.at)
            return self._tried(lambda: self._rewritten(first, of_pass.removeprefix("pass "))) or first
        unstored = self._tried(lambda: self._unstored(stage))
        if unstored is not None:
            return unstored
        label, place = seen_place(self, self.captured.graph, seen)
        return Difference(stage, label, place, whole, self._wrong_pass(stage, name))

    def _unstored(self, stage: str) -> Difference | None:
        """What is wrong where no value inside is."""
        return None

    def _wrong_pass(self, stage: str, name: str) -> str:
        """The first pass after which results differ."""
        if name:
            return f"pass {name}"
        for one in self._passes_of(stage):
            ran = self._tried(lambda: self._run_pass(one))  # noqa: B023
            if ran is not None and worst(self.program.observed(ran)).verdict == "different":
                return f"pass {one}"
        return ""

    def _rewritten(self, first: Difference, name: str) -> Difference | None:
        """`first` at the node that a rewrite of the pass `name` removed, if one of those behind it was."""
        found = blamed(self._artifact("passes", name, Pass), self._before(name), first.node.removeprefix("backward."))
        if found is None:
            return None
        match, node = found
        source = sources_of(self._before(name)).get(node.id, "")
        inside = f"pass {name}, rule {match.rule}: removed {', '.join(match.removed)}"
        return dataclasses.replace(first, node=node.id, location=self.location(source), inside=inside)

    def _before(self, name: str) -> Graph:
        """The graph before a pass."""
        part, names = name.rpartition(".")[0], self._pass_names()
        earlier = [one for one in names if one.rpartition(".")[0] == part and one < name]
        return self._aten_record("passes", earlier[-1]) if earlier else self._aten_record(part or "forward", "")

    def _passes_of(self, stage: str) -> list[str]:
        """The passes that a stage shows the end of."""
        return self._pass_names() if stage == "passes" else []

    def _run_pass(self, name: str) -> Execution:
        """The graph as it is after one pass."""
        with deterministic():
            return self._recorded_aten("passes", name)

    def _buffers(self) -> list[str]:
        """The buffers that kernels allocate."""
        buffers = [buffer for part in self.parts() for buffer in part.work.plan.program.buffers.values()]
        return list(dict.fromkeys(buffer.name for buffer in buffers if buffer.role == "intermediate"))

    def _where_shared(self) -> Difference | None:
        """The first buffer that is wrong where buffers share memory as planned."""
        with deterministic():
            ran = self.lowered("kernels", None, shared=True)
        wrong = next((v for v in self._compared("kernels", "", ran) if v.comparison.verdict == "different"), None)
        return None if wrong is None else Difference("wrapper", wrong.name, wrong.location, dataclasses.replace(
            wrong.comparison, kind=MEMORY_PLAN), at=wrong.at)

    def parts(self) -> Iterator[LoweredPart]:
        """What was lowered, each with the inputs that it gets in the loop IR."""
        yield LoweredPart("", self.work, self._inputs(), sources_of(self._last_aten))

    @cached_property
    def _lines(self) -> dict[str, Location | None]:
        return {node.id: node.stack[-1] if node.stack else None for node in self.graph.nodes}

    def location(self, node: str) -> Location | None:
        """The line of the program behind a captured node."""
        return self._lines.get(node)

    # ---- kernels alone, NaNs
    def _alone(self, stage: str, ran: Execution, whole: Comparison) -> tuple[Compared, ...]:
        took = next((rung.seconds for rung in self.rungs if rung.stage == "loop_ir"), 0.0)
        if stage != "kernels" or (took > ALONE_WITHIN and whole.verdict != "different"):
            return ()
        return tuple(self._tried(self.alone) or ())

    def alone(self) -> list[Compared]:
        """Each kernel on what it gets in the loop IR."""
        found = []
        for part in self.parts():
            with deterministic():
                alone = kernels_alone(part.work, part.inputs)
            found += [Compared(f"{part.prefix}{name}", "kernel", comparison) for name, comparison in alone]
        return found

    def _eager_births(self) -> list[Birth]:
        """Where what is not finite comes from in eager: if results have some, or the person asks."""
        eager = self.program.eager
        if not self.options.nan and (self.program.unwritten or not any(map(kind_of, eager.observed()))):
            return []
        found = graph_births(self.captured, eager, self.program.wide, self._inputs(), "capture", self._lines,
                             input_names(self.captured, self.kept.inputs))
        ends = tuple(name for (name, _), value in zip(self._names(eager), eager.observed()) if kind_of(value))
        return [dataclasses.replace(birth, reaches=ends) for birth in found]
