"""The ladder of a graph with torch.cond, while_loop, scan or map: on each rung torch runs these operators, and the rung
runs the parts between and inside them.

A part is what the engine compiles as a graph of its own. Where values first differ is found in the first run of each
part, compared with the same part in eager.
"""
from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensorMode

from ...artifacts.context import CompileContext, run_stages
from ...artifacts.recording import Recording, RecordingError
from ...artifacts.records import Graph, Location, Pass, TensorMeta
from ...engine.aot.control_flow import compile_around, has_control_flow
from ...engine.graphs.functional_graph import Captured as EngineCaptured
from ...engine.graphs.functional_graph import fake_mode_of
from ...engine.runtime.entry import eager_form
from ...engine.stages import INFERENCE, Wrapped
from ..recorded.graphs import ReplayError, graph_module, size_value
from ..recorded.inputs import clones
from ..recorded.state import deterministic
from .ladder import Captured, Difference, Ladder
from .pairs import buffer_pairs, difference, graph_pairs
from .rungs import Execution, run_aten, run_graph, run_kernels, run_loops


def calls_functions(recording: Recording, compile_id: str) -> bool:
    """Whether the captured graph has higher-order operators with subgraphs."""
    try:
        graph = recording.artifact(compile_id, "capture")
    except RecordingError:
        return False
    return isinstance(graph, Graph) and any(isinstance(held, Graph) for held in graph.inner.values())


@dataclass(frozen=True)
class Part:
    """A graph that is compiled around or inside of an operator, and what the engine made of it."""

    captured: EngineCaptured
    work: Wrapped


class ControlLadder(Ladder):
    """The rungs of one such compilation on one device."""

    compiled: set[str]  # names of parts that were, when the recording was made
    parts: dict[str, Part]
    call: Callable[..., Sequence[Any]]
    stage: str  # at which parts run
    ran: dict[str, Execution]  # on this rung: the first run of each part
    nodes: dict[str, Execution]  # the same in eager

    def _make(self) -> None:
        if "joint" in self.recording.stages(self.compile_id):
            raise ReplayError("replay does not differentiate graphs with torch.cond, loops or scans")
        fakes = self._fakes()
        self._tell_values(self.captured, self.graph, fake_mode_of(Captured(self.captured, fakes)))
        for node, fake in zip(self.captured.graph.find_nodes(op="placeholder"), fakes):
            node.meta["val"] = fake
        self.compiled = {artifact.name for artifact in self.recording.artifacts(self.compile_id, "forward")}
        self.parts = {}
        self.call = compile_around(Captured(self.captured, fakes), self._context(), self._part)
        with deterministic():
            self._run("capture")
        self.nodes = self.ran

    def _part(self, captured: EngineCaptured, context: CompileContext) -> Callable[..., Sequence[Any]]:
        """Compile one part, where it was: the callable runs it at the stage of the rung."""
        if has_control_flow(captured):
            return compile_around(captured, context, self._part)
        name = context.part
        if name not in self.compiled:  # its sizes vary, or the engine does not take it
            return eager_form(captured.module)
        self.parts[name] = Part(captured, run_stages(INFERENCE, captured, context))
        return lambda *inputs: self._run_part(name, inputs).outputs

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
        with mode:
            return torch.empty_strided(shape, stride, dtype=getattr(torch, value.dtype), device=self.device)

    # ---- the rungs
    def _climb_stages(self, why: str) -> None:
        unchanged = "" if self.recording.artifacts(self.compile_id, "passes") else "no pass changed the graph"
        for stage in ("forward", "passes", "loop_ir", "kernels"):
            self._rung(stage, why or (unchanged if stage == "passes" else ""), partial(self._run, stage))

    def _run(self, stage: str) -> Execution:
        self.stage, self.ran = stage, {}
        inputs = clones(self.saved, self.device)
        start = time.perf_counter()
        with torch.no_grad():
            outputs = tuple(self.call(*inputs))
        return Execution(outputs, inputs, {}, time.perf_counter() - start)

    def _run_part(self, name: str, inputs: tuple[Any, ...]) -> Execution:
        part = self.parts[name]
        for value, fake in zip(inputs, part.captured.inputs, strict=True):
            if isinstance(fake, torch.Tensor) and _layout(value) != _layout(fake):  # kernels rely on the recorded one
                raise ReplayError(f"the recording is damaged: an input of {name} does not match its metadata")
        work = part.work
        if self.stage == "capture":
            ran = run_graph(part.captured.module, inputs)
        elif self.stage == "loop_ir":
            ran = run_loops(work.aten, work.program, inputs)
        elif self.stage == "kernels":
            ran = run_kernels(work.aten, work.plan, work.kernels, work.signatures, inputs)
        else:
            ran = run_aten(work.aten, graph_module(self._recorded_graph(name), self.symbols, self.trust), inputs)
        self.ran.setdefault(name, ran)
        return ran

    def _recorded_graph(self, part: str) -> Graph:
        """The graph of a part after the last pass that changed it, or as it was before all."""
        names = [artifact.name for artifact in self.recording.artifacts(self.compile_id, "passes")]
        own = sorted(name for name in names if name.rpartition(".")[0] == part) if self.stage == "passes" else []
        record = self._artifact("passes", own[-1], (Graph, Pass)) if own else self._artifact("forward", part, Graph)
        graph: Graph = record if isinstance(record, Graph) else record.graph
        return graph

    # ---- where values first differ
    def _locate(self, stage: str, ran: Execution) -> Difference | None:
        for name, own in self.ran.items():
            part, eager = self.parts[name], self.nodes.get(name)
            if eager is None:
                return None  # another way through the graph: what led here is different, and has been looked at
            if stage in ("forward", "passes"):
                pairs = graph_pairs(self._recorded_graph(name), own)
            else:
                pairs = buffer_pairs(part.work, stage, own)
            for node, value, origin in pairs:
                found = difference(value, eager.values.get(origin))
                if found is not None:
                    return Difference(stage, f"{name}.{node}", _line(part, origin), found)
        return None


def _layout(value: Any) -> tuple[Any, ...] | None:
    if not isinstance(value, torch.Tensor):
        return None
    sizes = zip(value.shape, value.stride())
    return value.dtype, tuple(value.shape), tuple(stride for size, stride in sizes if size > 1)


def _line(part: Part, origin: str) -> Location | None:
    stacks = [node.meta.get("stack") for node in part.captured.module.graph.nodes if node.name == origin]
    return stacks[0][-1] if stacks and stacks[0] else None
