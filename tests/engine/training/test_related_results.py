"""Results of one graph that depend on each other: whoever asks for the gradient at one gets eager's."""
# mypy: ignore-errors

from __future__ import annotations

import ptdebug
import pytest
import torch
from ptdebug.engine.aot.autograd import dependent_results
from torch import nn


def pair(compile, ask, leaves=True):
    """What `ask(step, a, w)` gives, and the gradients of the leaves."""
    a, w = ((torch.arange(3.0) + k).div(7).requires_grad_() for k in (1, 8))

    def step(a, w):
        h = a * w
        return h, (h.sin() * w).sum()

    step = compile(step)
    found = ask(step if leaves else lambda a, w: step(a * 1, w * 1), a, w)
    return found, a.grad, w.grad


def retain(step, a, w):
    h, loss = step(a, w)
    h.retain_grad()
    (loss + h.sum()).backward()
    return h.grad


def retain_alone(step, a, w):
    h, loss = step(a, w)
    h.retain_grad()
    loss.backward()
    return h.grad


def hook(step, a, w):
    h, loss = step(a, w)
    seen = []
    h.register_hook(seen.append)
    (loss * 2).backward()
    return seen


def hook_that_changes(step, a, w):
    h, loss = step(a, w)
    h.register_hook(lambda g: g * 3)
    (loss * 2 + h.sum()).backward()


def hook_of_what_is_gone(step, a, w):
    seen = []

    def run():
        h, loss = step(a, w)
        h.register_hook(seen.append)
        return loss

    run().backward()
    return seen


def hook_that_was_removed(step, a, w):
    h, loss = step(a, w)
    h.register_hook(lambda g: g * 3).remove()
    loss.backward()


def hook_of_several(step, a, w):
    h, loss = step(a, w)
    seen = []
    torch.autograd.graph.register_multi_grad_hook([h, a], lambda gradients: seen.extend(gradients))
    loss.backward()
    return seen


def asked_for_alone(step, a, w):
    h, loss = step(a, w)
    return torch.autograd.grad(loss, h)


def asked_for_among_others(step, a, w):
    h, loss = step(a, w)
    again = {"retain_graph": True}
    return (
        torch.autograd.grad(loss, [h, a, w], **again), torch.autograd.grad(loss, [a, w], **again),
        torch.autograd.grad(loss + h.sum(), [w], **again), torch.autograd.grad(h.sum(), [a, h]),
    )


def with_history(step, a, w):
    h, loss = step(a, w)
    found = torch.autograd.grad(loss, [h, a], create_graph=True)
    (sum(g.square().sum() for g in found) + loss).backward()
    return found[0].detach()


def batched(step, a, w):
    h, loss = step(a, w)
    return torch.autograd.grad(loss, h, torch.arange(3.0), is_grads_batched=True)


def inputs_of_backward(step, a, w):
    h, loss = step(a, w)
    loss.backward(inputs=[h, a])
    return h.grad


def two_backwards(step, a, w):
    h, loss = step(a, w)
    h.retain_grad()
    loss.backward(retain_graph=True)
    first = h.grad.clone()
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()
    return first, h.grad


def nobody(step, a, w):
    h, loss = step(a, w)
    (loss + h.square().sum()).backward()


ASKING = [
    retain, retain_alone, hook, hook_that_changes, hook_of_what_is_gone, hook_that_was_removed, hook_of_several,
    asked_for_alone, asked_for_among_others, with_history, batched, inputs_of_backward, two_backwards, nobody,
]  # fmt: skip


@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize("ask", ASKING)
def test_who_asks_for_the_gradient_at_a_result_gets_it(ask, leaves: bool) -> None:
    same(pair(ptdebug.compile, ask, leaves), pair(lambda function: function, ask, leaves))


