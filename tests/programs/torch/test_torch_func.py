"""Programs about torch.func: transforms of functions, alone and nested, with closures, state and random numbers."""
# mypy: ignore-errors

from __future__ import annotations

from collections import namedtuple
from functools import partial

import pytest
import torch
import torch.nn as nn
from torch.autograd import forward_ad
from torch.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)

from ..checking import Programs, call, check, check_engine, check_whole

program, whole = Programs(), Programs()
Pair = namedtuple("Pair", ["a", "b"])


@program
def levels_of_forward_ad_that_are_broken_or_around(compile):
    """A break in a level, tensors with tangents across it, a level around the call, a second one inside."""
    def broken(x):
        with forward_ad.dual_level():
            y = x * 2
            print(end="")
            y = y + x
        return y * 2

    def tangent(x):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, x + 1)
            print(end="")
            return forward_ad.unpack_dual(dual * dual).tangent

    def square(x):
        return x * x + 1

    def level(x):
        with forward_ad.dual_level():
            return x * 3

    x = torch.arange(3.0)
    found = [f(x) for f in map(compile, (broken, tangent, broken, tangent))]
    square, level = compile(square), compile(level)
    found += [square(x), level(x)]
    with forward_ad.dual_level():
        found.append(forward_ad.unpack_dual(square(forward_ad.make_dual(x, x + 1))).tangent)
        found.append(call(level, x))
    return [*found, square(x), level(x), forward_ad._current_level]


@program
def vmaps(compile):
    w = torch.randn(3, 2)

    def f(x, y):
        a = vmap(torch.dot)(x, y)
        b = vmap(lambda u: (u @ w).tanh())(x)
        c = vmap(lambda u, v: u * v, in_dims=(0, 1), out_dims=1)(x, y.t())
        d = vmap(lambda u, k: {"s": u.sum(), "p": (u * k, u + 1)}, in_dims=(0, None), out_dims=0)(x, 2.0)
        e = torch.vmap(lambda u: u.view(-1).sum(), in_dims=-1)(x)
        return a, b, c, d, e

    f = compile(f, fullgraph=True)
    return f(torch.randn(4, 3), torch.randn(4, 3)), f(torch.randn(5, 3), torch.randn(5, 3))


@program
def vmap_with_gradients(compile):
    w = nn.Parameter(torch.randn(3))
    f = compile(lambda x: vmap(lambda u: (u * w).sin().sum())(x), fullgraph=True)
    x = torch.randn(4, 3, requires_grad=True)
    out = f(x)
    out.sum().backward()
    return out, x.grad, w.grad


@program
def nested_vmaps(compile):
    def mask(b, h, q, k):
        return (q >= k) & (b + h >= 0)

    def f(n):
        g = mask
        for dims in ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None)):
            g = vmap(g, in_dims=dims, out_dims=0)
        return g(torch.arange(2), torch.arange(3), torch.arange(n), torch.arange(n))

    return compile(f, fullgraph=True)(5)


@program
def vmap_inputs(compile):
    def f(t):
        a = vmap(lambda d: d["x"] * d["y"][0], in_dims=({"x": 0, "y": [None]},))(t)
        b = vmap(lambda p: Pair(p.a + 1, p.b * 2))(Pair(t["x"], t["x"]))
        return a, b

    return compile(f, fullgraph=True)({"x": torch.randn(3, 2), "y": [torch.ones(2)]})


@program
def vmap_randomness(compile):
    def f(x):
        a = vmap(lambda u: u + torch.rand(2), randomness="different")(x)
        b = vmap(lambda u: u + torch.rand(2), randomness="same")(x)
        c = vmap(lambda u: torch.nn.functional.dropout(u, 0.5), randomness="different")(x)
        return a, b, c

    return compile(f)(torch.zeros(3, 2)), torch.rand(1)


@program
def vmap_chunks_and_indexing(compile):
    def f(x, i):
        a = vmap(lambda u: u.cos(), chunk_size=2)(x)
        b = vmap(lambda u, j: u[j], in_dims=(0, 0))(x, i)
        c = vmap(lambda u: torch.where(u > 0, u, -u).cumsum(0))(x)
        d = vmap(lambda u: torch.zeros(3).scatter_add(0, torch.tensor([0, 1]), u[:2]))(x)
        return a, b, c, d

    return compile(f)(torch.randn(5, 3), torch.tensor([0, 1, 2, 1, 0]))


@program
def vmap_over_a_module(compile):
    m = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    f = compile(lambda x: vmap(m)(x), fullgraph=True)
    x = torch.randn(5, 3)
    out = f(x)
    out.sum().backward()
    return out, m[0].weight.grad


@program
def grads(compile):
    w = torch.randn(3)

    def loss(x, y):
        return ((x * w).sin() * y).sum()

    def f(x, y):
        a = grad(loss)(x, y)
        b = grad(loss, argnums=(0, 1))(x, y)
        c, value = grad_and_value(loss, argnums=1)(x, y)
        d, aux = grad(lambda t: ((t**3).sum(), {"k": t * 2}), has_aux=True)(x)
        e = grad(lambda t: grad(lambda s: (s**4).sum())(t).sum())(x)
        return a, b, c, value, d, aux, e

    f = compile(f, fullgraph=True)
    with torch.no_grad():
        quiet = f(torch.randn(3), torch.randn(3))
    return f(torch.randn(3), torch.randn(3)), quiet


