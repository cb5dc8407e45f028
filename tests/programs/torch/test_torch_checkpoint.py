"""Programs about torch.utils.checkpoint: reentrant or not, with and without random numbers, with contexts."""
# mypy: ignore-errors

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from ..checking import Programs, call, check

program = Programs()


@program
def checkpoint_that_counts(compile):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.norm, self.calls = nn.Linear(4, 4), nn.BatchNorm1d(4), 0

        def forward(self, x):
            self.calls += 1
            return self.norm(self.lin(x))

    m, norm = Counting(), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    f = compile(lambda x: checkpoint(m, x, use_reentrant=False) + checkpoint(norm, x, use_reentrant=False))
    x = torch.randn(3, 4, requires_grad=True)
    for _ in range(2):
        f(x).sum().backward()
    return x.grad, m, norm


@program
def checkpoint_with_frozen_input(compile):
    import warnings

    m = nn.Linear(4, 4)
    f = compile(lambda x: checkpoint(m, x, use_reentrant=True) * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out = f(torch.ones(2, 4))
    return out, out.requires_grad


class Block(nn.Module):
    """Linear, dropout, GELU."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)

    def forward(self, x, scale=1.0):
        return F.gelu(self.drop(self.lin(x))) * scale


def _checkpointed(compile, reentrant, **options):
    m = Block()

    def f(x):
        return checkpoint(m, x, 2.0, use_reentrant=reentrant, **options) + x

    f = compile(f, fullgraph=True)
    x = torch.randn(2, 4, requires_grad=True)
    out = f(x)
    out.sum().backward()
    m.eval()
    with torch.no_grad():
        quiet = f(x)
    return out, x.grad, m.lin.weight.grad, quiet


@program
def checkpoint_reentrant(compile):
    return _checkpointed(compile, True)


@program
def checkpoint_non_reentrant(compile):
    return _checkpointed(compile, False)


@program
def checkpoint_without_rng(compile):
    m = nn.Linear(4, 4)
    x = torch.randn(2, 4, requires_grad=True)
    f = compile(lambda x: checkpoint(lambda y: m(y).tanh(), x, use_reentrant=False, preserve_rng_state=False,
                                     determinism_check="none"), fullgraph=True)  # fmt: skip
    f(x).sum().backward()
    return x.grad, m.weight.grad


@program
def checkpoint_sequence(compile):
    m = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Tanh())
    f = compile(lambda x: checkpoint_sequential(m, 2, x, use_reentrant=False), fullgraph=True)
    x = torch.randn(2, 4, requires_grad=True)
    f(x).sum().backward()
    return x.grad, m[0].weight.grad


@program
def checkpoint_with_contexts(compile):
    import contextlib

    m = nn.Linear(4, 4)
    entered = []

    @contextlib.contextmanager
    def noted(name):
        entered.append(name)
        yield

    def f(x):
        return checkpoint(m, x, use_reentrant=False, context_fn=lambda: (noted("forward"), noted("again")))

    x = torch.randn(2, 4, requires_grad=True)
    compile(f)(x).sum().backward()
    return x.grad, entered


@program
def checkpoints_of_inference_tensors(compile):
    """torch 2.11 refuses them; later ones need not."""
    def f(x):
        with torch.inference_mode(), torch.enable_grad():
            return checkpoint(torch.sin, x.clone().requires_grad_(), use_reentrant=False)

    def g(x):
        return checkpoint(torch.sin, x, use_reentrant=False)

    with torch.inference_mode():
        x = torch.ones(3)
    return call(compile(f), torch.ones(3)), call(compile(g), x)


class AsksForNeeds(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * (2.0 if ctx.needs_input_grad[0] else 3.0)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def hooked(x):
    y = x * 2
    y.register_hook(lambda grad: grad * 3)
    return y * 2


@program
def what_autograd_knows_in_a_reentrant_checkpoint(compile):
    """It runs without gradients, and again with them in the backward."""
    regions = [
        lambda x: x * (2 if torch.is_grad_enabled() else 3), lambda x: x * (2 if (x * 2).requires_grad else 3),
        lambda x: x * (2 if (x * 2).is_leaf else 3), lambda x: x * (2 if (x * 2).grad_fn is None else 3),
        hooked, AsksForNeeds.apply,
    ]  # fmt: skip
    return [_through_reentrant(compile, region) for region in regions]


@program
def what_a_reentrant_checkpoint_returns(compile):
    regions = [
        lambda x: x.detach() * 2, lambda x: (x * 2, torch.ones(3)), lambda x: (x * 2, torch.ones(3).long(), None, 3),
        lambda x: [x * 2, x + 1], lambda x: {"twice": x * 2}, lambda x: (x, x * 2), lambda x: x.view(-1),
        lambda x: (x * 2, [x * 3]), lambda x: (x * 2).split(1), lambda x: [x.sin()] * 2,
    ]  # fmt: skip
    return [_through_reentrant(compile, region) for region in regions]


def _through_reentrant(compile, region):
    x = torch.arange(6.0).view(2, 3).requires_grad_()
    out = call(compile(lambda x: checkpoint(region, x, use_reentrant=True)), x)
    parts = out.values() if isinstance(out, dict) else out if isinstance(out, (tuple, list)) else [out]
    recorded = [part for part in parts if isinstance(part, torch.Tensor) and part.requires_grad]
    return out, call(lambda: sum(part.sum() for part in recorded).backward()) if recorded else None, x.grad


@program
def gradients_through_a_reentrant_checkpoint(compile):
    """torch.autograd.grad raises there, and gives those that do not go through it."""
    def direct(w):
        y = checkpoint(torch.sin, w, use_reentrant=True)
        return torch.autograd.grad(y.sum(), [w])

    def inside(w):
        return torch.autograd.grad((lambda a: a + checkpoint(torch.sin, a, use_reentrant=True))(w).sum(), [w])

    def beside(w):
        v = w * 2
        y = checkpoint(torch.sin, w, use_reentrant=True)
        return torch.autograd.grad((y.detach() * v).sum(), [v])

    w = torch.ones(3, requires_grad=True)
    return [call(compile(f), w) for f in (direct, inside, beside) for _ in range(2)]


@pytest.mark.parametrize("name", program)
def test_a_program_with_checkpoints_is_the_program(name: str) -> None:
    check(program[name])
