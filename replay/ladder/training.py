"""The ladder of a training graph: every rung is held against eager's results and eager's gradients.

Gradients start from fixed tangents: one for a number, a seeded normal for anything larger (all ones would hide what
cancels). The joint graph, run node by node in eager, is the reference for single nodes: forward and backward have its
names.
"""
from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from typing import Any

import torch
import torch.fx

from ...artifacts.input_names import in_words
from ...artifacts.records import Graph
from ...engine.aot.autograd import autograd_epilogue
from ...engine.aot.autograd.autograd_metadata import autograd_metadata_of, eager_facts, node_gradients
from ...engine.aot.autograd.eager import EagerForm
from ...engine.aot.autograd.entry import training_entry
from ...engine.aot.autograd.joint import trace_joint
from ...engine.codegen import wrapper
from ...engine.graphs.autograd_graphs import FORWARD, JointGraph
from ...engine.graphs.functional_graph import AtenGraph
from ...engine.lowering import lowerings
from ...engine.runtime.entry import eager_form
from ...engine.stages import TRAINING, Trained
from ...operators.dynamo_stubs import without_dynamo
from ..recorded.graphs import ReplayError, graph_module
from ..recorded.inputs import clones
from ..recorded.precision import in_recorded_precision
from ..recorded.state import as_compiled, deterministic
from ..verdicts.compare import worst
from ..verdicts.nonfinite import Birth, kind_of
from . import regenerate
from .arena import Arena
from .births import graph_births, input_names
from .derivatives import wrong_derivative
from .entry import ran_in_eager
from .explain import random_results
from .ladder import LOWERED, Ladder
from .pairs import LoweredPart, Pair, buffer_pairs
from .recorded_halves import Half, gradients_of, read_by, run_half
from .reference import Noise, Reference
from .regenerate import Captured, Collector, reason
from .report import Difference, Report
from .rungs import Execution, Symbols, results_of, run_graph, symbols_in
from .steps import lowered
from .unbacked import bind_unbacked