@program
def grads_of_grads_outside(compile):
    f = compile(lambda x: grad(lambda t: (t.sin() ** 2).sum())(x), fullgraph=True)
    x = torch.randn(3, requires_grad=True)
    out = f(x)
    out.sum().backward()
    return out, x.grad


@program
def per_sample_gradients(compile):
    m = nn.Linear(3, 1)
    params = {k: v.detach() for k, v in m.named_parameters()}

    def loss(params, x, y):
        return (functional_call(m, params, (x,)) - y).pow(2).mean()

    f = compile(lambda x, y: vmap(grad(loss), in_dims=(None, 0, 0))(params, x, y), fullgraph=True)
    return f(torch.randn(4, 3), torch.randn(4, 1))


@program
def per_sample_gradients_of_an_operator_that_raises_for_some_data(compile):
    m = nn.Linear(3, 2)
    params = {k: v.detach() for k, v in m.named_parameters()}

    def loss(params, x, y):
        return nn.functional.cross_entropy(functional_call(m, params, (x[None],)), y[None])

    f = compile(lambda x, y: vmap(grad(loss), in_dims=(None, 0, 0))(params, x, y), fullgraph=True)
    return f(torch.randn(4, 3), torch.tensor([0, 1, 1, 0]))


@program
def vjps(compile):
    def f(x, y):
        out, pull = vjp(lambda a, b: (a * b, a.sum()), x, y)
        first = pull((torch.ones_like(x), torch.tensor(2.0)))
        out2, pull2, aux = vjp(lambda a: (a.exp(), a), x, has_aux=True)
        return out, first, pull2(out2), aux

    return compile(f, fullgraph=True)(torch.randn(3), torch.randn(3))


@program
def jvps(compile):
    def f(x, t):
        out, tangent = jvp(lambda a: a.sin() * a, (x,), (t,))
        two = jvp(lambda a, b: (a @ b, {"s": a.sum()}), (x, x), (t, t))
        nested = jvp(lambda a: jvp(torch.cos, (a,), (t,))[1], (x,), (t,))
        return out, tangent, two, nested

    return compile(f, fullgraph=True)(torch.randn(3), torch.randn(3))


@program
def jacobians(compile):
    w = torch.randn(4, 3)

    def g(x):
        return (w @ x).tanh()

    def f(x):
        return jacrev(g)(x), jacfwd(g)(x), hessian(lambda t: g(t).sum())(x), jacrev(g, chunk_size=2)(x)

    return compile(f)(torch.randn(3))


@program
def jacobians_whole(compile):
    w = torch.randn(4, 3)

    def g(x):
        return (w @ x).tanh()

    a = compile(lambda x: jacrev(g)(x), fullgraph=True)(torch.randn(3))
    b = compile(lambda x: jacfwd(g)(x), fullgraph=True)(torch.randn(3))
    c = compile(lambda x: vmap(jacrev(g))(x), fullgraph=True)(torch.randn(2, 3))
    return a, b, c


@program
def ensembles(compile):
    models = [nn.Linear(3, 2) for _ in range(3)]
    params, buffers = stack_module_state(models)
    base = models[0]

    def one(params, buffers, x):
        return functional_call(base, (params, buffers), (x,))

    f = compile(lambda x: vmap(one, in_dims=(0, 0, None))(params, buffers, x), fullgraph=True)
    out = f(torch.randn(5, 3))
    out.sum().backward()
    return out, {k: v.grad for k, v in params.items()}


@program
def functionalized(compile):
    def g(x):
        y = x.clone()
        y.add_(1)
        y[0] = 5
        return y * 2

    return compile(lambda x: functionalize(g)(x))(torch.ones(3))


@program
def linearized(compile):
    def f(x):
        out, push = linearize(torch.sin, x)
        return out, push(torch.ones(3))

    return compile(f)(torch.randn(3))


@program
def partials_and_state(compile):
    seen = []

    def g(x, k):
        seen.append(k)
        return (x * k).sum()

    def f(x):
        a = grad(partial(g, k=3.0))(x)
        b = vmap(partial(g, k=2.0))(x)
        return a, b, len(seen)

    f = compile(f, fullgraph=True)
    return f(torch.randn(3, 2)), f(torch.randn(3, 2)), seen


@program
def errors_inside(compile):
    def wrong_size(x, y):
        return vmap(lambda a, b: a + b)(x, y)

    def not_scalar(x):
        return grad(lambda a: a * 2)(x)

    def item(x):
        return vmap(lambda a: a * a.item())(x)

    def raised(x):
        try:
            return vmap(lambda a: {}["missing"])(x)
        except KeyError:
            return x + torch.ones(3)

    def marked(x):
        return jvp(lambda a: (weight.requires_grad_(), a * weight)[1], (x,), (x,))

    x, y, weight = torch.ones(3), torch.ones(4), torch.nn.Parameter(torch.ones(3))
    calls = (wrong_size, (x, y)), (not_scalar, (x,)), (item, (x,)), (marked, (x,))
    out = [call(compile(g), *args)[:3] for g, args in calls]
    return out, compile(raised)(x), vmap(torch.sin)(x), torch._C._functorch.maybe_current_level()


