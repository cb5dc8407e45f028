"""The ladder of a graph with torch.cond, while_loop, scan or map: on each rung torch runs these operators, and the rung
runs the parts between and inside them, with their gradients.

A part is what the engine compiles as a graph of its own. Each is held against eager on what it was given, in its first
run on the rung.
"""
from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensorMode

from ...artifacts.context import CompileContext, run_stages
from ...artifacts.input_names import in_words
from ...artifacts.recording import Recording, RecordingError
from ...artifacts.records import Graph, Location, TensorMeta
from ...dependencies import msgspec
from ...engine.aot.aten_graph import needs_gradients
from ...engine.aot.autograd import autograd_epilogue
from ...engine.aot.autograd.autograd_metadata import autograd_metadata_of
from ...engine.aot.autograd.entry import training_entry
from ...engine.aot.autograd.joint import trace_joint
from ...engine.aot.control_flow import compile_around, has_control_flow
from ...engine.aot.ddp_buckets import compile_in_buckets, groups_at
from ...engine.codegen import wrapper
from ...engine.graphs.functional_graph import AtenGraph, Captured as EngineCaptured, fake_mode_of
from ...engine.lowering import lowerings
from ...engine.runtime.entry import eager_form
from ...engine.stages import INFERENCE, TRAINING, Wrapped
from ...operators.dynamo_stubs import without_dynamo
from ..recorded.graphs import ReplayError, graph_module, size_value
from ..recorded.inputs import bind_symbols, clones
from ..recorded.precision import in_recorded_precision
from ..recorded.state import deterministic
from . import regenerate
from .arena import Arena
from .ladder import LOWERED, Ladder
from .pairs import LoweredPart, Pair, buffer_pairs, graph_pairs, sources_of
from .reference import Noise, Reference
from .regenerate import Captured, Collector
from .report import UNCHANGED
from .rungs import Execution, run_aten, run_graph
from .steps import lowered


def calls_functions(recording: Recording, compile_id: str) -> bool:
    """Whether the captured graph has higher-order operators with subgraphs."""
    try:
        graph = recording.artifact(compile_id, "capture")
    except RecordingError:
        return False
    return isinstance(graph, Graph) and any(isinstance(held, Graph) for held in graph.inner.values())


def cuts(recording: Recording, compile_id: str) -> frozenset[str]:
    """The nodes after which the captured graph was cut for DistributedDataParallel."""
    decisions = (decision for _, decision in recording.decisions(compile_id))
    return frozenset(d.subject for d in decisions if d.kind == "ddp-bucket" and d.chosen == "cut")


@dataclass(frozen=True)
class Part:
    """A graph that is compiled around or inside of an operator, or one half of it, and what the engine made of it."""

    captured: EngineCaptured
    work: Wrapped
    aten: AtenGraph
    half: str = ""  # forward, backward; "" without gradients


@dataclass
class Built:
    """The graph with its parts compiled."""

    parts: dict[str, Part] = field(default_factory=dict)
    call: Callable[..., Sequence[Any]] = field(default=lambda: ())


@dataclass
class Running:
    """How parts run on one rung, and what each was given and did in its first run."""

    stage: str
    arena: Arena | None = None
    shared: bool = False
    given: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    ran: dict[str, Execution] = field(default_factory=dict)


