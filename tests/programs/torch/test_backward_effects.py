"""Backwards and hooks that change what the program has: main gradients, statistics of gradients, saved tensors."""
# mypy: ignore-errors

from __future__ import annotations

import pytest
import torch

from ..checking import Programs, check, check_engine

program = Programs()
TOTAL = torch.zeros(4)
FACTOR = 1
SEEN = []


def function(change):
    """A Function with a parameter whose backward calls `change(ctx, gradient)`."""

    class Weighted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.weight = weight
            ctx.twice = x * 2
            ctx.save_for_backward(x)
            return ctx.twice * weight.sum()

        @staticmethod
        def backward(ctx, gradient):
            change(ctx, gradient)
            return gradient * 2 * ctx.weight.sum(), None

    return Weighted


def write_saved(ctx, gradient):
    ctx.saved_tensors[0].detach().mul_(gradient.abs().sum())


def write_under_grad(ctx, gradient):
    with torch.enable_grad():
        ctx.weight.main_grad.add_(gradient.detach())


CHANGES = {
    "add": lambda ctx, g: ctx.weight.main_grad.add_(g),
    "data": lambda ctx, g: ctx.weight.main_grad.data.add_(g),
    "detach": lambda ctx, g: ctx.weight.main_grad.detach().add_(g),
    "a row": lambda ctx, g: ctx.weight.history[0].copy_(g),
    "setitem": lambda ctx, g: ctx.weight.history.__setitem__(1, g),
    "a list": lambda ctx, g: torch._foreach_add_([ctx.weight.main_grad], [g]),
    "out": lambda ctx, g: torch.add(ctx.weight.main_grad, g, out=ctx.weight.main_grad),
    "a global": lambda ctx, g: TOTAL.add_(g),
    "an attribute": lambda ctx, g: setattr(ctx.weight, "main_grad", ctx.weight.main_grad + g),
    "grad": lambda ctx, g: setattr(ctx.weight, "grad", g[:3].clone()),
    "what the forward made": lambda ctx, g: ctx.twice.mul_(2),
    "NumPy": lambda ctx, g: ctx.weight.main_grad.numpy().__setitem__(slice(None), g.numpy()),
    "saved": write_saved,
    "under enable_grad": write_under_grad,
}


def trained(compile, apply):
    weight, x = torch.ones(3), torch.arange(4.0, requires_grad=True)
    weight.main_grad, weight.history = torch.zeros(4), torch.ones(2, 4)
    TOTAL.zero_()
    step = compile(lambda x, weight: apply(x, weight).sin().sum())
    for _ in range(2):
        step(x, weight).backward()
    return weight.main_grad, weight.history, weight.grad, x, x.grad, TOTAL.clone()


for _name, _change in CHANGES.items():
    program[f"backward: {_name}"] = lambda compile, change=_change: trained(compile, function(change).apply)


@program
def backwards_of_registered_operators(compile):
    SEEN.clear()
    return [trained(compile, operator) for operator in (added, counted, global_total, scaled_by_a_global)], list(SEEN)


def registered(name, backward):
    """An operator of the program whose backward is `backward(ctx, gradient)`."""

    @torch.library.custom_op(f"ptdebug_backward_effects::{name}", mutates_args=())
    def operator(x: torch.Tensor, weight: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
        return x * factor

    def keep(ctx, inputs, output):
        ctx.weight, ctx.factor = inputs[1], inputs[2]

    operator.register_fake(lambda x, weight, factor=2.0: torch.empty_like(x))
    operator.register_autograd(
        lambda ctx, gradient: (backward(ctx, gradient) * ctx.factor, None, None), setup_context=keep
    )
    return operator


added = registered("added", lambda ctx, g: (ctx.weight.main_grad.add_(g), g)[1])
counted = registered("counted", lambda ctx, g: (SEEN.append(1), g)[1])
global_total = registered("global_total", lambda ctx, g: (TOTAL.add_(g), g)[1])
scaled_by_a_global = registered("scaled_by_a_global", lambda ctx, g: g * FACTOR * (1 + TOTAL.sum()))


@program
def a_registered_backward_that_reads_what_changes(compile):
    global FACTOR
    x, weight, seen = torch.arange(4.0, requires_grad=True), torch.zeros(4), []
    step = compile(lambda x, weight: scaled_by_a_global(x, weight, 3.0).sin().sum())
    TOTAL.zero_()
    for FACTOR in (1, 2):  # noqa: B007
        step(x, weight).backward()
        seen.append(x.grad.clone())
        TOTAL.fill_(0.5)
    return seen


HOOKS = {
    "add": lambda g, kept: (kept["total"].add_(g), None)[1],
    "data": lambda g, kept: (kept["total"].data.add_(g), None)[1],
    "gives what it wrote": lambda g, kept: kept["total"].add_(g),
    "and changes the gradient": lambda g, kept: (kept["total"].copy_(g.abs()), g * 2)[1],
    "item": lambda g, kept: kept.__setitem__("total", g.norm()),
}


def hooked(compile, hook):
    linear, kept = torch.nn.Linear(4, 4), {"total": torch.zeros(4)}

    def forward(x):
        y = linear(x).sin()
        y.register_hook(lambda g: hook(g, kept))
        return (y * y).sum()

    x, step = torch.arange(4.0, requires_grad=True), compile(forward)
    for _ in range(2):
        step(x).backward()
    return kept, x.grad, linear.weight.grad


for _name, _hook in HOOKS.items():
    program[f"hook: {_name}"] = lambda compile, hook=_hook: hooked(compile, hook)


@program
def statistics_of_gradients_in_hooks_of_modules(compile):
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    net.register_buffer("largest", torch.zeros(()))

    def note(gradient):
        net.largest.copy_(torch.maximum(net.largest, gradient.abs().max()))

    net[0].register_forward_hook(lambda module, args, out: (out.register_hook(note), None)[1])
    net[2].register_full_backward_hook(lambda module, given, arrived: note(arrived[0] * 3))
    x, step = torch.arange(4.0, requires_grad=True), compile(lambda x: net(x).sum())
    for _ in range(2):
        step(x).backward()
    return net.largest, x.grad, [p.grad for p in net.parameters()]


@pytest.mark.parametrize("name", program)
def test_what_a_backward_changes_is_what_eager_changes(name: str) -> None:
    torch.manual_seed(0)
    check(program[name])


@pytest.mark.parametrize("name", ["backwards_of_registered_operators", "backward: add", "hook: add"])
def test_the_engine_changes_the_same(name: str) -> None:
    torch.manual_seed(0)
    check_engine(program[name])
