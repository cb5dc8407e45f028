"""Forward and backward traced together, through autograd, ahead of time.

The captured graph runs once over functional fakes (see `aten_graph.py`) with autograd above them, and then its results
are differentiated: each operator of forward and backward reaches one tracer. Autograd numbers its nodes in the order in
which they are created, so the sequence number of the running autograd node says which captured node it belongs to.
"""
from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from ....artifacts.context import CompileContext
from ...graphs.aliasing import returns_alias
from ...graphs.autograd_graphs import BACKWARD, FORWARD, NEVER, JointGraph
from ...graphs.functional_graph import AtenGraph, Captured, FromGraph, Output, ViewOfGraph, fake_mode_of
from ...unsupported import EngineUnsupported
from ..aten_graph import AtenTracer, functionalization
from ..output_aliasing import further_writes, mutated_inputs, uncounted_writes
from .graph_walks import freed_together, saved_memory, walk, watched
from .result_dependence import relations
from .result_sources import Results, results_of


class JointTracer(AtenTracer):
    """Records forward and backward; knows for each operator of the backward which captured node it differentiates."""

    phase = FORWARD
    stage = "joint"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._starts: list[int] = []  # autograd's sequence number when the captured node of the same position began
        self._sources: list[torch.fx.Node] = []
        self._last: torch.fx.Node | None = None

    def enter(self, node: torch.fx.Node) -> None:
        """Note from which number on autograd's nodes belong to `node`."""
        super().enter(node)
        self._starts.append(torch.autograd._get_sequence_nr())
        self._sources.append(node)

    def is_checkpointed(self, node: Any) -> bool:
        """Whether a node of autograd's belongs to a checkpointed region, whose tensors eager does not keep."""
        position = bisect_right(self._starts, node._sequence_nr()) - 1
        return 0 <= position < len(self._sources) and "recompute" in self._sources[position].meta

    def source(self) -> torch.fx.Node | None:
        """The captured node that runs, or whose derivative runs; sums of gradients belong to what ran before."""
        if self.phase == FORWARD:
            return self.current
        running = torch._C._current_autograd_node()
        if running is not None:
            position = bisect_right(self._starts, running._sequence_nr()) - 1
            if 0 <= position < len(self._sources):
                self._last = self._sources[position]
        return self._last

    def _annotate(self, node: torch.fx.Node) -> None:
        super()._annotate(node)
        node.meta["phase"] = self.phase
        if self.phase == FORWARD and self.current is not None and "recompute" in self.current.meta:
            node.meta.update({key: self.current.meta.get(key) for key in ("recompute", "checkpoint")})

    def tangent(self, number: int, like: torch.Tensor) -> torch.Tensor:
        """The placeholder of a tangent, with the layout of the result `like`."""
        last = [n for n in self.graph.nodes if n.op == "placeholder"][-1]
        with self.graph.inserting_after(last):
            node = self.graph.placeholder(f"tangent{number}")
        node.meta["phase"] = BACKWARD
        with self.fake_mode:
            fake = torch.empty_like(like, requires_grad=False)
        wrapped: torch.Tensor = self.wrap(node, fake)
        return wrapped


@dataclass(frozen=True)
class _Input:
    """An input of the trace: its functional stand-in, and the edge to it, if it requires grad, before it is changed."""

    value: Any
    requires_grad: bool
    edge: Any = None
    is_leaf: bool = False


