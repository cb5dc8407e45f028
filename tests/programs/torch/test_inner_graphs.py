"""Programs whose graphs hold other graphs (autograd.Function, hooks, torch.cond), and use what is made in one of them
outside of it."""
# mypy: ignore-errors

from __future__ import annotations

import pytest
import torch

from ..checking import Programs, check, check_whole

WHOLE = Programs()
BROKEN = Programs()


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, factor):
        ctx.factor = factor
        return a.round() * factor

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


def counted(use, compile):
    """`use(x, n)` at four calls, with a number that varies."""

    def fn(x, n, log):
        n = n + 1
        y = use(x, n)
        log.append(n)
        return y * n

    f, log, found = compile(fn), [], []
    for n in range(4):
        x = torch.arange(6.0).view(2, 3).requires_grad_()
        found.append(f(x, n, log))
        found[-1].sum().backward()
        found.append(x.grad)
    return found, log


@WHOLE
def a_number_that_a_function_needs_first(compile):
    return counted(Scaled.apply, compile)


@WHOLE
def a_number_that_a_hook_needs_first(compile):
    def use(x, n):
        y = x * 2
        y.register_hook(lambda grad: grad * n)
        return y + 1

    return counted(use, compile)


@WHOLE
def a_number_that_a_branch_needs_first(compile):
    def use(x, n):
        return torch.cond(x.sum() > 3, lambda a: a * (n + 2), lambda a: a - n, (x,))

    return counted(use, compile)


@WHOLE
def a_size_that_a_function_needs_first(compile):
    def fn(x, log):
        y = x.relu()
        n = y.shape[0]
        z = Scaled.apply(y, n * 2)
        log.append((n, n * 2))
        return z * n

    f, log = compile(fn), []
    return [f(torch.arange(3.0 * n).view(n, 3).requires_grad_(), log) for n in (2, 3, 4)], log


@BROKEN
def a_tensor_that_a_function_keeps(compile):
    class Keeping(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            kept.append(a * 2)
            return a * 3

        @staticmethod
        def backward(ctx, grad):
            return grad

    def fn(x):
        y = x + 1
        z = Keeping.apply(y * 2)
        return z * 5, kept[-1] * 7

    kept = []
    return compile(fn)(torch.arange(3.0, requires_grad=True)), kept


@pytest.mark.parametrize("name", WHOLE)
def test_what_an_inner_graph_needs_first_is_there_outside_of_it(name: str) -> None:
    check_whole(WHOLE[name])


@pytest.mark.parametrize("name", BROKEN)
def test_what_an_inner_graph_makes_is_left_to_eager_where_it_is_needed_outside(name: str) -> None:
    check(BROKEN[name])
