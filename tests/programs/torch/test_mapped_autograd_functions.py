"""Programs that map torch.autograd.Function by vmap."""
# mypy: ignore-errors

from __future__ import annotations

import pytest
import torch

from ..checking import Programs, check

program = Programs()


class Squared(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, n):
        return x * x * n, x + n

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g, unused):
        return 2 * ctx.saved_tensors[0] * g, None


@program
def mapped_by_vmap(compile):
    def once(x):
        return torch.vmap(lambda row: Squared.apply(row, 3))(x)

    def twice(x):
        return torch.vmap(torch.vmap(lambda item: Squared.apply(item, 3)[0]), in_dims=1)(x)

    x = torch.randn(2, 3)
    return compile(once, fullgraph=True)(x), compile(twice, fullgraph=True)(x)


@program
def mapped_by_vmap_with_gradients(compile):
    def inside(x):
        return torch.vmap(lambda row: torch.func.grad(lambda y: Squared.apply(y, 2)[0].sum())(row))(x)

    def outside(x):
        return torch.vmap(lambda row: Squared.apply(row, 3)[0])(x)

    x = torch.randn(2, 3, requires_grad=True)
    out = compile(outside)(x)
    out.sum().backward()
    return out, x.grad, compile(inside)(x)


@pytest.mark.parametrize("name", program)
def test_a_program_with_autograd_functions_is_the_program(name: str) -> None:
    check(program[name])
