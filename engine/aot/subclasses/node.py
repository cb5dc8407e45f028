"""A captured graph with wrapper subclasses whose results need gradients: one autograd node, which sees the wrappers."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._C import _functorch

from .inputs import taken
from .layout import Layout, take_apart
from .results import Made, Number, fill_in, put_together
from .trace import PlainHalves

Compiled = Callable[..., Sequence[Any]]
_CHANGED = "one of the variables needed for gradient computation has been modified by an inplace operation"


@dataclass(frozen=True)
class Trained:
    """The halves of a graph, compiled, and the captured graph in eager. `tracked` says which of the results that the
    forward makes have gradients."""

    halves: PlainHalves
    forward: Compiled
    backward: Compiled
    in_eager: Compiled
    made: tuple[Made | Number, ...]
    tracked: tuple[bool, ...]


def training_call(halves: PlainHalves, forward: Compiled, backward: Compiled, in_eager: Compiled) -> Compiled:
    """The callable for the captured graph; `in_eager` runs it as it is."""
    results = halves.forward.results
    made = [(k, result) for k, result in enumerate(results) if isinstance(result, (Made, Number))]
    tracked = tuple([k in halves.tangents for k, _ in made])
    trained = Trained(halves, forward, backward, in_eager, tuple([result for _, result in made]), tracked)

    def call(*inputs: Any) -> Sequence[Any]:
        with torch.enable_grad():
            values: Any = WrapperNode.apply(trained, *inputs)
        return fill_in(results, inputs, values)

    return call


class WrapperNode(torch.autograd.Function):
    """The node. Its results are those that the graph makes."""

    @staticmethod
    def forward(ctx: Any, trained: Trained, *inputs: Any) -> Sequence[Any]:
        """Run the compiled forward; keep what the backward reads."""
        ctx.set_materialize_grads(False)
        values = trained.forward(*taken(inputs, trained.halves.forward.takes))
        made = put_together(trained.made, (), values)
        ctx.trained, ctx.inputs, ctx.versions = trained, inputs, tuple(map(_version, inputs))
        ctx.save_for_backward(*values[len(values) - trained.halves.saved :])
        constant = [value for value, tracked in zip(made, trained.tracked) if not tracked]
        ctx.mark_non_differentiable(*[value for value in constant if isinstance(value, torch.Tensor)])
        return made

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Sequence[Any]:
        """The gradients of the inputs, from compiled code; in eager where gradients from outside are not like those
        that it was traced for, or must be differentiable themselves."""
        trained: Trained = ctx.trained
        halves = trained.halves
        found: list[Any] = [None] * len(ctx.needs_input_grad)
        given = [tangent for tangent, tracked in zip(tangents, trained.tracked) if tracked]
        saved = ctx.saved_tensors
        if all(tangent is None for tangent in given):
            return tuple(found)
        if any(_version(ctx.inputs[i]) != ctx.versions[i] for i in halves.read):
            raise RuntimeError(_CHANGED)
        parts = None if torch.is_grad_enabled() else _parts_of(given, halves)
        if parts is None:
            gradients = _in_eager(ctx, given)
        else:
            with torch._C._DisableAutocast():
                gradients = put_together(halves.gradients, (), trained.backward(*saved, *parts))
        for i, gradient in zip(halves.wanted, gradients):
            found[i + 1] = gradient
        if halves.saved and not torch._C._autograd._get_current_graph_task_keep_graph():
            ctx.inputs = ()  # what was saved is freed now, and a second backward raises
        return tuple(found)


def _version(value: Any) -> int:
    return value._version if isinstance(value, torch.Tensor) else 0


def _parts_of(tangents: Sequence[Any], halves: PlainHalves) -> list[Any] | None:
    """The plain tensors that gradients from outside are made of; None where they are others than were traced for."""
    parts: list[Any] = []
    for tangent, expected in zip(tangents, halves.layouts):
        if tangent is None or _functorch.is_batchedtensor(tangent) or _functorch.is_legacy_batchedtensor(tangent):
            return None
        layout = Layout.of(tangent)
        if layout is None and tangent.layout is not torch.strided:
            return None
        tangent = tangent.contiguous()
        layout = Layout.of(tangent)
        if (expected is None) != (layout is None) or (expected is not None and not expected.is_like(layout)):
            return None
        take_apart(tangent, parts)
    likes = halves.backward.inputs[halves.saved :]
    if len(likes) != len(parts) or not all(map(_is_like, parts, likes)):
        return None
    return list(map(_laid_out, parts, likes))


def _is_like(part: torch.Tensor, like: torch.Tensor) -> bool:
    if part.dtype != like.dtype or part.dim() != like.dim():
        return False
    return all(n == m for n, m in zip(part.shape, like.shape) if type(m) is int)


def _laid_out(part: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    if part.is_conj() or part.is_neg():
        part = part.resolve_conj().resolve_neg()
    if any(type(n) is not int for n in like.stride()):
        return part.contiguous()
    if part.stride() == like.stride():
        return part
    made = torch.empty_strided(part.shape, like.stride(), dtype=like.dtype, device=like.device)
    return made.copy_(part)


def _in_eager(ctx: Any, tangents: Sequence[Any]) -> Sequence[Any]:
    """The gradients of the inputs that want one, by running the captured graph again. They can be differentiated where
    gradients are on."""
    trained: Trained = ctx.trained
    if tuple(map(_version, ctx.inputs)) != ctx.versions:
        raise RuntimeError(_CHANGED)
    history = torch.is_grad_enabled()
    inputs = ctx.inputs if history else tuple(map(_as_leaf, ctx.inputs))
    with torch.enable_grad():
        returned = trained.in_eager(*inputs)
        pairs = [(returned[k], t) for k, t in zip(trained.halves.tangents, tangents) if t is not None]
        leaves = [inputs[i] for i in trained.halves.wanted]
        roots, given = zip(*pairs)
        return torch.autograd.grad(roots, leaves, given, allow_unused=True, create_graph=history)


def _as_leaf(value: Any) -> Any:
    return value.detach().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value
