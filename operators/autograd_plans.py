"""What a node of a graph calls for a traced torch.autograd.Function: a Function made of two graphs.

Nothing here refers to the trace: a recorded graph can be run again with it.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.autograd.function import once_differentiable
from torch.fx._lazy_graph_module import _LazyGraphModule

from ..artifacts.fx_graphs import PLAN


@dataclass(frozen=True)
class FunctionPlan:
    """A Function as two graphs. `forward` takes the tensors and returns (results, what the backward needs); `backward`
    takes the gradients of the results, then what it needs. These gradients are passed as they are, or, where the
    backward relies on their layout, with the `strides` of the trace (None: contiguous). The first `gradients` tensors
    get gradients; `fixed` and `dirty` are positions among the results. `once`: gradients are not differentiable. Where
    no gradient arrives, the backward runs on zeros if they are `materialized`; else there are no gradients."""

    name: str
    forward: torch.fx.GraphModule
    backward: torch.fx.GraphModule
    gradients: int
    strides: tuple[tuple[int, ...] | None, ...] | None
    fixed: tuple[int, ...]
    dirty: tuple[int, ...]
    once: bool
    materialized: bool = True

    def function(self) -> Callable[..., tuple[torch.Tensor, ...]]:
        """What a node of a graph calls."""

        def forward(ctx: Any, *tensors: Any) -> tuple[torch.Tensor, ...]:
            results, saved = _run(self.forward, tensors)
            ctx.set_materialize_grads(self.materialized)
            ctx.inputs = len(tensors)
            ctx.numbers = [None if isinstance(value, torch.Tensor) else value for value in saved]
            ctx.save_for_backward(*[value if isinstance(value, torch.Tensor) else None for value in saved])
            ctx.mark_non_differentiable(*[results[i] for i in self.fixed])
            ctx.mark_dirty(*[results[i] for i in self.dirty])
            return results

        def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
            if gradients[0] is None:  # the only result
                return (None,) * ctx.inputs
            saved = ctx.numbers
            if any(n is None for n in saved):  # what has saved nothing can run again, as in eager
                saved = [n if t is None else t for t, n in zip(ctx.saved_tensors, ctx.numbers)]
            if self.strides is not None:
                gradients = tuple(map(_as_traced, gradients, self.strides))
            found = _run(self.backward, (*gradients, *saved))
            return (*found, *[None] * (ctx.inputs - self.gradients))

        last: Any = once_differentiable(backward) if self.once else backward
        members = {"forward": staticmethod(forward), "backward": staticmethod(last)}
        function: Any = type(self.name, (torch.autograd.Function,), members)

        def apply(*tensors: Any) -> tuple[torch.Tensor, ...]:
            return function.apply(*tensors)

        apply.__name__ = apply.__qualname__ = self.name
        setattr(apply, PLAN, self)
        return apply


def _run(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
    """The graph as a function: a GraphModule would run the user's global module hooks."""
    _LazyGraphModule.force_recompile(graph)
    return graph.forward(*inputs)


def _as_traced(gradient: torch.Tensor, stride: tuple[int, ...] | None) -> torch.Tensor:
    """The gradient in the layout that the trace assumed: autograd may pass an expanded one."""
    if stride is None:
        return gradient.contiguous()
    if gradient.stride() == stride:
        return gradient
    return torch.empty_strided(gradient.shape, stride, dtype=gradient.dtype, device=gradient.device).copy_(gradient)
