"""Programs about autograd: custom functions, checkpoints, gradients read and written, metadata changed in place."""
# mypy: ignore-errors

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from .checking import Programs, call, check

program = Programs()


class Cube(torch.autograd.Function):
    """x ** 3 * scale, with a gradient that is not that of its forward, so that a wrong one shows."""

    @staticmethod
    def forward(ctx, x, scale=2.0, flag=None):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * x * scale

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 30 * x * x * ctx.scale, None, None


@program
def function(compile):
    def f(x):
        return Cube.apply(x, 3.0) + Cube.apply(x * 2)

    f = compile(f, fullgraph=True)
    x = torch.randn(3, requires_grad=True)
    out = f(x)
    out.sum().backward()
    with torch.no_grad():
        quiet = f(x)
    return out, x.grad, quiet, f(torch.ones(2))


@program
def function_with_setup_context(compile):
    class Mul(torch.autograd.Function):
        @staticmethod
        def forward(a, b, k):
            return a * b * k, (a + b).detach()

        @staticmethod
        def setup_context(ctx, inputs, output):
            a, b, k = inputs
            ctx.save_for_backward(a, b)
            ctx.k = k
            ctx.mark_non_differentiable(output[1])

        @staticmethod
        def backward(ctx, grad, unused):
            a, b = ctx.saved_tensors
            ga = grad * b * ctx.k * 7 if ctx.needs_input_grad[0] else None
            gb = grad * a * ctx.k * 5 if ctx.needs_input_grad[1] else None
            return ga, gb, None

    def f(a, b):
        y, z = Mul.apply(a, b, 2)
        return y.sin(), z

    f = compile(f, fullgraph=True)
    a, b = torch.randn(3, requires_grad=True), torch.randn(3)
    y, z = f(a, b)
    y.sum().backward()
    c, d = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    f(c, d)[0].sum().backward()
    return y, z, a.grad, c.grad, d.grad


@program
def straight_through(compile):
    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, grad):
            return grad

    m = nn.Linear(3, 3)
    f = compile(lambda x: Round.apply(m(x)).pow(2).sum(), fullgraph=True)
    out = f(torch.randn(2, 3))
    out.backward()
    return out, m.weight.grad


@program
def once(compile):
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            ctx.shape = x.shape
            return x @ w

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            assert ctx.shape == x.shape
            return g @ w.t() * 2, x.t() @ g * 3

    x, w = torch.randn(2, 3, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    out = compile(lambda x, w: Twice.apply(x, w).relu(), fullgraph=True)(x, w)
    out.sum().backward()
    return out, x.grad, w.grad


@program
def dirty(compile):
    class AddOne(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            x.add_(1)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 4

    def f(x):
        y = x * 2
        z = AddOne.apply(y)
        return z * 3, y is z, y

    f = compile(f)
    x = torch.ones(3, requires_grad=True)
    out = f(x)
    out[0].sum().backward()
    return out, x.grad, f(torch.ones(3))


@program
def returns_its_input(compile):
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            ctx.k = k
            return x

        @staticmethod
        def backward(ctx, g):
            return g * ctx.k, None

    x = torch.ones(3, requires_grad=True)
    out = compile(lambda x: Scale.apply(x, 5) * 2)(x)
    out.sum().backward()
    return out, x.grad, compile(lambda x: Scale.apply(x, 5))(torch.ones(2))


@program
def function_with_closure(compile):
    scale = torch.tensor(3.0)
    w = nn.Parameter(torch.ones(3))

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, mode):
            ctx.mode = mode
            ctx.save_for_backward(x)
            return x * scale if mode == "a" else x - scale

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return (g * scale * x if ctx.mode == "a" else g), None

    f = compile(lambda x: Scaled.apply(x * w, "a") + Scaled.apply(x, "b"))
    x = torch.ones(3, requires_grad=True)
    f(x).sum().backward()
    return x.grad, w.grad


@program
def nested_functions(compile):
    class Outer(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return Cube.apply(x) + 1

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return Cube.apply(g) * x

    x = torch.ones(3, requires_grad=True)
    compile(lambda x: Outer.apply(x))(x).sum().backward()
    return x.grad


@program
def backward_with_effects(compile):
    seen = []

    class Loud(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            seen.append("forward")
            return x * 2

        @staticmethod
        def backward(ctx, g):
            seen.append("backward")
            return g * 2

    x = torch.ones(3, requires_grad=True)
    f = compile(lambda x: Loud.apply(x).sum())
    for _ in range(2):
        f(x).backward()
    return x.grad, seen


@program
def function_errors(compile):
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, n):
            if n > 1:
                raise ValueError("too many")
            return x * n

        @staticmethod
        def backward(ctx, g):
            return g, None, None, None, g

    f = compile(lambda x, n: Bad.apply(x, n).sum())
    x = torch.ones(3, requires_grad=True)
    out = call(f, x, 2), f(x, 1)
    return out, call(lambda: f(x, 1).backward())[:3]


@program
def differentiated_twice(compile):
    def f(x, w):
        return (Cube.apply(x * w, 2.0) * x).sum()

    f = compile(f, fullgraph=True)
    x, w = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    (g,) = torch.autograd.grad(f(x, w), x, create_graph=True)
    g.pow(2).sum().backward()
    return g, x.grad, w.grad


@program
def gradients_in_other_layouts(compile):
    class Through(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.t() * 2, x.sum(0)

        @staticmethod
        def backward(ctx, a, b):
            (x,) = ctx.saved_tensors
            return a.t().contiguous().view(-1).view_as(x) * 3 + b.view(1, -1) * 5

    f = compile(lambda x: Through.apply(x), fullgraph=True)
    grads = []
    for use in (lambda a, b: a.sum(), lambda a, b: b.sum(), lambda a, b: (a.t() * 2).sum() + b.pow(2).sum()):
        x = torch.arange(6.0).view(2, 3).requires_grad_()
        use(*f(x)).backward()
        grads.append(x.grad)
    return grads


@program
def one_tensor_twice(compile):
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return g * b * 2, g * a * 3

    x = torch.randn(3, requires_grad=True)
    compile(lambda x: Product.apply(x, x).sum())(x).backward()
    return x.grad


@program
def frozen_and_thawed(compile):
    m = nn.Linear(3, 3)
    f = compile(lambda x: Cube.apply(m(x)).sum(), fullgraph=True)
    grads = []
    for frozen in (False, True, False):
        m.requires_grad_(not frozen)
        x = torch.ones(2, 3, requires_grad=True)
        f(x).backward()
        grads.append((x.grad, m.weight.grad))
        m.weight.grad = None
    return grads


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


@pytest.mark.parametrize("name", program)
def test_a_program_with_gradients_is_the_program(name: str) -> None:
    check(program[name])
