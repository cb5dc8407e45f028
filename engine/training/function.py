"""The compiled graph as the program's autograd sees it: one node, whose forward and backward are compiled.

What the node saves goes through `save_for_backward`, so that changing a saved tensor, saved-tensor hooks (offloading,
checkpoints around it), `retain_graph` and a second backward behave as in eager. Views of inputs and new values of
inputs that autograd tracks are made outside of the node, where autograd records them.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ..entry import Compiled, apart, eager_form, without_autocast
from ..functional import Captured
from .eager import Call, EagerFacts, EagerForm


@dataclass(frozen=True)
class NodeFacts:
    """What the node knows of its graph.

    The forward returns `results` values for the program, then `saved_tensors` tensors, then sizes to save. `tangents`
    are the positions of the results that have one; `constant` those that autograd does not track. `reached` has, for
    each of the node's `arguments`, the tangents without which it has no gradient. `changed` are the inputs that the
    graph writes.
    """

    results: int
    saved_tensors: int
    tangents: tuple[int, ...]
    constant: tuple[int, ...]
    reached: tuple[frozenset[int], ...]
    arguments: int
    changed: tuple[int, ...]
    eager: EagerFacts


@dataclass(frozen=True)
class Differentiable:
    """A graph and its derivative: `forward(*inputs)` returns what `facts` says; `backward(values)` takes a list of the
    saved tensors and sizes and of the tangents, which it empties, and returns the gradients of the node's arguments."""

    forward: Callable[..., Sequence[Any]]
    backward: Callable[[list[Any]], Sequence[Any]]
    eager: EagerForm
    facts: NodeFacts


class CompiledGraph(torch.autograd.Function):
    """The node. Its first argument is the `Differentiable`, then come the graph's inputs."""

    @staticmethod
    def forward(ctx: Any, graph: Differentiable, *inputs: Any) -> Sequence[Any]:
        """Run the compiled forward, keep what the backward reads."""
        ctx.set_materialize_grads(False)
        ctx.graph = graph
        ctx.call = graph.eager.remember(inputs)
        values = graph.forward(*inputs)
        facts = graph.facts
        count = facts.results
        last = count + facts.saved_tensors
        ctx.save_for_backward(*values[count:last])
        ctx.sizes = values[last:]
        results = values[:count]
        if facts.constant:
            ctx.mark_non_differentiable(*[results[i] for i in facts.constant])
        return results

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Sequence[Any]:
        """The gradients of the inputs, from compiled code; in eager where they must be differentiable themselves."""
        graph: Differentiable = ctx.graph
        facts = graph.facts
        if torch.is_grad_enabled():
            _ = ctx.saved_tensors  # raises where they were freed, or changed in place
            return _differentiable_gradients(graph, ctx.call, [tangents[i] for i in facts.tangents])
        given = [tangents[i] for i in facts.tangents]
        missing = {k for k, tangent in enumerate(given) if tangent is None}
        values = [*ctx.saved_tensors, *ctx.sizes, *given]
        if not _keeps_graph():
            ctx.maybe_clear_saved_tensors()
            ctx.call = None
        if len(missing) == len(facts.tangents):
            return (None,) * facts.arguments
        with torch._C._DisableAutocast() if _autocasts() else _nothing:
            gradients = graph.backward(values)
        if missing:
            return tuple(None if needs <= missing else g for needs, g in zip(facts.reached, gradients))
        return gradients


_apply = super(torch.autograd.Function, CompiledGraph).apply  # without the checks for functorch's transforms
_autocasts = torch._C._is_any_autocast_enabled
_keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph
_nothing = nullcontext()


def _differentiable_gradients(graph: Differentiable, call: Call, tangents: list[Any]) -> tuple[Any, ...]:
    found: list[Any] = [None] * graph.facts.arguments
    for i, gradient in zip(graph.facts.eager.gradients_of, graph.eager.gradients(call, tangents)):
        found[i + 1] = gradient
    return tuple(found)


def training_entry(
    captured: Captured, facts: NodeFacts, forward: Compiled, backward: Compiled, outside: Compiled | None
) -> Compiled:
    """The callable that stands for the captured graph: takes its inputs, returns its results, which require grad.

    `backward` returns what `node_gradients` says.
    """
    eager = EagerForm(partial(_run_eager, captured.module), facts.eager)
    graph = Differentiable(without_autocast(forward), backward, eager, facts)

    apply = _apply if captured.grad_enabled else torch.enable_grad()(_apply)  # gradients are on in a part of the graph

    def call(*inputs: Any) -> Sequence[Any]:
        made = apply(graph, *inputs)
        return made if outside is None else outside(inputs, made)

    return apart(call, captured.module, captured.inputs, set(facts.changed)) if facts.changed else call


def _run_eager(module: torch.fx.GraphModule, *inputs: Any) -> Sequence[Any]:
    return eager_form(module)(*inputs)
