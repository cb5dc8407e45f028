"""Programs about autograd: training steps, gradients read and written, metadata changed in place."""
# mypy: ignore-errors

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from ..checking import Programs, call, check, check_engine, check_whole

program = Programs()


@program
def gradients_read_and_cleared(compile):
    p = nn.Parameter(torch.ones(3))
    opt_state = {"n": 0}

    def step():
        with torch.no_grad():
            if p.grad is not None:
                p.sub_(p.grad * 0.1)
                opt_state["n"] += 1
        p.grad = None
        return p * 2

    step = compile(step)
    out = [step()]
    p.sum().backward()
    out.append(step())
    out.append(p.grad)
    p.grad = torch.ones(3)
    out.append(step())
    return out, p, opt_state


@program
def zero_grad_inside(compile):
    m = nn.Linear(2, 2)

    def f(x, none):
        m.zero_grad(set_to_none=none)
        return m(x).sum()

    f = compile(f)
    out = []
    for none in (True, False, False):
        loss = f(torch.ones(1, 2), none)
        loss.backward()
        out.append(m.weight.grad.clone())
    return out


@program
def optimizer_steps(compile):
    out = []
    for make in (
        lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9), lambda ps: torch.optim.AdamW(ps, lr=0.01),
        lambda ps: torch.optim.RMSprop(ps, lr=0.01),
    ):  # fmt: skip
        torch.manual_seed(3)
        m = nn.Linear(3, 2)
        opt = make(m.parameters())
        step = compile(opt.step)
        for _ in range(3):
            opt.zero_grad()
            m(torch.ones(2, 3)).pow(2).sum().backward()
            step()
        out.append((m.weight, opt.state_dict()["state"]))
    return out


@program
def training_step(compile):
    m = nn.Linear(3, 1)
    opt = torch.optim.SGD(m.parameters(), lr=0.1)

    def step(x, y):
        opt.zero_grad()
        loss = F.mse_loss(m(x), y)
        loss.backward()
        opt.step()
        return loss.detach()

    step = compile(step)
    x, y = torch.randn(4, 3), torch.randn(4, 1)
    return [step(x, y) for _ in range(3)], m.weight


@program
def grad_penalty(compile):
    m = nn.Linear(3, 1)

    def f(x):
        x = x.detach().requires_grad_()
        out = m(x).tanh().sum()
        (g,) = torch.autograd.grad(out, x, create_graph=True)
        return out + g.pow(2).sum()

    loss = compile(f)(torch.randn(4, 3))
    loss.backward()
    return loss, m.weight.grad


@program
def requires_grad_changed(compile):
    def f(x, y):
        x.requires_grad_()
        z = x * y
        w = y.detach().requires_grad_(True)
        return z.requires_grad, z, w, (w * 2).requires_grad

    x = torch.ones(3)
    out = compile(f)(x, torch.ones(3))
    out[1].sum().backward()
    return out, x.requires_grad, x.grad


@program
def leaves_made_inside(compile):
    w = nn.Parameter(torch.arange(1.0, 4.0))

    def inside(x):  # as HuBERT's encoder of features does it
        y = x[:, None]
        y.requires_grad = True
        return (y * w).sum() + (y * 3).sum()

    def alone(x):
        y = (x * 2).requires_grad_()
        y.requires_grad = True
        return (y * 3).sum(), y.requires_grad, y.is_leaf

    def leaves(x):
        y = x * 2
        y.requires_grad = True
        return y, y.expand(2, 3), (y * w).sum()

    def seen_before(x):
        y = x * 2
        z = y[:2]
        y.requires_grad_()
        with torch.no_grad():
            z.add_(1)
        return (y * w).sum()

    def refused(x):
        y = x * w
        y.requires_grad = True  # of what autograd records, torch takes it by the method alone
        return y

    def written(x):
        y = (x * 2).requires_grad_()
        return y.add_(1) * w

    out = []
    for f in (inside, alone, leaves, seen_before, refused, written):
        try:
            found = compile(f)(torch.arange(3.0))
        except RuntimeError as error:
            out.append(str(error))
            continue
        found = found if isinstance(found, tuple) else (found,)
        tensors = [t for t in found if isinstance(t, torch.Tensor)]
        sum(t.sum() for t in tensors).backward()
        out.append((found, w.grad, [t.grad for t in tensors if t.is_leaf]))
        w.grad = None
    return out


