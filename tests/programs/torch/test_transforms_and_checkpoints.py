"""Programs with checkpoints in transforms of torch.func, and transforms in checkpoints."""
# mypy: ignore-errors

from __future__ import annotations

import pytest
import torch
from torch.func import (
    grad,
    vjp,
    vmap,
)

from ..checking import Programs, call, check

program, whole = Programs(), Programs()


@program
def transforms_in_checkpoints(compile):
    def fn(x):
        inner = grad(lambda a: (a**2).sum())
        return torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=False)

    return call(compile(fn), torch.ones(3, requires_grad=True)), call(compile(fn), torch.ones(3))


@program
def checkpoints_in_transforms(compile):
    def product(x, y):
        return vjp(lambda a: a * torch.utils.checkpoint.checkpoint(torch.cos, x, use_reentrant=False), y)[1](y)

    def batched(x, y):
        return vmap(lambda a: torch.utils.checkpoint.checkpoint(torch.cos, a, use_reentrant=False) * 2)(x)

    def in_a_block(x, y):
        with torch.autograd.graph.disable_saved_tensors_hooks("no hooks"):
            y = y * 2
            return torch.utils.checkpoint.checkpoint(torch.cos, x, use_reentrant=False) + y

    def after_a_block(x, y):
        with torch.autograd.graph.disable_saved_tensors_hooks("no hooks"):
            y = y * 2
        return torch.utils.checkpoint.checkpoint(torch.cos, x, use_reentrant=False) + y

    functions = product, batched, in_a_block, after_a_block
    return [call(compile(f), torch.arange(3.0), torch.ones(3)) for f in functions]


@program
def transforms_after_a_failed_checkpoint(compile):
    """The hooks of a checkpoint are on until its frame dies, with the exception that left it."""

    def failing(a):
        print("failing")
        raise KeyError

    def fn(x):
        y = x + 1
        try:
            torch.utils.checkpoint.checkpoint(failing, x, use_reentrant=False)
        except KeyError:
            y = y * 2
        return vmap(grad(lambda a: a.sin().sum()))(y)

    return call(compile(fn), torch.ones(2, 3, requires_grad=True))


@pytest.mark.parametrize("name", program)
def test_a_program_with_transforms_is_the_program(name: str) -> None:
    check(program[name])
