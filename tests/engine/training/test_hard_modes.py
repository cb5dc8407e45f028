"""Twenty optimizer steps with functions, hooks, checkpoints, modes, random numbers and sizes that vary.

Each program trains in a `Run`; `stepping.py` says what is compared.
"""
from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .stepping import Programs, Run, check

program = Programs()


# ---- what the program adds to autograd -------------------------------------------------------------------------------
class Rounded(torch.autograd.Function):
    """Rounds; the gradient goes straight through where the value is small."""

    @staticmethod
    def forward(ctx, x, limit):
        ctx.save_for_backward(x)
        ctx.limit = limit
        return (x * 4).round() / 4

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() < ctx.limit), None


@program
def functions_with_their_own_gradient(run: Run) -> None:
    model = run.module(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)))
    forward = run.compile(lambda x: Rounded.apply(model(x), 0.8).sub(0.3).pow(2).mean())

    def step():
        loss = forward(run.randn(5, 6))
        loss.backward()
        return loss

    run.train(step, model.parameters())


@program
def hooks_on_tensors(run: Run) -> None:
    model = run.module(nn.Linear(6, 4))
    model.weight.register_hook(lambda g: g.clamp(-0.1, 0.1))
    forward = run.compile(lambda h: (h.tanh(), h.exp()))
    norms = []

    def step():
        h = model(run.randn(5, 6))
        h.register_hook(lambda g: g * 2)
        h.retain_grad()
        a, b = forward(h)
        a.register_hook(lambda g: norms.append(g.norm()))
        b.register_hook(lambda g: g / (1 + g.norm()))
        loss = a.pow(2).sum() + b.mean()
        loss.backward()
        run.show(hidden=h.grad)
        return loss

    run.train(step, model.parameters())
    run.show(norms=torch.stack(norms))


@program
def hooks_on_tensors_inside(run: Run) -> None:
    model = run.module(nn.Linear(6, 4))

    def forward(x):
        h = model(x)
        h.register_hook(lambda g: g * 0.5 + 0.01)
        return h.exp().mean()

    forward = run.compile(forward, fullgraph=False)

    def step():
        loss = forward(run.randn(5, 6))
        loss.backward()
        return loss

    run.train(step, model.parameters())


@program
def hooks_on_modules(run: Run) -> None:
    model = run.module(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)))
    seen = []
    model[0].register_full_backward_hook(lambda module, inputs, outputs: seen.append(outputs[0].norm()))
    model[1].register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 2,))
    model[2].register_full_backward_pre_hook(lambda module, outputs: (outputs[0] * 0.5,))
    model[2].register_forward_hook(lambda module, args, result: result + args[0].mean())
    forward = run.compile(lambda x: model(x).pow(2).mean(), fullgraph=False)

    def step():
        loss = forward(run.randn(5, 6))
        loss.backward()
        return loss

    run.train(step, model.parameters())
    run.show(seen=torch.stack(seen))


@program
def an_optimizer_in_the_backward(run: Run) -> None:
    model = run.module(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)))
    optimizers = {p: torch.optim.Adam([p], lr=1e-2, foreach=False) for p in model.parameters()}

    def hook(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)
    forward = run.compile(lambda x: model(x).pow(2).mean())

    def step():
        loss = forward(run.randn(5, 6))
        loss.backward()
        return loss

    run.train(step, model.parameters())


def _checkpointed(run: Run, reentrant: bool) -> None:
    first, second = run.module(nn.Linear(6, 6)), run.module(nn.Linear(6, 4))

    def region(x):
        return F.dropout(first(x).tanh(), 0.3) * x

    @run.compile
    def forward(x):
        h = checkpoint(region, x, use_reentrant=reentrant)
        return second(checkpoint(region, h, use_reentrant=reentrant)).pow(2).mean()

    def step():
        loss = forward(run.randn(5, 6).requires_grad_())
        loss.backward()
        return loss

    run.train(step, [*first.parameters(), *second.parameters()])


@program
def checkpointed_regions(run: Run) -> None:
    _checkpointed(run, False)


@program
def reentrant_checkpoints(run: Run) -> None:
    _checkpointed(run, True)


# ---- modes, random numbers, sizes ------------------------------------------------------------------------------------
@program
def autocast(run: Run) -> None:
    model = run.module(nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4)))

    @run.compile
    def forward(x, target):
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(x)
        return F.cross_entropy(logits.to(run.dtype), target)

    def step():
        loss = forward(run.randn(9, 6), torch.randint(0, 4, (9,)))
        loss.backward()
        return loss

    run.train(step, model.parameters())


@program
def autocast_around(run: Run) -> None:
    model = run.module(nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 4)))
    forward = run.compile(lambda x: model(x).to(run.dtype).pow(2).mean())

    def step():
        with torch.autocast("cpu", torch.bfloat16):
            loss = forward(run.randn(9, 6))
        loss.backward()
        return loss

    run.train(step, model.parameters())


@program
def random_numbers_with_everything_recomputed(run: Run) -> None:
    model = run.module(nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Dropout(0.4), nn.Linear(16, 4), nn.Dropout(0.2)))

    def forward(x):
        noise = torch.rand(x.shape, dtype=torch.float32).to(run.dtype)
        return model(x + noise).exp().mean()

    forward = run.compile(forward, memory_budget=0.0)

    def step():
        x = run.randn(9, 6)
        losses = []
        for _ in range(2):
            torch.manual_seed(3)
            losses.append(forward(x))
        assert torch.equal(losses[0], losses[1])
        sum(losses).backward()
        run.show(next=torch.rand(3))  # the generator is where eager leaves it
        return losses[0]

    run.train(step, model.parameters())


@program
def sizes_that_vary(run: Run) -> None:
    model = run.module(nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 4)))

    @run.compile
    def forward(x, target):
        weights = torch.arange(x.shape[0], dtype=x.dtype) / x.shape[0]
        return (F.cross_entropy(model(x), target, reduction="none") * weights).mean(), model(x)[1:]

    def step():
        n = int(torch.randint(2, 12, ()))
        loss, rest = forward(run.randn(n, 6), torch.randint(0, 4, (n,)))
        (loss + rest.pow(2).sum() / n).backward()
        return loss

    run.train(step, model.parameters())


@program
def a_whole_step(run: Run) -> None:
    model = run.module(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def step(x):
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).pow(2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss.detach()

    step = run.compile(step, fullgraph=False)
    run.train(lambda: step(run.randn(5, 6)), model.parameters(), zero_grad=False)


@pytest.mark.parametrize("name", program)
def test_twenty_steps(name: str) -> None:
    check(program[name])
