"""The ladder of a training graph: every rung is held against eager's results and eager's gradients.

Gradients start from fixed tangents: one for a number, a seeded normal for anything larger (all ones would hide what
cancels). The joint graph, run node by node in eager, is the reference for single nodes: forward and backward have its
names.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from ...artifacts.context import CompileContext, CompileId, run_stages
from ...artifacts.records import Graph, Location, Pass
from ...engine.aot.autograd.autograd_metadata import eager_facts, node_gradients
from ...engine.aot.autograd.eager import EagerForm
from ...engine.aot.autograd.joint import trace_joint
from ...engine.graphs.autograd_graphs import FORWARD, JointGraph
from ...engine.graphs.functional_graph import AtenGraph
from ...engine.lowering import LOWERINGS
from ...engine.runtime.entry import eager_form
from ...engine.stages import TRAINING, Trained
from ..recorded.graphs import ReplayError, graph_module
from ..recorded.inputs import clones, in_words
from ..recorded.state import as_compiled, deterministic
from ..verdicts.compare import compare, worst
from .ladder import Captured, Difference, Ladder, Report, Rung, ran_in_eager, reason
from .pairs import makers_of
from .rungs import Execution, results_of, run_aten, run_graph, run_kernels, run_loops, written

Half = Callable[[str, AtenGraph, tuple[Any, ...]], Execution]
"""Runs one half ("forward" or "backward") on its inputs; the outputs are those that its AtenGraph lists."""


class TrainingLadder(Ladder):
    """The rungs of one training compilation on one device."""

    joint: JointGraph
    form: EagerForm
    trained: Trained
    nodes: Execution  # the recorded joint graph, in eager
    wide_nodes: Execution | None  # and in float64

    def climb(self) -> Report:
        """Run all rungs, lowest first. Where data tells a number, those that need no gradients."""
        try:
            self._trace_joint()
        except (DataDependentOutputException, DynamicOutputShapeException):
            return Ladder(self.recording, self.compile_id, self.device, self.trust, self.runs, self.options).climb()
        self.eager, self.reference = self._in_eager(self._eager), self._wide(self._eager)
        self._program()
        if self.options.wants("capture"):
            self._add("capture", self.eager)
        recorded = partial(self._run_joint, module=self._module("joint", ""))
        self.nodes, self.wide_nodes = self._in_eager(recorded), self._wide(recorded)
        self._rung("joint", "", lambda: self.nodes)
        why = self._compile()
        self._rung("forward", why, partial(self._halves, self._recorded_half, with_backward=False))
        halves: tuple[tuple[str, Half], ...] = (
            ("backward", self._recorded_half), ("passes", self._passed_half), ("loop_ir", self._loops_half),
            ("kernels", self._kernels_half),
        )
        for stage, half in halves:
            self._rung(stage, why, partial(self._halves, half))
        return Report(f"{self.recording.name}:{self.compile_id}", tuple(self.rungs), self.first, self._drift())

    # ---- making the stages again
    def _trace_joint(self) -> None:
        fakes = self._fakes()
        placeholders = [n for n in self.captured.graph.nodes if n.op == "placeholder"]
        for node, fake in zip(placeholders, fakes):
            if isinstance(fake, torch.Tensor):
                node.meta["autograd"] = (fake.requires_grad, False)  # so that it may be changed in place
        captured = Captured(self.captured, fakes, grad_enabled=True)
        try:
            joint = trace_joint(captured, self._context(), LOWERINGS)
        except (DataDependentOutputException, DynamicOutputShapeException):
            raise
        except Exception as error:  # the program was compiled: what fails is to do it again from the recording
            raise ReplayError(f"the recorded graph cannot be traced again: {reason(error)}") from error
        if joint is None:
            raise ReplayError("the recorded graph has a backward, but traced again no result needs a gradient")
        self.joint, self.form = joint, EagerForm(eager_form(captured.module), eager_facts(joint))

    def _context(self) -> CompileContext:
        forced = {d.id: d.chosen for _, d in self.recording.decisions(self.compile_id) if d.forced}
        return CompileContext(CompileId(0, 0), self.collector, forced, recording=True)

    def _compile(self) -> str:
        try:
            self.trained = run_stages(TRAINING, self.joint, self._context())
        except Exception as error:
            return reason(error)
        return ran_in_eager(self.joint.forward, self.saved)

    # ---- the rungs
    def _tangents(self, dtype: torch.dtype | None) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        outputs: Any = self.joint.module.graph.output_node().args[0]
        tangents = []
        for k in self.joint.tangents:
            fake = torch.empty_like(outputs[k].meta["val"])
            values = torch.randn(fake.shape, generator=generator, device="cpu", dtype=torch.float32)
            values = values if fake.dim() else torch.ones((), device="cpu")
            wide = dtype if dtype is not None and fake.is_floating_point() else fake.dtype
            made = torch.empty_strided(fake.shape, fake.stride(), dtype=wide, device=self.device)
            tangents.append(made.copy_(values.to(fake.dtype)))
        return tangents

    def _eager(self, dtype: torch.dtype | None = None) -> Execution:
        """The captured graph, differentiated by autograd."""
        own = clones(self.saved, self.device, dtype)
        for value, item in zip(own, self.kept.inputs):
            if isinstance(value, torch.Tensor) and item.meta is not None:
                value.requires_grad_(item.meta.requires_grad)
        with deterministic(), torch.enable_grad():
            inputs = self.form.fresh(own)
            edges = [torch.autograd.graph.get_gradient_edge(inputs[i]) for i in self.form.facts.gradients_of]
            ran = run_graph(self.captured, inputs, wide=dtype is not None, grad=True)
            roots = [self.form.find(root, ran.outputs, inputs) for root in self.form.facts.roots]
            with as_compiled():  # as in training: backward() is called outside of autocast
                found = torch.autograd.grad(roots, edges, self._tangents(dtype), allow_unused=True)
        reached = dict(zip(self.form.facts.gradients_of, found))
        gradients = tuple([reached.get(i) for i in self.joint.gradients])  # None where no result depends on the input
        outputs, changed = (tuple(map(_plain, values)) for values in (ran.outputs, inputs))
        return Execution(outputs, changed, ran.values, ran.seconds, gradients)

    def _wide(self, run: Callable[[torch.dtype], Execution]) -> Execution | None:
        try:
            return run(torch.float64)
        except (RuntimeError, TypeError):  # an operator that has no float64 form: then distances to eager count
            return None

    def _run_joint(self, dtype: torch.dtype | None = None, module: torch.fx.GraphModule | None = None) -> Execution:
        """The joint graph, node by node."""
        inputs = clones(self.saved, self.device, dtype)
        with deterministic(), as_compiled():
            values = (*inputs, *self._tangents(dtype))
            ran = run_graph(module or self.joint.module, values, wide=dtype is not None)
        inside, count = len(self.joint.forward.mutations), self.joint.forward_outputs
        for value, index in zip([v.clone() for v in ran.outputs[:inside]], self.joint.forward.mutations.values()):
            inputs[index].copy_(value)
        return self._finished(inputs, ran.outputs[inside:count], ran.outputs[count:], ran.values, ran.seconds)

    def _halves(self, run: Half, with_backward: bool = True) -> Execution:
        """Forward, then backward; values of the backward have "backward." in front of their names."""
        inputs = clones(self.saved, self.device)
        halves = self.trained.halves
        forward = run("forward", halves.forward, inputs)
        count = self.joint.forward_outputs - len(self.joint.forward.mutations)
        if not with_backward:
            return self._finished(inputs, forward.outputs[:count], (), forward.values, forward.seconds)
        backward = run("backward", node_gradients(halves), (*forward.outputs[count:], *self._tangents(None)))
        gradients = tuple(backward.outputs[i + 1] for i in self.joint.gradients)
        values = {**forward.values, **{f"backward.{name}": value for name, value in backward.values.items()}}
        seconds = forward.seconds + backward.seconds
        return self._finished(inputs, forward.outputs[:count], gradients, values, seconds)

    def _finished(
        self, inputs: tuple[Any, ...], made: tuple[Any, ...], gradients: tuple[Any, ...], values: dict[str, Any],
        seconds: float,
    ) -> Execution:
        """What is done around the autograd node: new values of inputs, views."""
        inside = len(self.joint.forward.mutations)
        for output, index in self.joint.assigned.items():
            inputs[index].copy_(made[output - inside])
        outputs = results_of(self.joint.forward, inputs, made)
        return Execution(outputs, inputs, values, seconds, gradients)

    # ---- the halves, at each stage
    def _module(self, stage: str, name: str) -> torch.fx.GraphModule:
        record = self._artifact(stage, name, (Graph, Pass))
        return graph_module(record.graph if isinstance(record, Pass) else record, self.symbols, self.trust)

    def _recorded_half(self, half: str, aten: AtenGraph, inputs: tuple[Any, ...]) -> Execution:
        return self._run_recorded(self._module(half, ""), aten, inputs)

    def _run_recorded(self, module: torch.fx.GraphModule, aten: AtenGraph, inputs: tuple[Any, ...]) -> Execution:
        """A recorded graph on the inputs of the one traced again, which has numbers where sizes were inputs."""
        names = [n.name for n in module.graph.nodes if n.op == "placeholder"]
        numbers = [name in self.symbols for name in names] if len(names) > len(inputs) else []
        if len(names) != len(inputs) + sum(numbers):
            raise ReplayError("the cut made again keeps other values than the recorded one, whose halves stand alone")
        supply = iter(inputs)
        inputs = tuple(self.symbols[name] if number else next(supply) for name, number in zip(names, numbers)) or inputs
        return run_aten(aten, module, inputs)

    def _passed_half(self, half: str, aten: AtenGraph, inputs: tuple[Any, ...]) -> Execution:
        names = [a.name for a in self.recording.artifacts(self.compile_id, "passes")]
        own = sorted(n for n in names if n.startswith("backward.") if half == "backward") or sorted(
            n for n in names if "." not in n and half == "forward")
        return self._run_recorded(self._module("passes", own[-1]) if own else self._module(half, ""), aten, inputs)

    def _loops_half(self, half: str, aten: AtenGraph, inputs: tuple[Any, ...]) -> Execution:
        work = getattr(self.trained, half)
        return run_loops(work.aten, work.program, inputs)

    def _kernels_half(self, half: str, aten: AtenGraph, inputs: tuple[Any, ...]) -> Execution:
        work = getattr(self.trained, half)
        return run_kernels(work.aten, work.plan, work.kernels, work.signatures, inputs)

    # ---- what is compared
    def _add(self, stage: str, ran: Execution) -> None:
        references = self.reference.observed() if self.reference is not None else [None] * len(ran.observed())
        found = {name: compare(*three) for name, *three in
                 zip(self._names(ran), ran.observed(), self.eager.observed(), references)}
        comparison = worst(list(found.values()))
        where = next(name for name, c in found.items() if c is comparison) if comparison.verdict != "equal" else ""
        if where:
            comparison = replace(comparison, why=f"{where}: {comparison.why}")
        self.rungs.append(Rung(stage, self.device, comparison.verdict, comparison, ran.seconds))
        if comparison.verdict == "different" and self.first is None:
            self.first = self._locate(stage, ran) or Difference(stage, where, None, comparison)

    def _names(self, ran: Execution) -> list[str]:
        names = [in_words(item.name) for item in self.kept.inputs]
        return [*(f"result {i}" for i in range(len(ran.outputs))), *names,
                *(f"gradient of {names[i]}" for i in self.joint.gradients)][: len(ran.observed())]

    def _locate(self, stage: str, ran: Execution) -> Difference | None:
        """The first node whose value is different: from eager's where the joint graph itself is in question."""
        graph = {n.name: n for n in self.joint.module.graph.nodes}
        pairs = [] if stage == "joint" else [self._half_pairs(stage, ran)]
        for name, value, node, expected, wide in chain(*pairs, self._joint_pairs(ran)):
            if isinstance(value, torch.Tensor) and isinstance(expected, torch.Tensor) and value.shape == expected.shape:
                found = compare(value, expected, wide)
                if found.verdict == "different":
                    return Difference(stage, name, self._line(graph.get(node)), found)
        return None

    def _joint_pairs(self, ran: Execution) -> Iterator[tuple[str, Any, str, Any, Any]]:
        """Nodes of the forward beside the captured node whose last piece they are, then gradients beside eager's."""
        nodes = [n for n in self.joint.module.graph.nodes if n.op == "call_function"]
        last = {origin: n for n in nodes if n.meta["phase"] == FORWARD for origin in n.meta.get("origins", ())}
        wide = self.reference
        for origin, node in last.items():
            expected = self.eager.values.get(origin)
            yield node.name, ran.values.get(node.name), node.name, expected, wide and wide.values.get(origin)
        outputs: Any = self.joint.module.graph.output_node().args[0]
        made = outputs[self.joint.forward_outputs :]
        for i, (value, expected) in enumerate(zip(ran.gradients, self.eager.gradients)):
            name = getattr(made[i], "name", f"gradient {i}")
            yield name, value, name, expected, wide and wide.gradients[i]

    def _half_pairs(self, stage: str, ran: Execution) -> Iterator[tuple[str, Any, str, Any, Any]]:
        """What the halves computed beside the joint graph's node of the same name, or whose value a buffer holds."""
        for half, prefix in (("forward", ""), ("backward", "backward.")):
            for name, node in self._owners(stage, half):
                expected = self.nodes.values.get(node)
                wide = self.wide_nodes.values.get(node) if self.wide_nodes is not None else None
                yield prefix + name, ran.values.get(prefix + name), node, expected, wide

    def _owners(self, stage: str, half: str) -> Iterator[tuple[str, str]]:
        """(node or buffer, node of the joint graph) in the order in which they are computed."""
        work = getattr(self.trained, half)
        if stage in ("forward", "backward", "passes"):
            yield from ((n.name, n.name) for n in getattr(self.trained.halves, half).module.graph.nodes)
            return
        for step in work.program.steps if stage == "loop_ir" else work.plan.items:
            made = dict(makers_of(step))
            for name in written(step):
                yield from ((name, maker) for maker in made.get(name, ())[:1])

    def _line(self, node: torch.fx.Node | None) -> Location | None:
        origins = node.meta.get("origins", ()) if node is not None else ()
        return self._location(origins[0]) if origins else None


def _plain(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value
