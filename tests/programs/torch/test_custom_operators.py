"""Programs with operators of their own: by `custom_op` or a library, with and without fake kernels and gradients."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import ptdebug
import pytest
import torch

from ..checking import Programs, check

program = Programs()


LIBRARY = torch.library.Library("ptdebug_programs", "DEF")
LIBRARY.define("shift(Tensor x, float by) -> Tensor")
LIBRARY.impl("shift", lambda x, by: x + by, "CompositeExplicitAutograd")
torch.library.register_fake("ptdebug_programs::shift", lambda x, by: torch.empty_like(x), lib=LIBRARY)
LIBRARY.define("no_fake(Tensor x) -> Tensor")
LIBRARY.impl("no_fake", lambda x: x * 2, "CPU")


@torch.library.custom_op("ptdebug_programs::scaled", mutates_args=())
def scaled(x: torch.Tensor, k: float = 2.0) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy() * np.float32(k))


@scaled.register_fake
def _(x, k=2.0):
    return torch.empty_like(x)


scaled.register_autograd(
    lambda ctx, grad: (grad * 11 * ctx.k, None), setup_context=lambda ctx, inputs, output: setattr(ctx, "k", inputs[1])
)


@torch.library.custom_op("ptdebug_programs::rounded_product", mutates_args=())
def rounded_product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x @ weight.to(x.dtype)


@rounded_product.register_fake
def _(x, weight):
    return x @ weight  # which says the shape, of tensors that eager never multiplies


@program
def fake_kernels_that_call_what_the_operator_does_not(compile):
    with torch.no_grad():
        return compile(rounded_product, fullgraph=True)(torch.randn(3, 4).bfloat16(), torch.randn(4, 2))


@torch.library.custom_op("ptdebug_programs::fill", mutates_args=("out",))
def fill(out: torch.Tensor, value: float) -> None:
    out.fill_(value)


@program
def custom_operators(compile):
    def f(x):
        a = torch.ops.ptdebug_programs.shift(x.detach(), 1.5)
        b = scaled(x, 3.0) + scaled(x)
        fill(a, 4.0)
        with torch.no_grad():  # it has no rule for its gradient
            c = torch.ops.ptdebug_programs.shift.default(x, by=0.5)
        return a, b, c

    f = compile(f, fullgraph=True)
    x = torch.ones(3, requires_grad=True)
    out = f(x)
    out[1].sum().backward()
    return out, x.grad


@torch.library.custom_op("ptdebug_programs::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    if not (x > 0).all():
        raise ValueError("not positive")
    return x.clone()


@positive.register_fake
def _(x):
    return torch.empty_like(x)


@program
def an_operators_error_that_is_caught(compile):
    def f(x):
        try:
            return positive(x + 1) * 2
        except ValueError as error:
            return str(error)

    f = compile(f)
    return f(torch.ones(2)), f(-torch.ones(2)), f(torch.ones(2))


@program
def operator_without_a_fake(compile):
    return compile(lambda x: torch.ops.ptdebug_programs.no_fake(x + 1) * 3)(torch.ones(3))


@pytest.mark.parametrize("name", program)
def test_a_program_with_custom_operators(name: str) -> None:
    check(program[name])


def test_the_node_of_a_registered_gradient_has_eagers_name() -> None:
    x = torch.ones(2, requires_grad=True)
    captured = ptdebug.compile(lambda x: scaled(x, 3.0), backend="eager")
    assert captured(x).grad_fn.name() == scaled(x, 3.0).grad_fn.name()
