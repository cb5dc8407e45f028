"""Programs about torch.autograd.Function: contexts, saved tensors, outputs that are inputs, errors."""
# mypy: ignore-errors

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch.autograd.function import once_differentiable

from ..checking import Programs, call, check, check_engine

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


class Scaled(torch.autograd.Function):
    """It saves a number only, so that its backward may run again."""

    @staticmethod
    def forward(ctx, x, by):
        ctx.by = by
        return x * by

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.by, None


@program
def what_saves_nothing_is_differentiated_again_behind_a_break(compile):
    def f(x):
        scaled = Scaled.apply(x, 3)
        for _ in range(3):
            (scaled + 1).sum().backward()
        return scaled

    x = torch.randn(3, requires_grad=True)
    out = compile(f)(x)
    out.sum().backward()
    return out, x.grad


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

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, mask, b, other, c):
            ctx.same = a is b, a is c, mask is other
            ctx.save_for_backward(mask)
            return a * mask + b + c

        @staticmethod
        def backward(ctx, g):
            (mask,) = ctx.saved_tensors
            assert ctx.same == (True, True, True)
            return g * mask * 0.1, None, g * 0.7, None, g / 3

    def f(x, mask):
        y = x * 1.5
        return Product.apply(x, x).sum() + (Sum.apply(y, mask, y, mask, y) * y).sum()

    x = torch.randn(3, requires_grad=True)
    compile(f, fullgraph=True)(x, torch.rand(3)).backward()
    return x.grad


@program
def one_tensor_twice_that_is_changed(compile):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.mark_dirty(a)
            return a.mul_(2)

        @staticmethod
        def backward(ctx, g):
            return g * 2, g * 5

    def f(x):
        y = x * 1.5
        return Double.apply(y, y) * y

    x = torch.ones(3, requires_grad=True)
    out = call(compile(f), x)
    if isinstance(out, torch.Tensor):
        out.sum().backward()
    return out, x.grad


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
def a_backward_that_writes_to_the_gradient(compile):
    """It may be an expanded one, which autograd refuses to write to, or another branch's too."""

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            return g.mul_(2)

    def gradient(x, y):
        Twice.apply(x).add(y).sum().backward()

    def shared(x, y):
        (Twice.apply(x) + y).backward(torch.ones(3))

    results = []
    for fn in (gradient, shared):
        x, y = (torch.arange(3.0, requires_grad=True) for _ in range(2))
        raised = call(compile(fn), x, y)
        results.append((raised and raised[:2], x.grad, y.grad))
    return results


@program
def indices_that_stay_tensors(compile):
    """How transformers makes a mask of a function of positions."""

    def f(allowed, n):
        def mask(batch, q, k):
            return (q >= k) & allowed[batch, k]

        for dims in ((None, None, 0), (None, 0, None), (0, None, None)):
            mask = torch.vmap(mask, in_dims=dims)
        with TransformGetItemToIndex():
            return mask(torch.arange(len(allowed)), torch.arange(n), torch.arange(n)), allowed[n - 2]

    return compile(f, fullgraph=True)(torch.tensor([[True, True, False], [False, True, True]]), 3)


@program
def nothing_flows_back(compile):
    """A Function gets zeros, or None if it asked for that, also where another graph of ours visits it with None."""
    class Rounded(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, grad):
            return grad.clone()

    class Aware(Rounded):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x.round()

        @staticmethod
        def backward(ctx, grad):
            return None if grad is None else grad * 3

    class First(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, grad):
            return grad, None

    def gradients(through, use, history):
        x, y = (torch.arange(3.0, requires_grad=True) for _ in range(2))
        use(through, x, y).sum().backward(create_graph=history)
        return [None if t.grad is None else t.grad.detach() for t in (x, y)]

    def whole(function, x, y):
        return compile(lambda x, y: First.apply(x, function.apply(y * 2)))(x, y)

    def apart(function, x, y):
        first, second = compile(lambda y: (function.apply(y * 2), function.apply(y.sin())))(y)
        return compile(First.apply)(x, first) + First.apply(x, second)

    def used(function, x, y):
        return compile(lambda y: function.apply(y).sin())(x + y)

    each = [(function, use) for function in (Rounded, Aware) for use in (whole, apart, used)]
    return [gradients(*pair, history) for pair in each for history in (False, True)]


@program
def in_inference_mode_with_gradients_on(compile):
    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, n):
            return x.round() * n

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2, None

    @torch.inference_mode()
    def inner(x):
        torch.set_grad_enabled(True)
        return Straight.apply(x.clone().requires_grad_(), 2)

    return compile(lambda x: inner(x + 1) * 3)(torch.arange(4.0))


@pytest.mark.parametrize("name", program)
def test_a_program_with_autograd_functions_is_the_program(name: str) -> None:
    check(program[name])


def test_the_engine_has_gradients_of_zeros_where_eager_has() -> None:
    check_engine(program["nothing_flows_back"])