def trace_joint(captured: Captured, context: CompileContext, lowered: Container[Any] = ()) -> JointGraph | None:
    """Trace forward and backward of `captured`; None where no result needs a gradient after all.

    Raises EngineUnsupported for what a joint graph cannot express.
    """
    fake_mode = fake_mode_of(captured)
    tracer = JointTracer(fake_mode, context, lowered)
    with _tracing(captured), fake_mode:
        inputs = _wrap_inputs(captured, tracer)
        wrapped = tuple(i.value for i in inputs)
        with tracer, functionalization():
            returned = tracer.run(captured.module, wrapped)
        with tracer, torch.no_grad():
            mutated = mutated_inputs(captured.inputs, wrapped)
        tracked = {i for i in mutated if _changed_under_autograd(inputs[i])}
        inside = [i for i in mutated if i not in tracked]
        with tracer, torch.no_grad():
            results = results_of(captured, wrapped, returned, inside, sorted(tracked))
        differentiated = [k for k, v in enumerate(results.values) if k >= len(inside) and v.requires_grad]
        wanted = [i for i, item in enumerate(inputs) if item.requires_grad]
        if not differentiated:
            return None
        _refuse_inference_mode(captured)
        edges = [inputs[i].edge for i in wanted]
        walks = [walk(results.values[k]) for k in differentiated]
        reached = tuple(frozenset(k for k, w in enumerate(walks) if (e.node, e.output_nr) in w.edges) for e in edges)
        saved = saved_memory(walks)
        shared = freed_together(walks, saved)
        own = dict(list(enumerate(results.values))[len(mutated):])
        uncounted = uncounted_writes(captured, wrapped, inside)
        counted = set(mutated).difference(uncounted)
        read = {i: v for i, v in enumerate(wrapped) if isinstance(v, torch.Tensor) and i not in counted}
        kept = [watched(tensors, walks, saved, tracer.is_checkpointed) for tensors in (read, own)]
        cuts, related = relations(captured, returned, results, differentiated) if not tracked else ((), {})
        order: list[int] = []
        for i in wanted:
            if inputs[i].is_leaf:
                inputs[i].value.register_hook(functools.partial(_note, order, i))
        tensors = [value for value in (*wrapped, *results.values) if isinstance(value, torch.Tensor)]
        before = _contents(tensors)
        gradients = _differentiate(tracer, results, differentiated, edges)
        if _contents(tensors) != before:
            raise EngineUnsupported("the backward of a custom operator mutates a tensor of the forward")
        with tracer, torch.no_grad():
            values = [*map(_unwrap, results.values), *map(_resolved, gradients)]
    for node in tracer.graph.nodes:
        node.meta.setdefault("phase", FORWARD)  # placeholders, constants
    tracer.output(values)
    module = torch.fx.GraphModule(tracer.constants, tracer.graph, "JointGraph")
    further = further_writes(captured, wrapped, mutated)
    forward = AtenGraph(
        module, captured.inputs, dict(enumerate(inside)), results.outputs, uncounted=uncounted, further=further
    )
    assigned = {len(inside) + k: i for k, i in enumerate(sorted(tracked))}
    return JointGraph(
        forward, len(results.values), tuple(differentiated), tuple(wanted), assigned, reached, shared, tuple(order),
        cuts, related, _written(captured, results.outputs), *kept,
    )


def _written(captured: Captured, outputs: Sequence[Output]) -> dict[int, int]:
    """How often each graph output was written before it was returned, by its index."""
    returned: Any = captured.module.graph.output_node().args[0]
    values = [node.meta.get("val") if isinstance(node, torch.fx.Node) else None for node in returned]
    return {
        output.index: value._version for output, value in zip(outputs, values)
        if isinstance(output, (FromGraph, ViewOfGraph)) and isinstance(value, torch.Tensor) and not value.is_inference()
        and value._version
    }


def _refuse_inference_mode(captured: Captured) -> None:
    """Raises EngineUnsupported where the graph turns the inference mode on for a part of its results: the autograd node
    makes ordinary tensors."""
    returned: Any = captured.module.graph.output_node().args[0]
    made = [node.meta.get("val") for node in returned if isinstance(node, torch.fx.Node) and node.op != "placeholder"]
    made_there, given = [
        any(isinstance(value, torch.Tensor) and value.is_inference() for value in values)
        for values in (made, captured.inputs)
    ]
    if made_there and not given:
        raise EngineUnsupported("the inference mode changes inside the graph")


@contextmanager
def _tracing(captured: Captured) -> Iterator[None]:
    """Modes as they are at the call; nothing stays in the cache of autocast, which would keep the fakes."""
    torch.clear_autocast_cache()
    try:
        with torch.inference_mode(False), torch.set_grad_enabled(captured.grad_enabled):
            yield
    finally:
        torch.clear_autocast_cache()


def _wrap_inputs(captured: Captured, tracer: JointTracer) -> list[_Input]:
    placeholders = [n for n in captured.module.graph.nodes if n.op == "placeholder"]
    inputs = []
    for i, (node, fake) in enumerate(zip(placeholders, captured.inputs)):
        value = tracer.placeholder(i, fake)
        if not isinstance(fake, torch.Tensor):
            inputs.append(_Input(value, False))
            continue
        requires_grad, is_leaf = node.meta.get("autograd") or (fake.requires_grad, fake.is_leaf)
        if requires_grad and is_leaf:
            value.requires_grad_()
        elif requires_grad:
            torch._mirror_autograd_meta_to(fake, value)  # type: ignore[attr-defined]
        edge = torch.autograd.graph.get_gradient_edge(value) if requires_grad else None
        inputs.append(_Input(value, requires_grad, edge, requires_grad and is_leaf))
    return inputs