@program
def metadata_in_place(compile):
    def f(x, y):
        a = x.clone()
        a.t_()
        b = a * 2
        c = x + 1
        c.unsqueeze_(0)
        c.squeeze_()
        d = torch.empty(0)
        d.resize_(2, 3)
        d.fill_(4.0)
        e = x.clone()
        e.transpose_(0, 1).add_(1)
        return a, b, c.shape, c, d, e, tuple(a.shape)

    return compile(f)(torch.arange(6.0).view(2, 3), None)


@program
def metadata_of_an_input(compile):
    def f(x):
        x.t_()
        y = x + 1
        x.unsqueeze_(0)
        return y, x.shape

    x = torch.arange(6.0).view(2, 3)
    return compile(f)(x), x


@program
def data_of_tensors(compile):
    p = nn.Parameter(torch.ones(3))

    def f(x, new):
        y = p.data * 2
        p.data.add_(1)
        p.data = new
        z = p * x
        x.data = x.data + 1
        return y, z, x * 2

    f = compile(f)
    x = torch.ones(3)
    out = f(x, torch.full((3,), 7.0))
    out[1].sum().backward()
    return out, p, p.grad, x


@program
def grad_fn_and_leaves(compile):
    def f(x):
        y = x * 2
        return y.is_leaf, x.is_leaf, y.grad_fn is None, y.requires_grad, x.grad is None, y.detach().grad_fn

    return compile(f)(torch.ones(2, requires_grad=True))


def test_results_of_operations_are_written_at_sizes_that_vary() -> None:
    def program(compile):
        def f(out, x):
            out.mul_(x)
            return out.index_add_(0, torch.arange(2), x[:2]) * 2

        compiled, results = compile(f, dynamic=True), []
        for n in (3, 4, 5):
            x = torch.arange(n * 2.0).view(n, 2).requires_grad_()
            out = x * 3
            compiled(out, x).sum().backward()
            results.append((out, x.grad))
        return results

    check_whole(program)
    check_engine(program)


def test_writes_that_autograd_is_not_to_know_are_not_counted() -> None:
    """What eager has saved before may be read after them."""

    def clipped(p, x):
        p.data.clamp_(-0.5, 0.5)
        return x * 2

    def averaged(p, x):
        y = (p * x).tanh()
        p.data.mul_(0.9)
        return y

    def known(p, x):
        p.detach().mul_(2)
        return x + p.data

    def program(compile):
        results = []
        for f in (clipped, averaged, known):
            compiled = compile(f)
            for _ in range(2):
                p, x = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
                loss = (p * p).sum()
                y = compiled(p, x)
                results.append((y, p._version, call(loss.backward), call(y.sum().backward), p, x))
        return results

    check(program)
    check_engine(program)


def test_gradients_flow_into_what_is_assigned_to_a_part_of_an_input() -> None:
    """Such a graph has no other operation: none has a result that requires gradients."""

    def row(h, value):
        h[0] = value
        return h

    def masked(h, value):
        h[torch.tensor([True, False])] = value

    def number(h, value):
        h[torch.tensor([1])] = 2.0

    def program(compile):
        results = []
        for f in (row, masked, number):
            compiled = compile(f)
            for _ in range(2):
                value, w = torch.ones(3, requires_grad=True), torch.ones(2, 3, requires_grad=True)
                for h in (w * 2, torch.zeros(2, 3)):
                    compiled(h, value)
                    if h.requires_grad:
                        (h * torch.arange(6.0).view(2, 3)).sum().backward()
                    results.append((h, value.grad, w.grad))
        return results

    check(program)
    check_engine(program)


@pytest.mark.parametrize("name", program)
def test_a_program_with_gradients_is_the_program(name: str) -> None:
    check(program[name])
