"""The compiled graph as the program's autograd sees it: one node, whose forward and backward are compiled.

What the node saves goes through `save_for_backward`, so that changing a saved tensor, saved-tensor hooks (offloading,
checkpoints around it), `retain_graph` and a second backward behave as in eager. Views of inputs and new values of
inputs that autograd tracks are made outside of the node, where autograd records them.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..entry import Compiled, apart, without_autocast
from ..functional import AtenGraph, Captured, Constant, Output
from .eager import Call, EagerForm, eager_of
from .graphs import JointGraph, Partitioned


@dataclass(frozen=True)
class Differentiable:
    """What the autograd node needs to know of its graph.

    `forward(*inputs)` returns `results` values for the program, then tensors, then sizes to save. `backward(values)`
    takes a list of the saved tensors and sizes and of the tangents, which it empties, and returns the gradients of the
    node's arguments. `tangents` are the positions of the results that have one; `constant` those that autograd does
    not track. `reached` has, for each argument, the tangents without which it has no gradient.
    """

    forward: Callable[..., Sequence[Any]]
    backward: Callable[[list[Any]], Sequence[Any]]
    eager: EagerForm
    results: int
    saved_tensors: int
    tangents: tuple[int, ...]
    constant: tuple[int, ...]
    reached: tuple[frozenset[int], ...]
    arguments: int


class CompiledGraph(torch.autograd.Function):
    """The node. Its first argument is the `Differentiable`, then come the graph's inputs."""

    @staticmethod
    def forward(ctx: Any, graph: Differentiable, *inputs: Any) -> Sequence[Any]:
        """Run the compiled forward, keep what the backward reads."""
        ctx.set_materialize_grads(False)
        ctx.graph = graph
        ctx.call = graph.eager.remember(inputs)
        values = graph.forward(*inputs)
        count = graph.results
        last = count + graph.saved_tensors
        ctx.save_for_backward(*values[count:last])
        ctx.sizes = values[last:]
        results = values[:count]
        if graph.constant:
            ctx.mark_non_differentiable(*[results[i] for i in graph.constant])
        return results

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Sequence[Any]:
        """The gradients of the inputs, from compiled code; in eager where they must be differentiable themselves."""
        graph: Differentiable = ctx.graph
        if torch.is_grad_enabled():
            _ = ctx.saved_tensors  # raises where they were freed, or changed in place
            return _differentiable_gradients(graph, ctx.call, [tangents[i] for i in graph.tangents])
        given = [tangents[i] for i in graph.tangents]
        missing = {k for k, tangent in enumerate(given) if tangent is None}
        values = [*ctx.saved_tensors, *ctx.sizes, *given]
        if not _keeps_graph():
            ctx.maybe_clear_saved_tensors()
            ctx.call = None
        if len(missing) == len(graph.tangents):
            return (None,) * graph.arguments
        with torch._C._DisableAutocast() if _autocasts() else _nothing:
            gradients = graph.backward(values)
        if missing:
            return tuple(None if needs <= missing else g for needs, g in zip(graph.reached, gradients))
        return gradients


_apply = super(torch.autograd.Function, CompiledGraph).apply  # without the checks for functorch's transforms
_autocasts = torch._C._is_any_autocast_enabled
_keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph
_nothing = nullcontext()


def _differentiable_gradients(graph: Differentiable, call: Call, tangents: list[Any]) -> tuple[Any, ...]:
    found: list[Any] = [None] * graph.arguments
    for i, gradient in zip(graph.eager.gradients_of, graph.eager.gradients(call, tangents)):
        found[i + 1] = gradient
    return tuple(found)


def node_gradients(halves: Partitioned) -> AtenGraph:
    """The backward with a gradient, or None, for each argument of the autograd node: the graph, then its inputs."""
    none = Constant(None)
    outputs: list[Output] = [none] * (len(halves.joint.forward.inputs) + 1)
    for i, output in zip(halves.joint.gradients, halves.backward.outputs):
        outputs[i + 1] = output
    return replace(halves.backward, outputs=tuple(outputs))


def _reached(joint: JointGraph) -> tuple[frozenset[int], ...]:
    """For each argument of the autograd node, the tangents that lead to it."""
    found: list[frozenset[int]] = [frozenset()] * (len(joint.forward.inputs) + 1)
    for i, tangents in zip(joint.gradients, joint.reached):
        found[i + 1] = tangents
    return tuple(found)


def training_entry(
    captured: Captured, halves: Partitioned, forward: Compiled, backward: Compiled, outside: Compiled | None
) -> Compiled:
    """The callable that stands for the captured graph: takes its inputs, returns its results, which require grad.

    `backward` returns what `node_gradients` says.
    """
    joint = halves.joint
    inside = len(joint.forward.mutations)
    results = joint.forward_outputs - inside
    tangents = tuple(k - inside for k in joint.tangents)
    graph = Differentiable(
        without_autocast(forward), backward, eager_of(captured, joint), results,
        sum(s.kind != "size" for s in halves.saved), tangents,
        tuple(i for i in range(results) if i not in tangents), _reached(joint), len(joint.forward.inputs) + 1,
    )

    apply = _apply if captured.grad_enabled else torch.enable_grad()(_apply)  # gradients are on in a part of the graph

    def call(*inputs: Any) -> Sequence[Any]:
        made = apply(graph, *inputs)
        return made if outside is None else outside(inputs, made)

    changed = set(joint.forward.mutations.values()) | set(joint.assigned.values())
    return apart(call, captured.module, joint.forward.inputs, changed) if changed else call