def _changed_under_autograd(item: _Input) -> bool:
    """Whether autograd recorded what changed the input: then gradients flow through its new value."""
    if not item.value.requires_grad:
        return False
    if not item.requires_grad:
        return True
    edge = torch.autograd.graph.get_gradient_edge(item.value)
    return edge.node is not item.edge.node or edge.output_nr != item.edge.output_nr


def _differentiate(tracer: JointTracer, results: Results, differentiated: list[int], edges: list[Any]) -> list[Any]:
    """The gradients of the inputs behind `edges`, None where there is none, computed from tangents of the results."""
    with torch.no_grad():
        inner = [torch._from_functional_tensor(results.values[k]) for k in differentiated]
        tangents = [tracer.tangent(number, like) for number, like in enumerate(inner)]
    tracer.phase = BACKWARD
    tracer.current = None
    if not edges:
        raise EngineUnsupported("a result requires grad although no input does: a tensor created in the graph does")
    roots = [results.values[k] for k in differentiated]
    with tracer, functionalization(), torch.autograd.set_multithreading_enabled(False), torch._C._DisableAutocast():
        try:
            found = torch.autograd.grad(roots, edges, tangents, allow_unused=True)
        except GuardOnDataDependentSymNode:
            raise
        except RuntimeError as error:  # the program's own, which its backward raises
            raise EngineUnsupported(f"differentiating the graph raises: {str(error).partition(chr(10))[0]}") from error
    return list(found)


def _contents(values: Sequence[torch.Tensor]) -> list[int]:
    """What tells whether functional tensors are written in between."""
    for value in values:
        if torch._is_functional_tensor(value):
            torch._sync(value)
    return [id(torch._from_functional_tensor(v)) if torch._is_functional_tensor(v) else v._version for v in values]


def _note(order: list[int], position: int, _: torch.Tensor) -> None:
    """A hook: the gradient of the input at `position` has arrived."""
    order.append(position)


def _unwrap(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not torch._is_functional_tensor(value):
        return value
    torch._sync(value)
    inner = torch._from_functional_tensor(value)
    if inner.is_conj() or inner.is_neg():
        raise EngineUnsupported("a result is a lazily conjugated tensor")
    return inner


def _resolved(gradient: Any) -> Any:
    """A gradient with its elements computed: that autograd happens to conjugate them lazily is of no use to anybody."""
    if not isinstance(gradient, torch.Tensor) or not torch._is_functional_tensor(gradient):
        return gradient
    torch._sync(gradient)
    return torch._from_functional_tensor(gradient).resolve_conj().resolve_neg()


def shield_changed_inputs(joint: JointGraph) -> None:
    """Let the backward read a copy, made by the forward, of each input that is changed in place afterwards.

    After the passes, which do not model mutation and would remove the copy.
    """
    graph = joint.module.graph
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    for node in (placeholders[i] for i in (*joint.forward.mutations.values(), *joint.assigned.values())):
        windows = _windows(node)
        readers = [(user, w) for w in windows for user in w.users if user.meta.get("phase") == BACKWARD]
        if not readers:
            continue
        with graph.inserting_after(placeholders[-1]):
            copy = graph.call_function(torch.ops.aten.clone.default, (node,))
        fake: torch.Tensor = node.meta["val"]
        with fake.fake_mode, torch.no_grad():  # type: ignore[attr-defined]
            copy.meta.update(val=torch.clone(fake.detach()), phase=FORWARD, recompute=NEVER)
        copies = _copied_windows(windows, copy)
        for reader, window in readers:
            reader.replace_input_with(window, copies[window])


def _copied_windows(windows: list[torch.fx.Node], copy: torch.fx.Node) -> dict[torch.fx.Node, torch.fx.Node]:
    """The same views of `copy` as `windows` are of their first."""
    copies = {windows[0]: copy}
    for window in windows[1:]:
        with window.graph.inserting_after(window):
            copies[window] = window.graph.node_copy(window, lambda n: copies.get(n, n))
    return copies


def _windows(node: torch.fx.Node) -> list[torch.fx.Node]:
    """`node` and the forward's views of it, in the order of the graph."""
    found = [node]
    for window in found:
        found += [u for u in window.users if u.meta.get("phase") == FORWARD and returns_alias(u) and u not in found]
    if len(found) == 1:  # each running statistic of a batch norm comes here: the graph is not numbered for them
        return found
    order = {n: i for i, n in enumerate(node.graph.nodes)}
    return sorted(found, key=order.__getitem__)
