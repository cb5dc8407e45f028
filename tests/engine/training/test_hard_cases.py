"""Twenty optimizer steps with each hard case of inputs, aliases and gradients.

Each program trains in a `Run`; `stepping.py` says what is compared.
"""
from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from .stepping import Programs, Run, check

program = Programs()


# ---- inputs that change ----------------------------------------------------------------------------------------------
@program
def data_of_an_input_changes(run: Run) -> None:
    model, mean = run.module(nn.Linear(6, 4)), run.randn(6)

    @run.compile
    def forward(x):
        mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        x.sub_(mean)
        return model(x).pow(2).mean()

    def step():
        loss = forward(run.randn(5, 6))
        loss.backward()
        return loss

    run.train(step, model.parameters())
    run.show(mean=mean)


@program
def metadata_of_an_input_changes(run: Run) -> None:
    w = run.parameter(4, 6)

    def forward(x):
        x.t_()
        x.unsqueeze_(0)
        return (x @ w).tanh().pow(2).sum()

    forward = run.compile(forward, fullgraph=False)

    def step():
        x = run.randn(4, 5)
        loss = forward(x)
        loss.backward()
        run.show(shape=tuple(x.shape), strides=x.stride())
        return loss

    run.train(step, [w])


@program
def parameters_change_under_no_grad(run: Run) -> None:
    w, b = run.parameter(6, 4), run.parameter(4)

    @run.compile
    def forward(x):
        with torch.no_grad():
            w.div_(w.norm(dim=0, keepdim=True).clamp(min=1.0))
            b.clamp_(-0.5, 0.5)
        return ((x @ w) + b).sigmoid().mul(x.sum()).pow(2).mean()

    def step():
        loss = forward(run.randn(5, 6))
        loss.backward()
        return loss

    run.train(step, [w, b])


@program
def an_input_with_a_history_changes(run: Run) -> None:
    encoder, w = run.module(nn.Linear(6, 4)), run.parameter(4)

    @run.compile
    def forward(h):
        h.mul_(w)
        h[:, 0].add_(1)
        return h.tanh() * w

    def step():
        h = encoder(run.randn(5, 6))
        loss = (forward(h) * h).pow(2).mean()
        loss.backward()
        return loss

    run.train(step, [*encoder.parameters(), w])


@program
def a_plain_tensor_gets_a_history(run: Run) -> None:
    w = run.parameter(4, 4)

    @run.compile
    def forward(state, x):
        state.mul_(0.5).add_(x @ w)
        return state.tanh()

    def step():
        state = run.randn(3, 4)
        out = [forward(state, run.randn(3, 4)) for _ in range(3)]
        loss = (sum(o.pow(2).mean() for o in out) + state.mean())
        loss.backward()
        return loss

    run.train(step, [w])


# ---- aliases ---------------------------------------------------------------------------------------------------------
@program
def results_alias_inputs(run: Run) -> None:
    model = run.module(nn.Linear(6, 4))

    @run.compile
    def forward(h):
        return h.t(), h[1:], h.detach(), h, h.view(-1)

    def step():
        transposed, rest, plain, same, flat = forward(model(run.randn(5, 6)))
        flat[:2].mul_(2)
        loss = (transposed.sin().sum(1) * rest.sum(0)).sum() + (plain * same).mean()
        loss.backward()
        return loss

    run.train(step, model.parameters())


@program
def results_alias_each_other(run: Run) -> None:
    model = run.module(nn.Linear(6, 4))

    @run.compile
    def forward(x):
        h = model(x)
        hidden = h.sin()
        return hidden, hidden.t(), hidden[0], h.exp()[:, ::2], h.detach()

    def step():
        hidden, transposed, first, every, plain = forward(run.randn(5, 6))
        first.mul_(3)  # seen through all three
        loss = hidden.pow(2).mean() + transposed.sum(1).sigmoid().mean() + first.sum() + every.mean()
        loss = loss * plain.abs().mean()
        loss.backward()
        return loss

    run.train(step, model.parameters())


@program
def inputs_alias_each_other(run: Run) -> None:
    w = run.parameter(8, 4)

    @run.compile
    def forward(x, head, tail, memory, window):
        memory.mul_(2)
        return (x @ head).tanh() @ tail.t() + window.sum()

    def step():
        memory = run.randn(12)
        out = forward(run.randn(5, 4), w[:4], w[2:6], memory[:8], memory[4:])
        loss = out.pow(2).mean() * memory.abs().mean()
        loss.backward()
        return loss

    run.train(step, [w])