class Layers(nn.Module):
    """Layers that give a loss, hidden states, and views of an intermediate of each."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 8) for _ in range(3)])

    def forward(self, x):
        hidden, keys = [], []
        for layer in self.layers:
            q, k = layer(x).chunk(2, -1)
            x = x + torch.tanh(q * k.sum(-1, keepdim=True))
            hidden.append(x)
            keys.append(k)
        return x.square().mean(), hidden, keys


def all_retain(loss, hidden, keys, leaves):
    for h in (*hidden, *keys):
        h.retain_grad()
    (loss + sum(h.sin().sum() * i for i, h in enumerate((*hidden, *keys)))).backward()
    return [h.grad for h in (*hidden, *keys)]


def one_retains(loss, hidden, keys, leaves):
    hidden[1].retain_grad()
    loss.backward()
    return hidden[1].grad


def all_change(loss, hidden, keys, leaves):
    for h in (*hidden, *keys):
        h.register_hook(lambda g: g * 1.5)
    (loss + hidden[1].sum()).backward()


def grad_of_all(loss, hidden, keys, leaves):
    return torch.autograd.grad(loss + hidden[2].sum(), [*hidden, *keys, *leaves], allow_unused=True)


def grad_of_a_result(loss, hidden, keys, leaves):
    return torch.autograd.grad(hidden[2].sum(), [*hidden[:2], *keys], allow_unused=True)


def penalty(loss, hidden, keys, leaves):
    found = torch.autograd.grad(loss, [*hidden, *keys], create_graph=True)
    sum(g.square().sum() for g in found).backward()


def plain(loss, hidden, keys, leaves):
    (loss + sum(h.sin().sum() for h in hidden)).backward()


LAYERED = [all_retain, one_retains, all_change, grad_of_all, grad_of_a_result, penalty, plain]


@pytest.mark.parametrize("ask", LAYERED)
def test_chains_of_results_and_views(ask) -> None:
    def run(compile):
        torch.manual_seed(0)
        net = Layers()
        x = torch.randn(2, 4, requires_grad=True)
        leaves = [x, *net.parameters()]
        found = ask(*compile(net)(x), leaves)
        return found, [leaf.grad for leaf in leaves]

    same(run(ptdebug.compile), run(lambda function: function))


def cells(compile):
    """One operator gives both, one computed from the other."""
    torch.manual_seed(0)
    cell = nn.LSTMCell(3, 3)
    step, x, h, c, seen = compile(cell), torch.randn(2, 3), torch.zeros(2, 3), torch.zeros(2, 3), []
    for _ in range(2):
        h, c = step(x, (h, c))
        h.retain_grad()
        c.retain_grad()
        seen += [h, c]
    h.sum().backward()
    return [t.grad for t in seen], [p.grad for p in cell.parameters()]


def written_in_place(compile):
    torch.manual_seed(0)
    net, head = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True)), nn.Linear(3, 2)

    def step(x):
        h = net(x)
        return h, head(h).sum()

    x = torch.ones(2, 3, requires_grad=True)
    h, loss = compile(step)(x)
    h.retain_grad()
    loss.backward()
    return h.grad, x.grad


def views_of_inputs_and_results(compile):
    a, w = ((torch.arange(4.0) + k).div(7).requires_grad_() for k in (1, 5))

    def step(a, w):
        h = a * w
        t, u = h.view(2, 2), a.view(2, 2)
        return t, u, (t.sin() * w.view(2, 2)).sum() + (u * t).sum(), h

    t, u, loss, h = compile(step)(a, w)
    for value in (t, u, h):
        value.retain_grad()
    (loss + t.sum()).backward()
    return t.grad, u.grad, h.grad, a.grad, w.grad


def over_a_break(compile):
    def step(a, w):
        h = a * w
        z = h.sin()
        ptdebug.graph_break()
        return h, z, (z * h).sum()

    a, w = ((torch.arange(4.0) + k).div(7).requires_grad_() for k in (1, 5))
    h, z, loss = compile(step)(a, w)
    h.retain_grad()
    z.retain_grad()
    loss.backward()
    return h.grad, z.grad, a.grad, w.grad


@pytest.mark.parametrize("program", [cells, written_in_place, views_of_inputs_and_results, over_a_break])
def test_other_ways_to_depend(program) -> None:
    same(program(ptdebug.compile), program(lambda function: function))


def test_an_ordinary_backward_repeats_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependent_results, "_Repeat", None)
    same(pair(ptdebug.compile, nobody), pair(lambda function: function, nobody))


def same(found, expected) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