class ControlLadder(Ladder):
    """The rungs of one such compilation on one device."""

    work: Built

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.trains = "joint" in self.recording.stages(self.compile_id)
        self.cuts = cuts(self.recording, self.compile_id)
        self.running = Running("capture")
        self.program = Reference(self._run_whole)
        self.compiled = {a.name for a in self.recording.artifacts(self.compile_id, "forward")}

    # ---- the whole graph, with gradients
    def _run_whole(self, dtype: torch.dtype | None, noise: Noise) -> Execution:
        def run(*inputs: Any) -> Execution:
            return run_graph(self.captured, inputs, dtype is not None, self.trains, noise)

        return self._with_gradients(run, dtype)

    def _with_gradients(self, run: Callable[..., Execution], dtype: torch.dtype | None = None) -> Execution:
        """A run of the graph, and the gradients of its inputs for fixed tangents of its results."""
        own = self._inputs(dtype)
        metas = [item.meta for item in self.kept.inputs]
        needing = [i for i, meta in enumerate(metas) if self.trains and meta and meta.requires_grad]
        for i in needing:
            own[i].requires_grad_()
        with torch.set_grad_enabled(self.trains):
            inputs = tuple(v.view_as(v) if i in needing else v for i, v in enumerate(own))
            ran = run(*inputs)
            roots = [o for o in ran.outputs if isinstance(o, torch.Tensor) and o.requires_grad]
            given = [self._tangent(number, root) for number, root in enumerate(roots)]
            wanted = [own[i] for i in needing]
            gradients = torch.autograd.grad(roots, wanted, given, allow_unused=True) if roots and wanted else ()
        outputs, after = (tuple(map(_plain, values)) for values in (ran.outputs, inputs))
        return Execution(outputs, after, ran.values, ran.seconds, gradients)

    def _tangent(self, number: int, root: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator().manual_seed(number)
        values = torch.randn(root.shape, generator=generator, device="cpu", dtype=torch.float32)
        values = values if root.dim() else torch.ones((), device="cpu")
        return torch.empty_like(root, requires_grad=False).copy_(values)

    def _names(self, ran: Execution) -> list[tuple[str, str]]:
        needing = [item for item in self.kept.inputs if item.meta and item.meta.requires_grad]
        return [*super()._names(ran), *((f"gradient of {in_words(item.name)}", "gradient") for item in needing)][
            : len(ran.observed())]

    def _in_eager_why(self) -> str:
        return ""  # each part tells for itself

    # ---- making the parts
    @without_dynamo()
    def _generated(self, forced: Mapping[str, str], collector: Collector, expose: bool = False) -> Built:
        built = Built()
        fakes = self._fakes()
        self._tell_values(self.captured, self.graph, fake_mode_of(Captured(self.captured, fakes)))
        for node, fake in zip(self.captured.graph.find_nodes(op="placeholder"), fakes):
            node.meta["val"] = fake
        captured = Captured(self.captured, fakes, self.trains)
        make = partial(self._part, built, regenerate.exposing if expose else tuple)
        with deterministic(), in_recorded_precision():
            context = self._context(forced, collector)
            if has_control_flow(captured):
                built.call = compile_around(captured, context, make)
            else:
                built.call = compile_in_buckets(captured, groups_at(captured, self.cuts), context, make)
        return built

    def _fakes(self) -> tuple[Any, ...]:
        """With numbers for sizes: parts whose sizes vary are not compiled."""
        placeholders = [msgspec.structs.replace(n, value=None) for n in self.graph.nodes if n.op == "placeholder"]
        return regenerate.fakes(self.saved, self.kept.inputs, placeholders, {}, self.device)

    def _part(
        self, built: Built, form: Callable[[Any], Any], captured: EngineCaptured, context: CompileContext
    ) -> Callable[..., Sequence[Any]]:
        """Compile one part, where it was: the callable runs it at the stage of the rung."""
        if has_control_flow(captured):
            return compile_around(captured, context, partial(self._part, built, form))
        name = context.part
        if name not in self.compiled:  # its sizes vary, or the engine does not take it
            return eager_form(captured.module)
        joint = trace_joint(captured, context, lowerings()) if needs_gradients(captured) else None
        if joint is None:
            work = run_stages(form(INFERENCE), captured, context)
            built.parts[name] = Part(captured, work, work.aten)
            return lambda *inputs: self._run_part(built, name, captured, inputs)
        trained = run_stages(form(TRAINING), joint, context)
        backward = f"{name}.backward"
        built.parts[name] = Part(captured, trained.forward, trained.halves.forward, "forward")
        built.parts[backward] = Part(captured, trained.backward, trained.backward.aten, "backward")
        around = autograd_epilogue.generate(trained.halves, trained.forward.plan)
        outside = None if around is None else wrapper.load(around, context.for_part("outside"))
        return self._eager_or(captured, training_entry(
            captured, autograd_metadata_of(trained.halves),
            lambda *inputs: self._run_part(built, name, captured, inputs),
            lambda values: self._run_part(built, backward, captured, tuple(values)), outside))  # fmt: skip

    def _eager_or(self, captured: EngineCaptured, compiled: Callable[..., Any]) -> Callable[..., Sequence[Any]]:
        def call(*inputs: Any) -> Sequence[Any]:
            return run_graph(captured.module, inputs, grad=True).outputs if self.running.stage == "capture" else (
                compiled(*inputs))

        return call

    # ---- what is known of values, which the engine asks for around operators
    def _tell_values(self, module: torch.fx.GraphModule, record: Graph, mode: FakeTensorMode) -> None:
        recorded = {node.id: node for node in record.nodes}
        for node in module.graph.nodes:
            held, value = record.inner.get(node.name), recorded[node.name].value if node.name in recorded else None
            if isinstance(held, Graph):
                self._tell_values(getattr(module, node.target), held, mode)
            elif value is not None:
                node.meta["val"] = self._fake(value, mode)

    def _fake(self, value: Any, mode: FakeTensorMode) -> Any:
        if isinstance(value, tuple):
            return tuple(self._fake(part, mode) for part in value)
        if not isinstance(value, TensorMeta):
            return size_value(value, self.symbols)
        shape, stride = ([size_value(n, self.symbols) for n in numbers] for numbers in (value.shape, value.stride))
        with mode, torch.enable_grad():
            made = torch.empty_strided(shape, stride, dtype=getattr(torch, value.dtype), device=self.device)
            return made.requires_grad_().clone() if value.requires_grad and self.trains else made  # not a leaf

    # ---- the rungs
    def _climb_stages(self, why: str) -> None:
        changed = self.recording.artifacts(self.compile_id, "passes")
        for stage in ("forward", *(("backward",) if self.trains else ()), "passes", *LOWERED):
            unchanged = UNCHANGED if stage == "passes" and not changed else ""
            self._rung(stage, why or unchanged, partial(self.lowered, stage, None))

    def lowered(
        self, stage: str, work: Built | None, arena: Arena | None = None, shared: bool = False,
        random: Mapping[str, Any] | None = None,
    ) -> Execution:
        """Run a stage of all parts."""
        self.running = Running(stage, arena, shared)
        built = work or self.work

        def run(*inputs: Any) -> Execution:
            start = time.perf_counter()
            outputs = tuple(built.call(*inputs))
            return Execution(outputs, inputs, {}, time.perf_counter() - start)

        return self._with_gradients(run)

    def _run_part(self, built: Built, name: str, captured: EngineCaptured, inputs: tuple[Any, ...]) -> Sequence[Any]:
        part, running = built.parts[name], self.running
        if part.half != "backward":
            for value, fake in zip(inputs, captured.inputs, strict=True):
                if isinstance(fake, torch.Tensor) and _layout(value) != _layout(fake):  # which kernels rely on
                    raise ReplayError(f"the recording is damaged: an input of {name} does not match its metadata")
        inputs = tuple(_plain(value) for value in inputs)
        if name not in running.given:
            running.given[name] = clones(inputs, self.device)
        if running.stage in LOWERED:
            ran = lowered(running.stage, replace(part.work, aten=part.aten), inputs, running.arena, running.shared)
        else:
            record = self._recorded_graph(name, part, running.stage)
            ran = run_aten(part.aten, self._module(record, inputs), inputs, self.symbols)
        running.ran.setdefault(name, ran)
        return ran.outputs

    def _module(self, record: Graph, inputs: tuple[Any, ...]) -> torch.fx.GraphModule:
        return graph_module(record, self.symbols | bind_symbols(record, inputs), self.trust)

    def _recorded_graph(self, name: str, part: Part, stage: str) -> Graph:
        """The graph of a part after the last pass that changed it, or as it was before all."""
        names = [artifact.name for artifact in self.recording.artifacts(self.compile_id, "passes")]
        own = sorted(n for n in names if n.rpartition(".")[0] == name and stage not in ("forward", "backward"))
        if own:
            return self._aten_record("passes", own[-1])
        if part.half == "backward":
            return self._aten_record("backward", name.removesuffix(".backward"))
        return self._aten_record("forward", name)

    # ---- what is held against what
    def pairs(self, stage: str, name: str, ran: Execution, work: Any = None) -> Iterator[Pair]:
        """The values of the first run of each part, beside eager's on what that part was given."""
        if stage == "capture":
            return
        built, running = work or self.work, self.running
        for part_name, own in running.ran.items():
            part, given = built.parts[part_name], running.given[part_name]
            record = self._recorded_graph(part_name, part, "passes" if stage in LOWERED else stage)
            if stage in ("forward", "passes"):
                if part.half == "backward":
                    continue
                found = graph_pairs(record, own, self._reference(part.captured.module, given))
            elif stage in ("loop_ir", "kernels"):
                reference = self._reference(self._module(record, given), given)
                steps: Sequence[Any] = part.work.program.steps if stage == "loop_ir" else part.work.plan.items
                found = buffer_pairs(steps, own.values, reference, sources_of(record))
            else:
                continue
            yield from (replace(pair, name=f"{part_name}.{pair.name}", source=f"{part_name}:{pair.source}",
                               label=f"{part_name}.") for pair in found)

    def _reference(self, module: torch.fx.GraphModule, given: tuple[Any, ...]) -> Reference:
        return Reference(lambda dtype, noise: run_graph(module, clones(given, self.device, dtype), dtype is not None,
                                                        noise=noise))

    def _passes_of(self, stage: str) -> list[str]:
        return []

    def _random(self, stage: str, ran: Execution) -> dict[str, Any]:
        return {}

    def location(self, node: str) -> Location | None:
        """The line of the program behind a captured node of a part."""
        part, _, origin = node.rpartition(":")
        if part not in getattr(getattr(self, "work", None), "parts", {}):
            return super().location(node)
        stacks = [n.meta.get("stack") for n in self.work.parts[part].captured.module.graph.nodes if n.name == origin]
        return stacks[0][-1] if stacks and stacks[0] else None

    def parts(self) -> Iterator[LoweredPart]:
        """What was lowered, each with the inputs of its first run on the last rung."""
        for name, given in list(self.running.given.items()):
            part = self.work.parts[name]
            record = self._recorded_graph(name, part, "passes")
            sources = {node: f"{name}:{source}" for node, source in sources_of(record).items()}
            work = replace(part.work, aten=part.aten)
            yield LoweredPart(f"{name}.", work, clones(given, self.device), sources, f"{name}.")

    def _drift(self) -> tuple[str, ...]:
        return () if self.sizes else super()._drift()


def _layout(value: Any) -> tuple[Any, ...] | None:
    if not isinstance(value, torch.Tensor):
        return None
    sizes = zip(value.shape, value.stride())
    return value.dtype, tuple(value.shape), tuple(stride for size, stride in sizes if size > 1)


def _plain(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value
