"""Functions of ptdebug's own that a node of a captured graph may call. A recorded graph calls them again (`replay/`).

A graph holds operators and functions of torch; and these, where no function of torch does what the program asked for.
"""
from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch._C import _functorch
from torch._functorch import eager_transforms
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode


# ---- modes
class _Entered(threading.local):
    """What holds the inference modes that a thread's traces and graphs have entered, innermost last; and how many
    levels of torch.func there were then. One that an engine leaves open where it gives a graph back is kept: around it
    the engine has set all of this itself, and its end would set again what dispatch modes were on at its start."""

    def __init__(self) -> None:
        self.modes: list[tuple[Any, int]] = []


INFERENCE_MODES = _Entered()


def enter_inference_mode(enabled: bool) -> Any:
    """Enter an inference mode (or, where `enabled` is False, the ordinary one); what holds it."""
    held = _enter_inference_mode(enabled)
    INFERENCE_MODES.modes.append((held, _functorch.get_dynamic_layer_stack_depth()))
    return held


def exit_inference_mode(held: Any) -> None:
    """Leave the innermost."""
    INFERENCE_MODES.modes.pop()
    _exit_inference_mode(held)


def exchange_grad_mode(enabled: bool) -> bool:
    """Set the grad mode; what it was before."""
    before = torch.is_grad_enabled()
    torch._C._set_grad_enabled(enabled)
    return before


def set_deterministic(state: tuple[bool, bool]) -> None:
    """(whether deterministic algorithms are on, whether they only warn)."""
    torch._C._set_deterministic_algorithms(state[0], warn_only=state[1])


# ---- gradients
def differentiate(
    outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], grad_outputs: Any, retain_graph: bool,
    create_graph: bool, allow_unused: bool,
) -> tuple[torch.Tensor | None, ...]:
    """torch.autograd.grad on tuples, outside of any inference mode where torch's own transforms do so."""
    with _OUTSIDE_INFERENCE():
        return torch.autograd.grad(
            outputs, inputs, grad_outputs, retain_graph=retain_graph, create_graph=create_graph,
            allow_unused=allow_unused,
        )  # fmt: skip


_OUTSIDE_INFERENCE = getattr(eager_transforms, "_disable_inference_mode", nullcontext)  # torch 2.13


# ---- indexing by a tensor that holds one number
class _Row(torch.autograd.Function):
    """Copies a row. The gradient is stored into zeros, as a view's is: added to these, -0.0 would be 0.0."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, position: torch.Tensor, dim: int) -> torch.Tensor:
        ctx.shape, ctx.dim = x.shape, dim
        ctx.save_for_backward(position.clone())  # eager keeps a number, which no write changes
        return _copied(x, position, dim)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (position,), (gradient,) = ctx.saved_tensors, gradients
        zeros = gradient.new_zeros(ctx.shape)
        return torch.ops.aten.index_put(zeros, [*[None] * ctx.dim, position], gradient), None, None


def chosen_row(x: torch.Tensor, position: torch.Tensor, dim: int) -> torch.Tensor:
    """A copy of what lies at `position` in a dimension. As in eager, a negative number counts from the end."""
    if not x.requires_grad or not torch.is_grad_enabled():
        return _copied(x, position, dim)
    row: torch.Tensor = _Row.apply(x, position, dim)
    return row


def _copied(x: torch.Tensor, position: torch.Tensor, dim: int) -> torch.Tensor:
    row: torch.Tensor = torch.ops.aten.index.Tensor(x, [*[None] * dim, position])
    strides = without_dimension(x.stride(), dim)
    return row if row.stride() == strides else x.new_empty_strided(row.shape, strides).copy_(row)


def without_dimension(numbers: Sequence[int], dim: int) -> tuple[int, ...]:
    """Sizes or strides without those of one dimension."""
    return (*numbers[:dim], *numbers[dim + 1 :])
