"""The compiled graph as the program's autograd sees it: one node, whose forward and backward are compiled.

What the node saves goes through `save_for_backward`, so that changing a saved tensor, saved-tensor hooks (offloading,
checkpoints around it), `retain_graph` and a second backward behave as in eager. Views of inputs and new values of
inputs that autograd tracks are made outside of the node, where autograd records them.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..aten import Captured
from ..entry import Compiled, apart, eager_form
from .graphs import Partitioned


@dataclass(frozen=True)
class Differentiable:
    """What the autograd node needs to know of its graph.

    `forward(*inputs)` returns `results` values for the program, then tensors, then sizes to save. `backward(values)`
    takes a list of the saved tensors and sizes and of the tangents, which it empties, and returns the gradients of the
    inputs at the positions `gradients`. `tangents` are the positions of the results that have one; `constant` those
    that autograd does not track. `again(*inputs)` is the captured graph for eager.
    """

    forward: Callable[..., tuple[Any, ...]]
    backward: Callable[[list[Any]], tuple[Any, ...]]
    again: Callable[..., Sequence[Any]]
    results: int
    saved_tensors: int
    tangents: tuple[int, ...]
    constant: tuple[int, ...]
    gradients: tuple[int, ...]
    inputs: int


class CompiledGraph(torch.autograd.Function):
    """The node. Its first argument is the `Differentiable`, then come the graph's inputs."""

    @staticmethod
    def forward(ctx: Any, graph: Differentiable, *inputs: Any) -> tuple[Any, ...]:  # type: ignore[override]
        """Run the compiled forward, keep what the backward reads."""
        values = graph.forward(*inputs)
        count = graph.results
        ctx.graph = graph
        ctx.inputs = inputs
        last = count + graph.saved_tensors
        ctx.save_for_backward(*values[count:last])
        ctx.sizes = values[last:]
        ctx.set_materialize_grads(False)
        results = values[:count]
        if graph.constant:
            ctx.mark_non_differentiable(*[results[i] for i in graph.constant])
        return results

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> tuple[Any, ...]:  # type: ignore[override]
        """The gradients of the inputs, from compiled code; in eager where they must be differentiable themselves."""
        graph: Differentiable = ctx.graph
        gradients: list[Any] = [None] * (graph.inputs + 1)
        values = [*ctx.saved_tensors, *ctx.sizes, *[tangents[i] for i in graph.tangents]]
        found = graph.backward(values)
        for i, gradient in zip(graph.gradients, found):
            gradients[i + 1] = gradient
        return tuple(gradients)


_apply = super(torch.autograd.Function, CompiledGraph).apply  # without the checks for functorch's transforms


def training_entry(
    captured: Captured, halves: Partitioned, forward: Compiled, backward: Compiled, outside: Compiled | None
) -> Compiled:
    """The callable that stands for the captured graph: takes its inputs, returns its results, which require grad."""
    joint = halves.joint
    inside = len(joint.forward.mutations)
    results = joint.forward_outputs - inside
    tangents = tuple(k - inside for k in joint.tangents)
    graph = Differentiable(
        forward, backward, eager_form(captured.module), results, sum(s.kind != "size" for s in halves.saved), tangents,
        tuple(i for i in range(results) if i not in tangents), joint.gradients, len(joint.forward.inputs),
    )

    def call(*inputs: Any) -> Sequence[Any]:
        made = _apply(graph, *inputs)
        return made if outside is None else outside(inputs, made)

    written = set(joint.forward.mutations.values()) | set(joint.assigned.values())
    return apart(call, captured.module, joint.forward.inputs, written) if written else call