@program
def inputs_with_a_history_alias_and_change(run: Run) -> None:
    model = run.module(nn.Linear(6, 4))

    @run.compile
    def forward(a, b):
        a.mul_(2)
        b.add_(1)
        return a * b

    def step():
        h = model(run.randn(5, 6))
        loss = forward(h[:3], h[2:]).pow(2).mean() + h.mean()
        loss.backward()
        return loss

    run.train(step, model.parameters())


@program
def parameters_shared_between_modules(run: Run) -> None:
    embedding, mix, out = nn.Embedding(7, 4), nn.Linear(4, 4), nn.Linear(4, 7, bias=False)
    out.weight = embedding.weight
    model = run.module(nn.Sequential(embedding, mix, nn.Tanh(), mix, out))
    forward = run.compile(lambda ids, target: F.cross_entropy(model(ids), target))

    def step():
        loss = forward(torch.randint(0, 7, (9,)), torch.randint(0, 7, (9,)))
        loss.backward()
        return loss

    run.train(step, model.parameters())


@program
def copies_keep_what_changes_before_the_backward(run: Run) -> None:
    model, queue = run.module(nn.Linear(6, 4)), run.randn(3, 4)

    @run.compile
    def forward(x):
        hidden = model(x).exp()
        return hidden @ queue.clone().detach().t(), hidden.clone(), hidden * 1

    def step():
        scores, copy, same = forward(run.randn(5, 6))
        queue[1] = copy[0].detach()
        copy.mul_(2)
        same.zero_()
        loss = scores.logsumexp(1).mean() + copy.mean() + same.sum()
        loss.backward()
        return loss

    run.train(step, model.parameters())
    run.show(queue=queue)


# ---- what is differentiated ------------------------------------------------------------------------------------------
@program
def results_without_gradients(run: Run) -> None:
    model = run.module(nn.Linear(6, 4))

    @run.compile
    def forward(x, target):
        logits = model(x)
        correct = logits.argmax(-1) == target
        with torch.no_grad():
            entropy = -(logits.softmax(-1) * logits.log_softmax(-1)).sum()
        return F.cross_entropy(logits, target), correct, correct.sum(), logits.detach().max(), entropy

    def step():
        loss, *rest = forward(run.randn(9, 6), torch.randint(0, 4, (9,)))
        loss.backward()
        assert not any(r.requires_grad for r in rest)
        run.show(**{f"measure {i}": r for i, r in enumerate(rest)})
        return loss

    run.train(step, model.parameters())


@program
def tensors_that_require_grad_are_made_inside(run: Run) -> None:
    model = run.module(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)))

    def forward(x):
        shift = torch.zeros_like(x).requires_grad_()
        (gradient,) = torch.autograd.grad(model(x + shift).sum(), shift)
        return model(x + 0.1 * gradient.sign()).pow(2).mean()

    forward = run.compile(forward, fullgraph=False)

    def step():
        loss = forward(run.randn(5, 6))
        loss.backward()
        return loss

    run.train(step, model.parameters())


@program
def detached_branches(run: Run) -> None:
    model, target = run.module(nn.Linear(6, 4)), run.module(nn.Linear(6, 4))

    @run.compile
    def forward(x, y):
        a, b = model(x), model(y)
        with torch.no_grad():
            c = target(y)
        loss = -F.cosine_similarity(a, b.detach()).mean() + F.mse_loss(b, c)
        with torch.no_grad():
            for mine, theirs in zip(target.parameters(), model.parameters()):
                mine.lerp_(theirs, 0.1)
        return loss

    def step():
        loss = forward(run.randn(5, 6), run.randn(5, 6))
        loss.backward()
        return loss

    run.train(step, [*model.parameters()])
    run.show(**dict(target.named_parameters()))


@program
def backward_twice_through_a_retained_graph(run: Run) -> None:
    model = run.module(nn.Linear(6, 4))
    forward = run.compile(lambda x: (model(x).tanh().pow(2).mean(), model(x).exp()))

    def step():
        loss, other = forward(run.randn(5, 6))
        loss.backward(retain_graph=True)
        other[0].sum().backward(retain_graph=True)
        (loss * 2 + other.mean()).backward()
        return loss

    run.train(step, model.parameters())


