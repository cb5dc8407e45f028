"""Programs that put hooks on tensors and modules, and ask for gradients of what they compute."""
# mypy: ignore-errors

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
from ptdebug.tracer.runtime.statistics import STATISTICS

from ..checking import Programs, call, check, check_engine

program, whole = Programs(), Programs()


def ones(*shape):
    return torch.ones(*shape, requires_grad=True)


@whole
def on_an_input(compile):
    seen = []

    def f(x):
        handle = x.register_hook(lambda g: seen.append(g.clone()))
        x.register_hook(lambda g: g * 5)
        return x.sin(), handle

    x = ones(3)
    f = compile(f)
    y, handle = f(x)
    y.sum().backward()
    handle.remove()
    f(x)[0].sum().backward()
    return x.grad, seen, type(handle).__name__


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(b)
        return a * b

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0], None


@program
def what_a_backward_that_ran_has_freed(compile):
    """Reading it raises in the program, as in eager, and is no fault of the tracer's."""
    def read(node, t):
        return node.saved_tensors[0] * t + 1

    def outcome(node, t):
        try:
            return read(node, t)
        except RuntimeError as error:
            return str(error)

    read = compile(read)
    first, second = Product.apply(ones(2), torch.arange(2.0)), Product.apply(ones(2), torch.arange(2.0))
    first.sum().backward()
    found = [outcome(node, torch.ones(2)) for node in (first.grad_fn, second.grad_fn)]
    second.sum().backward()
    return found, outcome(second.grad_fn, torch.ones(2))


@program
def what_a_backward_reads_is_unpacked_as_often_as_it_reads(compile):
    """By the program's hooks, which may count, and by a checkpoint, which refuses the second time."""
    log = []

    def unpacked(t):
        log.append(t.shape)
        return t * 1

    x, t = ones(2), torch.arange(2.0)
    for _ in range(2):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, unpacked):
            loss = Product.apply(x, t).sum()
        compile(lambda loss: loss.backward())(loss)
        loss = torch.utils.checkpoint.checkpoint(Product.apply, x, t, use_reentrant=False).sum()
        compile(lambda loss: loss.backward())(loss)
        product = Product.apply(x, t)
        node = product.grad_fn
        log.append(compile(lambda t, node: t + node.saved_tensors[0])(t, node))
    return x.grad, log


