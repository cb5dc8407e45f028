"""Several autograd nodes instead of one, where the difference is observable: one for each result, one for each leaf,
and one for the other inputs that the same results lead to.

Autograd runs what is behind each edge of a node that it has run, with None where no gradient flows: hooks are called,
and a graph that another backward has freed raises. In eager a result has no edge to an input that it does not depend
on. Nor do the gradients of all inputs arrive at once there, but one after the other, which hooks may observe. So the
node that holds the saved tensors stays outside of the user's graph, and these nodes call it.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import Any

import torch

from .function import AutogradMetadata, Differentiable, free, gradients

_task: Callable[[], int] = torch._C._current_graph_task_id


@dataclass
class _Pass:
    """What arrived in one backward of the program's: the tangents, and the gradients once they are computed, without
    those that autograd has."""

    tangents: list[Any]
    found: list[Any] | None = None


@dataclass
class _Joined:
    """What the nodes of one call share: the `node` that has saved tensors (`anchor` keeps it alive), and the backwards
    that are running, by the number of autograd's task. In each, the nodes of results run before those of inputs,
    which are older; where they do not (other threads), gradients are computed once more."""

    node: Any = None
    anchor: Any = None
    passes: dict[int, _Pass] = field(default_factory=dict)

    def receive(self, number: int, tangent: Any) -> None:
        """A tangent has arrived."""
        task = _task()
        current = self.passes.get(task)
        if current is None:
            current = self.passes[task] = _Pass([None] * len(self.node.graph.facts.tangents))
            _at_the_end(lambda: self.passes.pop(task, None))
        current.tangents[number] = tangent
        current.found = None

    def take(self, positions: tuple[int, ...]) -> Sequence[Any]:
        """The gradients of these arguments of the node, from what has arrived. Nothing else holds them then: autograd
        need not copy them."""
        current = self.passes[_task()]
        if current.found is None:
            current.found = [*gradients(self.node, current.tangents, _free_at_the_end)]
        found = [current.found[i] for i in positions]
        for i in positions:
            current.found[i] = None
        return found


def _at_the_end(function: Callable[[], Any]) -> None:
    """Call `function` when the backward that is running has ended."""
    torch.autograd.Variable._execution_engine.queue_callback(function)


def _free_at_the_end(ctx: Any, facts: AutogradMetadata, missing: frozenset[int], saved: Sequence[torch.Tensor]) -> None:
    """`free`: at once where no other tangent can arrive."""
    if not missing:
        free(ctx, facts, missing, saved)
        return
    kept = tuple(saved)
    _at_the_end(lambda: free(ctx, facts, missing, kept))


class _Inputs(torch.autograd.Function):
    """The node before the inputs that the same results lead to."""

    @staticmethod
    def forward(ctx: Any, joined: _Joined, positions: tuple[int, ...], *inputs: torch.Tensor) -> torch.Tensor:
        """A tensor that represents them in autograd's graph."""
        ctx.set_materialize_grads(False)
        ctx.joined, ctx.positions = joined, positions
        return inputs[0].new_empty(0)

    @staticmethod
    def backward(ctx: Any, _: Any) -> Sequence[Any]:
        """Their gradients."""
        return (None, None, *ctx.joined.take(ctx.positions))


class _Result(torch.autograd.Function):
    """The node of a result."""

    @staticmethod
    def forward(ctx: Any, joined: _Joined, number: int, value: tuple[torch.Tensor], *inputs: torch.Tensor) -> Any:
        """The result, as a function of the tensor that represents its inputs."""
        ctx.set_materialize_grads(False)
        ctx.joined, ctx.number = joined, number
        return value[0]

    @staticmethod
    def backward(ctx: Any, tangent: Any) -> Sequence[Any]:
        """None: the node of the inputs has their gradients."""
        ctx.joined.receive(ctx.number, tangent)
        return (None,) * len(ctx.needs_input_grad)


_of_inputs = super(torch.autograd.Function, _Inputs).apply  # without the checks for functorch's transforms
_of_a_result = super(torch.autograd.Function, _Result).apply


_hooks, _later_hooks, _is_leaf = map(attrgetter, ("_backward_hooks", "_post_accumulate_grad_hooks", "is_leaf"))


def with_own_edges(apply: Callable[..., Any], facts: AutogradMetadata) -> Callable[..., Any]:
    """`apply` (of CompiledGraph), with nodes like these where it makes a difference: where hooks of inputs see which
    gradients are there, or there is something behind an input that not all results lead to."""
    places = [i for i, tangents in enumerate(facts.reached) if tangents]
    everything = frozenset(range(len(facts.tangents)))
    partial = [i - 1 for i in places if facts.reached[i] != everything]
    if len(places) < 2:
        return apply
    differentiable = itemgetter(*[i - 1 for i in places])

    def applied(graph: Differentiable, *inputs: Any) -> Sequence[Any]:
        made: Sequence[Any] = apply(graph, *inputs)
        given = differentiable(inputs)
        hooked = any(map(_hooks, given)) or any(map(_later_hooks, given))
        if hooked or not all(map(_is_leaf, [inputs[i] for i in partial])):
            return _joined(facts, inputs, made)
        return made

    return applied


def _joined(facts: AutogradMetadata, inputs: tuple[Any, ...], made: Sequence[Any]) -> Sequence[Any]:
    """The results `made` by a CompiledGraph, with nodes of their own."""
    first = made[facts.tangents[0]]
    with torch.enable_grad():
        joined = _Joined(first.grad_fn, first.view_as(first).grad_fn)
        stand_ins = [
            (tangents, _of_inputs(joined, tuple(places), *[inputs[i - 1] for i in places]))
            for tangents, places in _groups(facts, inputs)
        ]
        results = list(made)
        for number, position in enumerate(facts.tangents):
            own = [stand_in for tangents, stand_in in stand_ins if number in tangents]
            if own:
                results[position] = _of_a_result(joined, number, (made[position].detach(),), *own)
    return tuple(results)


def _groups(facts: AutogradMetadata, inputs: tuple[Any, ...]) -> list[tuple[frozenset[int], list[int]]]:
    """Arguments of the node that get a node in common, with the tangents that lead there. A leaf has its own: of nodes
    that are ready, autograd runs the one made last, and after it at once what accumulates the gradient. So the gradient
    that is the first in eager is the last here."""
    own = {i + 1: (facts.reached[i + 1], [i + 1]) for i in reversed(facts.order) if inputs[i].is_leaf}
    others: dict[frozenset[int], list[int]] = {}
    for i, tangents in enumerate(facts.reached):
        if tangents and i not in own:
            others.setdefault(tangents, []).append(i)
    return [*others.items(), *own.values()]