class TrainingLadder(Ladder):
    """The rungs of one training compilation on one device."""

    joint: JointGraph
    traced: Captured
    form: EagerForm
    work: Trained

    def climb(self) -> Report:
        """Run all rungs, lowest first; without gradients, only the captured graph, where it cannot be traced again."""
        try:
            self.joint = self._traced(Collector())
        except Exception as error:
            why = f"the recorded graph cannot be traced again: {reason(error)}"
            eager = self._in_eager()
            self._program()
            self._add("capture", eager)
            for stage in ("joint", "forward", "backward", "passes", *LOWERED, "runtime"):
                self._rung(stage, why, lambda: eager)
            return self._report()
        self.form = EagerForm(eager_form(self.captured), eager_facts(self.joint))
        self.tangents: list[torch.Tensor] = []  # made when eager has run, which knows their sizes
        self.program = Reference(self._differentiated, self._joint_run, self.graph)
        eager = self._in_eager()
        self._program()
        self._add("capture", eager)
        self._rung("joint", "", lambda: self.nodes.eager)
        why = self._compile()
        self._rung("forward", why, partial(self._recorded, with_backward=False))
        self._rung("backward", why, self._recorded)
        if self.options.each_pass:
            for name in [*self._passes_of("forward"), *self._pass_names()]:
                self._rung("passes", why, partial(self._run_pass, name), name)
        else:
            self._rung("passes", why, partial(self._recorded, self._passed("")))
        for stage in LOWERED:
            self._rung(stage, why, partial(self.lowered, stage, None))
        self._rung("runtime", why, self._as_called)
        return self._report()

    # ---- making the stages again
    def _traced(self, collector: Collector, forced: Mapping[str, str] | None = None) -> JointGraph:
        fakes = self._fakes()
        placeholders = [n for n in self.captured.graph.nodes if n.op == "placeholder"]
        for node, fake in zip(placeholders, fakes):
            if isinstance(fake, torch.Tensor):
                node.meta["autograd"] = (fake.requires_grad, False)  # so that it may be changed in place
        captured = Captured(self.captured, fakes, grad_enabled=self._recorded_grad)
        with deterministic(), in_recorded_precision(), without_dynamo():
            joint = trace_joint(captured, self._context(forced or {}, collector), lowerings())
        self.traced = captured
        if joint is None:
            raise ReplayError("it has a backward, but no result needs a gradient")
        return joint

    def _generated(self, forced: Mapping[str, str], collector: Collector, expose: bool = False) -> Trained:
        stages = regenerate.exposing(TRAINING) if expose else TRAINING
        joint = self._traced(collector, forced)
        made: Trained = regenerate.made(stages, joint, self._context(forced, collector))
        return made

    @property
    def _recorded_grad(self) -> bool:
        """Whether gradients were on around the call: of a graph that turns them on by itself, they need not be."""
        return self.kept.state is None or self.kept.state.grad

    def _in_eager_why(self) -> str:
        return ran_in_eager(self.joint.forward, self.saved)

    # ---- eager, and the joint graph node by node
    def _tangents_for(self, roots: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The tangents of results like `roots`."""
        generator = torch.Generator().manual_seed(0)
        made = []
        for root in roots:
            empty = torch.empty_like(root, requires_grad=False)
            values = torch.randn(root.shape, generator=generator, device="cpu", dtype=torch.float32)
            values = values if root.dim() else torch.ones((), device="cpu")
            made.append(empty.copy_(values.to(root.dtype)))
        return made

    def _tangents(self, dtype: torch.dtype | None) -> list[torch.Tensor]:
        return [t.to(dtype) if dtype is not None and t.is_floating_point() else t.clone() for t in self.tangents]

    def _differentiated(
        self, dtype: torch.dtype | None, noise: Noise, seen: Callable[[str, Any], None] | None = None
    ) -> Execution:
        """The captured graph, differentiated by autograd."""
        return self._from_tangents(
            lambda inputs: run_graph(
                self.captured, inputs, wide=dtype is not None, grad=self._recorded_grad, seen=seen), dtype)

    def _as_called(self) -> Execution:
        """The compiled halves through their autograd node, as the program calls them."""
        around = autograd_epilogue.generate(self.work.halves, self.work.forward.plan)
        outside = None if around is None else wrapper.load(around, self._context({}, Collector()).for_part("outside"))
        call = training_entry(self.traced, autograd_metadata_of(self.work.halves), self.work.forward.call,
                              self.work.backward.call, outside)

        def run(inputs: tuple[Any, ...]) -> Execution:
            start = time.perf_counter()
            return Execution(tuple(call(*inputs)), inputs, {}, time.perf_counter() - start)

        return self._from_tangents(run, None)

    def _from_tangents(self, run: Callable[[tuple[Any, ...]], Execution], dtype: torch.dtype | None) -> Execution:
        """A run on inputs that need gradients, and those gradients by autograd."""
        own = self._inputs(dtype)
        for value, item in zip(own, self.kept.inputs):
            if isinstance(value, torch.Tensor) and item.meta is not None:
                value.requires_grad_(item.meta.requires_grad)
        with torch.enable_grad():
            inputs = self.form.fresh(own)
            edges = [torch.autograd.graph.get_gradient_edge(inputs[i]) for i in self.form.facts.gradients_of]
            ran = run(inputs)
            roots = [self.form.find(root, ran.outputs, inputs) for root in self.form.facts.roots]
            self.tangents = self.tangents or self._tangents_for(roots)
            with as_compiled():  # as in training: backward() is called outside of autocast
                found = torch.autograd.grad(roots, edges, self._tangents(dtype), allow_unused=True)
        reached = dict(zip(self.form.facts.gradients_of, found))
        gradients = tuple([reached.get(i) for i in self.joint.gradients])  # None where no result depends on the input
        outputs, changed = (tuple(map(_plain, values)) for values in (ran.outputs, inputs))
        return Execution(outputs, changed, ran.values, ran.seconds, gradients)

    @cached_property
    def _joint_record(self) -> Graph:
        found: Graph = self._artifact("joint", "", Graph)
        return found

    @cached_property
    def _joint_module(self) -> torch.fx.GraphModule:
        return self._joint_form(self._joint_record)

    def _joint_form(self, record: Graph) -> torch.fx.GraphModule:
        inputs = (*self._inputs(), *self._tangents(None))
        return graph_module(record, bind_unbacked(record, self.symbols, inputs, self.trust), self.trust)

    @as_compiled()
    def _joint_run(
        self, dtype: torch.dtype | None, noise: Noise, module: torch.fx.GraphModule | None = None
    ) -> Execution:
        """The recorded joint graph, or a form of it, node by node."""
        inputs = self._inputs(dtype)
        ran = run_graph(module or self._joint_module, (*inputs, *self._tangents(dtype)), dtype is not None, noise=noise)
        inside, count = len(self.joint.forward.mutations), self.joint.forward_outputs
        for value, index in zip([v.clone() for v in ran.outputs[:inside]], self.joint.forward.mutations.values()):
            inputs[index].copy_(value)
        symbols = symbols_in(self.joint.module, ran.values, self.symbols)
        return self._finished(inputs, ran.outputs[inside:count], ran.outputs[count:], ran, symbols)

    @cached_property
    def _traced_symbols(self) -> Symbols:
        """The values of the symbols of the graph traced again."""
        return symbols_in(self.joint.module, self.nodes.eager.values, self.symbols)

    @cached_property
    def nodes(self) -> Reference:
        """The nodes of the joint graph in eager."""
        return Reference(self._joint_run, record=self._joint_record)

    # ---- the two halves
    def _halves(self, run: Callable[[str, AtenGraph, tuple[Any, ...]], Execution], work: Trained) -> Execution:
        """The forward that was made again, then the backward; `run` runs one of them on its inputs. Values of the
        backward have "backward." in front of their names."""
        inputs, halves = self._inputs(), work.halves
        forward = run("forward", halves.forward, inputs)
        count = self.joint.forward_outputs - len(self.joint.forward.mutations)
        kept = forward.outputs[count : len(forward.outputs) - len(halves.numbers)]
        backward = run("backward", node_gradients(halves), (*kept, *self._tangents(None)))
        gradients = tuple(backward.outputs[i + 1] for i in self.joint.gradients)
        return self._finished(inputs, forward.outputs[:count], gradients, _one_after_the_other(forward, backward))

    def _recorded(self, halves: Mapping[str, Half] | None = None, with_backward: bool = True) -> Execution:
        """The halves as recorded, or forms of them."""
        halves = halves or {half: self._cut(half) for half in PREFIX}
        inputs, inside = self._inputs(), len(self.joint.forward.mutations)
        forward, symbols = run_half(halves["forward"], inputs, self.symbols, self.trust)
        for value, index in zip([v.clone() for v in forward.outputs[:inside]], self.joint.forward.mutations.values()):
            inputs[index].copy_(value)
        made = forward.outputs[inside : self.joint.forward_outputs]
        if not with_backward:
            return self._finished(inputs, made, (), forward)
        given = read_by(halves["backward"], halves["forward"], inputs, forward, self._tangents(None), symbols)
        backward, _ = run_half(halves["backward"], given, symbols, self.trust)
        last = max(self._passes_of("backward"), default="")
        joint = self._aten_record("passes", last) if last else self._joint_record
        gradients = tuple(gradients_of(joint, self.joint.forward_outputs, backward))
        return self._finished(inputs, made, gradients, _one_after_the_other(forward, backward))

    def _cut(self, half: str) -> Half:
        """A half as it was cut."""
        cut = self._aten_record(half, "")
        return Half(cut, cut)

    def _finished(
        self, inputs: tuple[Any, ...], made: tuple[Any, ...], gradients: tuple[Any, ...], ran: Execution,
        symbols: Symbols | None = None,
    ) -> Execution:
        """What is done around the autograd node: new values of inputs, views."""
        inside = len(self.joint.forward.mutations)
        for output, index in self.joint.assigned.items():
            inputs[index].copy_(made[output - inside])
        symbols = self._traced_symbols if symbols is None else symbols
        outputs = results_of(self.joint.forward, inputs, made, symbols)
        return Execution(outputs, inputs, ran.values, ran.seconds, gradients)

    def lowered(
        self, stage: str, work: Trained | None, arena: Arena | None = None, shared: bool = False,
        random: Mapping[str, Any] | None = None,
    ) -> Execution:
        """Run a stage of both lowered halves, or of another generation of them."""
        made = work or self.work

        def run(half: str, aten: AtenGraph, inputs: tuple[Any, ...]) -> Execution:
            own = replace(getattr(made, half), aten=aten)
            prefix = PREFIX[half]
            given = {name.removeprefix(prefix): value for name, value in (random or {}).items()
                     if name.startswith("backward.") == bool(prefix)}
            return lowered(stage, own, inputs, arena, shared, given)

        return self._halves(run, made)

    def _passed(self, last: str) -> dict[str, Half]:
        """The halves after the passes up to `last`, "" for all."""
        return {half: replace(self._cut(half), form=self._form(half, last)) for half in PREFIX}

    def _form(self, half: str, last: str) -> Graph:
        names = self._half_passes(half)
        own = names[: names.index(last) + 1] if last in names else names
        if last and last not in names and half == "backward":
            own = []  # a pass of the forward, which comes first
        return self._aten_record("passes", own[-1]) if own else self._aten_record(half, "")

    def _run_pass(self, name: str) -> Execution:
        with deterministic():
            if name.startswith("joint."):
                return self._joint_run(None, None, self._joint_form(self._aten_record("passes", name)))
            return self._recorded(self._passed(name))

    def _passes_of(self, stage: str) -> list[str]:
        """Those of the joint graph come before the cut."""
        if stage in ("forward", "backward"):
            names = [a.name for a in self.recording.artifacts(self.compile_id, "passes")]
            return sorted(name for name in names if name.startswith("joint."))
        return super()._passes_of(stage)

    def _half_passes(self, half: str) -> list[str]:
        names = sorted(a.name for a in self.recording.artifacts(self.compile_id, "passes"))
        return [n for n in names if (n.startswith("backward.") if half == "backward" else "." not in n)]

    def _pass_names(self) -> list[str]:
        return [*self._half_passes("forward"), *self._half_passes("backward")]

    # ---- what is held against what
    def _names(self, ran: Execution) -> list[tuple[str, str]]:
        names = super()._names(ran)
        inputs = [in_words(item.name) for item in self.kept.inputs]
        gradients = [(f"gradient of {inputs[i]}", "gradient") for i in self.joint.gradients]
        return [*names, *gradients][: len(ran.observed())]

    def pairs(self, stage: str, name: str, ran: Execution, work: Any = None) -> Iterator[Pair]:
        """The values of a rung that have a counterpart in eager."""
        if stage == "joint":
            return self._joint_pairs(ran)
        if stage in ("forward", "backward", "passes"):
            return chain(*(self._half_nodes(half, ran) for half in PREFIX))
        if stage not in ("loop_ir", "kernels"):
            return iter(())
        work = work or self.work
        parts = []
        for half, prefix in PREFIX.items():
            made = getattr(work, half)
            steps: Sequence[Any] = made.program.steps if stage == "loop_ir" else made.plan.items
            parts.append(buffer_pairs(steps, ran.values, self.nodes, self._sources, prefix))
        return chain(*parts)

    def _joint_pairs(self, ran: Execution) -> Iterator[Pair]:
        """Nodes of the forward beside the captured node whose last piece they are."""
        nodes = [n for n in self.joint.module.graph.nodes if n.op == "call_function"]
        last = {origin: n for n in nodes if n.meta["phase"] == FORWARD for origin in n.meta.get("origins", ())}
        yield from (Pair(node.name, ran.values.get(node.name), origin, self.program, origin)
                    for origin, node in last.items())

    def _half_nodes(self, half: str, ran: Execution) -> Iterator[Pair]:
        """What a half computed beside the joint graph's node of the same name."""
        for node in self._aten_record(half, "").nodes:
            name = PREFIX[half] + node.id
            if name in ran.values:
                yield Pair(name, ran.values[name], node.id, self.nodes, self._sources.get(node.id, ""))

    @cached_property
    def _sources(self) -> dict[str, str]:
        nodes = self.joint.module.graph.nodes
        return {n.name: n.meta["origins"][0] for n in nodes if n.meta.get("origins")}

    def _unstored(self, stage: str) -> Difference | None:
        """Of the joint graph, the operation whose derivative is wrong."""
        if stage != "joint":
            return super()._unstored(stage)
        gradients: dict[str, torch.Tensor] = {}

        def see(name: str, value: Any) -> None:
            if isinstance(value, torch.Tensor) and value.requires_grad:
                value.register_hook(partial(gradients.__setitem__, name))

        with deterministic():
            ran = self._differentiated(None, None, see)
        placeholders = [n.name for n in self.captured.graph.nodes if n.op == "placeholder"]
        gradients |= {placeholders[i]: g for i, g in zip(self.joint.gradients, ran.gradients) if g is not None}
        backward = {n.name for n in self.joint.module.graph.nodes if n.meta.get("phase") != FORWARD}
        values = [value for name, value in self.nodes.eager.values.items() if name in backward]
        node = wrong_derivative(self.captured, gradients, [*values, *self.tangents])
        if node is None:
            return None
        found = worst(self.program.observed(self.nodes.eager))
        return Difference(stage, f"the derivative of {node.name}", self.location(node.name), found)

    def _random(self, stage: str, ran: Execution) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for half, prefix in PREFIX.items():
            made = random_results(getattr(self.work, half).plan.items, self.nodes, ran.values, prefix)
            found |= {prefix + name: value for name, value in made.items()}
        return found

    # ---- kernels alone, NaNs
    def parts(self) -> Iterator[LoweredPart]:
        """Both halves, each with the inputs that it gets in the loop IR."""
        found: list[LoweredPart] = []

        def run(half: str, aten: AtenGraph, inputs: tuple[Any, ...]) -> Execution:
            work = replace(getattr(self.work, half), aten=aten)
            found.append(LoweredPart(PREFIX[half], work, clones(inputs, self.device), self._sources))
            return lowered("loop_ir", work, inputs)

        with deterministic():
            self._halves(run, self.work)
        yield from found

    def _eager_births(self) -> list[Birth]:
        """Of the forward as captured, then of the gradients in the joint graph."""
        found = super()._eager_births()
        inner = self.nodes.eager if hasattr(self, "joint") else None
        if inner is None or not (any(map(kind_of, inner.gradients)) or self.options.nan):
            return found
        backward = {n.name for n in self.joint.module.graph.nodes if n.meta.get("phase") != FORWARD}
        lines = {name: self.location(source) for name, source in self._sources.items()}
        inputs = (*self._inputs(), *self._tangents(None))
        more = graph_births(self._joint_module, inner, self.nodes.wide, inputs, "joint", lines,
                            input_names(self._joint_module, self.kept.inputs))
        return [*found, *(birth for birth in more if birth.node in backward)]


PREFIX = {"forward": "", "backward": "backward."}


def _one_after_the_other(forward: Execution, backward: Execution) -> Execution:
    values = {**forward.values, **{f"backward.{name}": value for name, value in backward.values.items()}}
    return Execution((), (), values, forward.seconds + backward.seconds)


def _plain(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value