class Asking(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * (2 if grad.is_contiguous() else 3)


@program
def layouts_of_gradients(compile):
    def f(w, t):
        y = w * t
        y.register_hook(lambda g: g * 3)
        z = Product.apply(y, t)
        z.register_hook(lambda g: g if g.is_contiguous() else g * 2)
        return Asking.apply(z)

    def layouts(w, t):
        found = [torch.autograd.grad((f(w, t) * 2).sum(), w)[0], torch.autograd.grad(f(w, t).t().square().sum(), w)[0]]
        return found, torch.autograd.grad(f(w, t).sum(), w)[0]

    f = compile(f)
    t = torch.arange(6.0).reshape(3, 2).t()
    leaves = t.clone().requires_grad_(), t.contiguous().requires_grad_(), ones(2, 3)
    return [layouts(leaf, t) for leaf in leaves]


@whole
def one_removed_and_another_registered(compile):
    def f(x, handle, first):
        if first:
            handle.remove()
        later = x.register_hook(lambda g: g * 5)
        if not first:
            handle.remove()
        return x.sin(), later

    x = ones(3)
    f = compile(f)
    for first in (True, False):
        y, later = f(x, x.register_hook(lambda g: g * 3), first)
        y.sum().backward()
        later.remove()
    return x.grad


@whole
def in_order_and_removed(compile):
    log = []

    def f(x, y):
        first = x.register_hook(lambda g: log.append("a"))
        x.register_hook(lambda g: log.append("b"))
        y.register_hook(lambda g: g + 1)
        first.remove()
        x.register_hook(lambda g: log.append("c"))
        return (x * y).sum()

    x, z = ones(3), ones(3)
    compile(f)(x, z * 3).backward()
    return log, x.grad, z.grad


@whole
def after_accumulation(compile):
    got = []

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        def forward(self, x):
            self.w.register_post_accumulate_grad_hook(lambda p: got.append(p.grad.clone()))
            return (x * self.w).sum()

    m = Model()
    compile(m)(torch.ones(3)).backward()
    return m.w.grad, got


@whole
def gradients_of_parameters_arrive_one_after_the_other(compile):
    """The optimizer steps as soon as the last gradient is there; what is there at each is noted before."""
    seen = []
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 3), nn.Linear(3, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def note(name, parameter):
        seen.append((name, [parameter.grad is None for parameter in model.parameters()]))
        if name == "0.weight":
            optimizer.step()
            optimizer.zero_grad()

    for name, parameter in model.named_parameters():
        parameter.register_hook(lambda g, name=name: seen.append(("before", name)))
        parameter.register_post_accumulate_grad_hook(lambda p, name=name: note(name, p))
    forward = compile(lambda x: model(x).pow(2).sum())
    for number in range(3):
        forward(torch.ones(2, 3) + number).backward()
    return seen, [p.detach().round(decimals=4) for p in model.parameters()], [p.grad for p in model.parameters()]


@whole
def that_closes_over_a_tensor(compile):
    def f(x):
        y = x.exp().detach()
        x.register_hook(lambda g: g * y)
        z = x * 2
        z.register_hook(lambda g: g * y)
        return (z * z).sin().sum()

    x = ones(3)
    compile(f)(x).backward()
    return x.grad


@whole
def on_what_the_graph_computes(compile):
    def double(g):
        return g * 2

    def inner(x):
        y = x * 2
        z = y.sin()
        y.register_hook(double)
        return y * z

    def f(x):
        a = x + 1
        for _ in range(2):
            a = a * 2
            a.register_hook(lambda g: g + 1)
            a.register_hook(lambda g: None)
        return (inner(a) * a).sum()

    x = ones(3)
    compile(f)(x).backward()
    return x.grad


@program
def that_notes_what_it_sees(compile):
    seen = []

    def f(x):
        y = x * 2
        z = y.sin()
        y.register_hook(lambda g: seen.append(g.clone()))
        y.retain_grad()
        return (y * y + z).sum(), y

    x = ones(3)
    out, y = compile(f)(x)
    out.backward()
    return x.grad, y.grad, seen


@program
def on_a_tensor_that_changes(compile):
    def f(y):
        y.register_hook(lambda g: g * 10)
        y.mul_(2)
        z = y * 3
        z.register_hook(lambda g: g * 100)
        z.mul_(2)
        return (z * z).sum()

    x = ones(3)
    compile(f)(x * 3).backward()
    return x.grad


@program
def refused_by_torch(compile):
    def without(x):
        x.register_hook(lambda g: g)
        return x + 1

    def wrong(x):
        y = x * 2
        y.register_hook(lambda g: g[0])
        return y.sum()

    first = call(compile(without), torch.ones(3))
    return first[:3], call(lambda: compile(wrong)(ones(3)).backward())[:2]


@program
def gradients_inside(compile):
    def f(x):
        y = x * 2
        z = (y.sin() * y).sum()
        (g,) = torch.autograd.grad(z, y)
        return g * 2, z

    def h(x):
        z = (x.sin() * x).sum()
        return torch.autograd.grad(z, x, create_graph=True)[0] * 2

    x = ones(3)
    second = compile(h)(x)
    second.sum().backward()
    return compile(f)(x), second, x.grad


@program
def of_modules(compile):
    log = []
    m = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    m[0].register_full_backward_hook(lambda mod, gi, go: log.append((len(gi), go[0].clone())))
    changed = nn.Linear(2, 2)
    changed.register_full_backward_hook(lambda mod, gi, go: (gi[0] * 2,))
    changed.register_full_backward_pre_hook(lambda mod, go: (go[0] + 1,))
    x = ones(1, 2)
    compile(lambda x: m(changed(x.sin()).cos()) + 1)(x).sum().backward()
    return x.grad, log, m[0].weight.grad, changed.weight.grad


@program
def of_all_modules_for_a_while(compile):
    m, log = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), []
    doubled = torch.ones(2, 2, requires_grad=True)

    def f(x):
        handle = nn.modules.module.register_module_forward_hook(lambda mod, i, o: log.append(type(mod).__name__))
        inner = x * 3
        inner.register_hook(lambda g: g * 2)
        y = m(inner)
        handle.remove()
        return m(y)

    fast = compile(f)
    for _ in range(2):
        fast(doubled).sum().backward()
    return log, doubled.grad


@whole
def of_a_module_for_one_call(compile):
    m = nn.Linear(2, 2)

    def f(x):
        handle = m.register_forward_hook(lambda mod, i, o: o * 2)
        y = m(x)
        handle.remove()
        return y, m(x)

    return compile(f)(torch.ones(1, 2))


@pytest.mark.parametrize("name", program | whole)
def test_a_program_with_hooks_is_the_program(name: str) -> None:
    STATISTICS.clear()
    check((program | whole)[name])
    assert not [reason for reason in STATISTICS.reasons if reason.startswith("internal error")]
    assert not STATISTICS.graph_breaks or name not in whole


@pytest.mark.parametrize("name", [name for name in program | whole if name != "of_a_module_for_one_call"])
def test_the_engine_gives_the_gradients(name: str) -> None:
    check_engine((program | whole)[name])