@program
def only_some_gradients_are_asked_for(run: Run) -> None:
    model = run.module(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)))
    forward = run.compile(lambda x: (model(x).pow(2).mean(), x.sum() * model[0].bias.sum(), model[2].weight.exp()))

    def step():
        loss, _, regular = forward(run.randn(5, 6))
        first, last = model[0].weight, model[2].weight
        first.grad, last.grad = torch.autograd.grad(loss + regular.mean(), [first, last])
        run.show(**{f"bias {i}": model[i].bias.grad for i in (0, 2)})
        return loss

    run.train(step, model.parameters())


@program
def undefined_tangents(run: Run) -> None:
    model = run.module(nn.Linear(6, 4))
    forward = run.compile(lambda x: (model(x).sin(), (model.weight * 2).exp(), model.bias.cos()))
    number = 0

    def step():
        nonlocal number
        results = forward(run.randn(5, 6))
        loss = results[number % 3].pow(2).mean()
        number += 1
        loss.backward()
        return loss

    run.train(step, model.parameters())


@program
def tangents_in_other_layouts(run: Run) -> None:
    model = run.module(nn.Linear(6, 4))
    forward = run.compile(lambda x: model(x).sin() + x[:, :4])

    def step():
        expanded, transposed = forward(run.randn(5, 6)), forward(run.randn(5, 6))
        sliced, scalar = forward(run.randn(5, 6)), forward(run.randn(5, 6))
        expanded.sum().backward()
        transposed.backward(run.randn(4, 5).t())
        sliced.backward(run.randn(5, 8)[:, ::2])
        scalar.backward(torch.ones((), dtype=run.dtype).expand(5, 4))
        return expanded.mean()

    run.train(step, model.parameters())


@program
def complex_parameters(run: Run) -> None:
    w, phase = run.parameter(5, 3, dtype=torch.complex64), run.parameter(3)

    @run.compile
    def forward(x):
        z = torch.fft.rfft(x)[:, :5] @ w
        turned = z * torch.polar(torch.ones_like(phase), phase)
        return (turned * turned.conj()).real.mean() + turned.imag.tanh().sum() + turned.abs().mean()

    def step():
        loss = forward(run.randn(4, 10))
        loss.backward()
        return loss

    run.train(step, [w, phase])


@program
def gradients_accumulate(run: Run) -> None:
    model = run.module(nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 4)))
    forward = run.compile(lambda x: model(x).pow(2).mean() / 3)
    gradients = []

    def step():
        losses = [forward(run.randn(5, 6)) for _ in range(3)]
        for loss in losses:
            loss.backward()
        gradients.append(model[0].weight.grad)
        assert all(g is gradients[0] for g in gradients)  # added to in place
        with torch.no_grad():
            for p in model.parameters():
                p.grad.mul_(0.5)  # and never cleared
        return sum(losses)

    run.train(step, model.parameters(), zero_grad=False)


@program
def the_same_function_under_no_grad(run: Run) -> None:
    model = run.module(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Dropout(0.3), nn.Linear(5, 4)))
    forward = run.compile(lambda x: model(x).pow(2).mean())

    def step():
        model.train()
        loss = forward(run.randn(5, 6))
        model.eval()
        with torch.no_grad():
            quiet = forward(run.randn(5, 6))
        assert not quiet.requires_grad
        loss.backward()
        return loss + quiet

    run.train(step, model.parameters())
    run.show(**dict(model.named_buffers()))


@program
def a_penalty_on_gradients(run: Run) -> None:
    model = run.module(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)))
    forward = run.compile(lambda x: model(x).exp())

    def step():
        x = run.randn(5, 6).requires_grad_()
        out = forward(x)
        (gradient,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        loss = out.mean() + (gradient.norm(dim=1) - 1).pow(2).mean()
        loss.backward()
        return loss

    run.train(step, model.parameters())


@program
def a_penalty_on_gradients_inside(run: Run) -> None:
    model = run.module(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)))

    def forward(x):
        x = x.detach().requires_grad_()
        out = model(x).exp()
        (gradient,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return out.mean() + (gradient.norm(dim=1) - 1).pow(2).mean()

    forward = run.compile(forward, fullgraph=False)

    def step():
        loss = forward(run.randn(5, 6))
        loss.backward()
        return loss

    run.train(step, model.parameters())
    assert len(run.contexts) <= 4  # what the backward repeats in eager is not compiled in its turn


@pytest.mark.parametrize("name", program)
def test_twenty_steps(name: str) -> None:
    check(program[name])