@program
def inside_a_transform(compile):
    f = compile(lambda x: x.sin() * torch.ones(3))
    x = torch.randn(2, 3)
    return vmap(f)(x), grad(lambda t: f(t).sum())(x[0]), f(x[0]), vmap(f)(x), jvp(f, (x[0],), (x[1],))


@program
def tree_functions(compile):
    from torch.utils import _pytree as pytree

    def f(t):
        leaves, spec = pytree.tree_flatten(t)
        doubled = pytree.tree_unflatten([leaf * 2 for leaf in leaves], spec)
        mapped = pytree.tree_map(lambda v: v + 1, t)
        only = pytree.tree_map_only(torch.Tensor, lambda v: v - 1, {"t": t["a"], "n": 4})
        return doubled, mapped, only, spec.num_leaves, pytree.tree_leaves(t), pytree.tree_structure(t) == spec

    pair = Pair(torch.ones(1), torch.ones(2))
    return compile(f, fullgraph=True)({"a": torch.ones(2), "b": [torch.zeros(1), (torch.ones(3), pair)]})


@program
def transforms_leave_the_frame(compile):
    def loss(a: torch.Tensor) -> torch.Tensor:
        """Sum."""
        return a.sum()

    loss.tag = 5

    def fn(x):
        def plain(a: int, b="c") -> float:
            return a

        plain.__name__ = "other"
        made = grad(loss), vmap(torch.cos), vmap(partial(torch.cos)), plain
        return x + made[0](x), made[0].tag, made

    y, tag, made = compile(fn)(torch.ones(3))
    kept = [(f.__name__, f.__qualname__, f.__module__, f.__doc__, f.__annotations__, list(vars(f))) for f in made]
    return y, tag, kept, [torch.ones(2).equal(f(torch.ones(2))) for f in made]


@whole
def inputs_of_any_size_first_met_in_a_transform(compile):
    held = []

    def fn(x):
        def inner(a):
            return (a * held[0] * 2).sum()

        return grad(inner)(x)

    def on(n, made):
        held[:] = [made(torch.arange(3.0 * n).view(n, 3))]
        result = fn(torch.ones(n, 3))
        return result, torch.autograd.grad(result.sum(), held[0]) if result.requires_grad else None

    fn = compile(fn)
    makes = torch.clone, lambda t: t.requires_grad_(), lambda t: t.requires_grad_() * 2
    return [on(n, made) for made in makes for n in (2, 3, 4)]


@program
def tangents_of_expanded_tensors(compile):
    """Eager lays a tangent out as its tensor, and refuses where that has one element in many places."""
    def expanding(p, t):
        return jvp(torch.sin, (p[:1].expand(2, 3),), (t,))

    def level(p, t):
        with forward_ad.dual_level():
            return forward_ad.make_dual(p, t).sin() + 1

    row, full = torch.ones(1, 3).expand(2, 3), torch.arange(6.0).view(2, 3)
    functions = [expanding, level, lambda p, t: jvp(torch.mul, (p, full), (t, full))]
    functions.append(lambda p, t: jvp(vmap(torch.sin), (p,), (t,)))
    return [call(compile(fn), *args)[:2] for fn in functions for args in ((row, full), (full, row), (row, row))]


@program
def dual_tensors_by_name(compile):
    """What makes them takes its arguments by name, too."""
    def fn(p, t):
        with forward_ad.dual_level():
            made = torch._VF._make_dual(tangent=t, primal=p, level=0)
            return made.sin() + forward_ad.unpack_dual(made).tangent

    return call(compile(fn), torch.ones(3), torch.arange(3.0))


@program
def transforms_in_inference_mode(compile):
    """Whether the results are inference tensors hangs on the version of torch; the mode ends with its block."""
    def fn(x, transform):
        with torch.inference_mode():
            result = transform(x)
        return [part.is_inference() for part in result]

    def pulled(x):
        return vjp(torch.mul, x, x + 1)[1](x)

    def failing(x):
        def written(a):
            with torch.inference_mode():
                return torch.linalg.cholesky(a)

        return jvp(written, (x,), (x,))

    function, found = compile(fn), []
    for transform in (pulled, lambda x: jacrev(torch.sin)(x), failing, pulled):
        found.append(call(function, torch.zeros(2, 2), transform)[:2])
        found.append(torch.is_inference_mode_enabled())
    return found


@pytest.mark.parametrize("name", program)
def test_a_program_with_transforms_is_the_program(name: str) -> None:
    check(program[name])


def test_the_engine_refuses_what_eager_refuses_of_tangents() -> None:
    check_engine(program["tangents_of_expanded_tensors"])


@pytest.mark.parametrize("name", whole)
def test_a_program_with_transforms_is_captured_whole(name: str) -> None:
    check_whole(whole[name])
