"""Programs about hooks of modules: forward, backward, global, of their tensors, and those of parametrizations."""
# mypy: ignore-errors

from __future__ import annotations

import warnings

import ptdebug
import pytest
import torch
import torch.nn as nn
from torch._higher_order_ops import while_loop
from torch.nn.utils import parametrizations, parametrize

from ..checking import Programs, check, trained

program = Programs()


@program
def forward_hooks(compile):
    m = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    log = []
    m[0].register_forward_pre_hook(lambda mod, args: (args[0] + 1,))
    m[1].register_forward_hook(lambda mod, args, out: out * 2)
    m[2].register_forward_hook(lambda mod, args, out: log.append(tuple(out.shape)))
    m[2].register_forward_pre_hook(lambda mod, args, kwargs: (args, kwargs), with_kwargs=True)
    m[2].register_forward_hook(lambda mod, args, kwargs, out: out - 1, with_kwargs=True, prepend=True)
    f = compile(m, fullgraph=True)
    out = f(torch.randn(2, 3))
    return out, trained(m, out), f(torch.randn(4, 3)), log


@program
def hook_removed(compile):
    m = nn.Linear(3, 3)
    f = compile(m, fullgraph=True)
    out = [f(torch.ones(1, 3))]
    handle = m.register_forward_hook(lambda mod, args, o: o * 10)
    out.append(f(torch.ones(1, 3)))
    handle.remove()
    out.append(f(torch.ones(1, 3)))
    return out


@program
def global_hooks(compile):
    m = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    seen = []
    f = compile(lambda x: m(x))
    out = [f(torch.ones(1, 3))]
    h1 = nn.modules.module.register_module_forward_pre_hook(lambda mod, args: seen.append(type(mod).__name__))
    h2 = nn.modules.module.register_module_forward_hook(lambda mod, args, o: o + 1)
    try:
        out.append(f(torch.ones(1, 3)))
    finally:
        h1.remove()
        h2.remove()
    out.append(f(torch.ones(1, 3)))
    return out, seen


@program
def global_hooks_removed_before_an_operator_that_takes_functions(compile):
    def fn(x, n):
        handle = nn.modules.module.register_module_forward_hook(lambda *_: seen.append("ran"))
        y = m(x)
        print("break")
        handle.remove()
        return while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, a * 2), (n, y))[1]

    m, seen = nn.Tanh(), []
    return compile(fn)(torch.ones(2), torch.tensor(0)), seen


@program
def backward_hooks(compile):
    m = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    seen = []
    m[1].register_full_backward_hook(lambda mod, gi, go: (gi[0] * 2,))
    m[2].register_full_backward_hook(lambda mod, gi, go: seen.append(go[0].clone()))
    m[0].register_full_backward_pre_hook(lambda mod, go: (go[0] * 3,))
    f = compile(m)
    out = f(torch.randn(2, 3))
    return out, trained(m, out), seen


@program
def a_backward_hook_between_calls(compile):
    """Of the whole module, of one inside of it, of neither again."""
    m, seen = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1)), []
    f, out = compile(m), []
    for of in (m, m[0], m[2], m):
        for register in (of.register_full_backward_hook, of.register_full_backward_pre_hook):
            handle = register(lambda mod, *grads: seen.append((type(mod).__name__, len(grads))))
            f(torch.ones(2, 3, requires_grad=True)).sum().backward()
            handle.remove()
            out.append(f(torch.ones(2, 3)))
    return out, seen, trained(m, out[-1])


@program
def tensor_hooks(compile):
    seen = []

    def f(x):
        y = x * 2
        y.register_hook(lambda g: g * 10)
        y.retain_grad()
        z = y.sin()
        z.register_hook(lambda g: seen.append(g.clone()))
        return z, y

    x = torch.ones(3, requires_grad=True)
    z, y = compile(f)(x)
    z.sum().backward()
    return x.grad, y.grad, seen


@program
def parametrized(compile):
    class Symmetric(nn.Module):
        def forward(self, w):
            return w.triu() + w.triu(1).T

    m = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
    parametrize.register_parametrization(m[0], "weight", Symmetric())
    parametrizations.weight_norm(m[1])
    parametrizations.spectral_norm(m[2])
    f = compile(m, fullgraph=True)
    out = f(torch.randn(2, 3))
    grads = trained(m, out)
    m.eval()
    with torch.no_grad():
        return out, grads, f(torch.randn(2, 3)), m.state_dict()


@program
def old_weight_norm(compile):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m = nn.Sequential(nn.utils.weight_norm(nn.Linear(3, 3)), nn.utils.spectral_norm(nn.Linear(3, 3)))
    f = compile(m)
    out = f(torch.randn(2, 3))
    return out, trained(m, out), m[1].weight_u


@program
def cached_parametrization(compile):
    class Double(nn.Module):
        def forward(self, w):
            return w * 2

    m = nn.Linear(3, 3)
    parametrize.register_parametrization(m, "weight", Double())

    def f(x):
        with parametrize.cached():
            return m(x) + m(x)

    return compile(f)(torch.ones(1, 3)), parametrize._cache_enabled


@program
def hooks_that_run_after_an_exception_too(compile):
    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError("inside")

    m, seen = Fails(), []
    m.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
    m.register_forward_hook(lambda m, args, out: seen.append("not called"))

    def f(x):
        try:
            m(x)
        except ValueError as error:
            return x + 1, str(error)

    return compile(f)(torch.ones(2)), seen


def added(module, args, out):
    return out + 1


def doubled(module, args, out):
    return out * 2


@program
def hooks_that_come_and_go(compile):
    m = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    f, x, out = compile(m), torch.ones(2, 3), []

    def with_hooks(*hooks, **options):
        handles = [m[0].register_forward_hook(hook, **options) for hook in hooks]
        out.append(f(x))
        for handle in handles:
            handle.remove()

    for hooks in ((added,), (added, doubled), (doubled, added), (added,), (), (doubled,), (added, doubled)):
        with_hooks(*hooks)
    for _ in range(2):
        with_hooks(lambda m, args, kwargs, out: out + len(kwargs), with_kwargs=True)
        left = m[0].register_forward_hook(lambda m, args, kwargs, out: out + len(args), with_kwargs=True)
        with_hooks(added)
        left.remove()
    return out


@program
def hooks_that_the_function_registers(compile):
    m, x, handles = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.ones(2, 3), []

    def kept(x):
        handles.append(m[0].register_forward_hook(added))
        return m(x)

    def swapped(x):
        handles.pop().remove()
        handles.append(m[1].register_forward_hook(doubled))
        return m(x)

    f, g = compile(kept), compile(swapped)
    out = [f(x) for _ in range(3)] + [g(x) for _ in range(4)]
    while handles:
        handles.pop().remove()
    return out, f(x), [len(layer._forward_hooks) for layer in m]


@program
def hooks_that_are_asked_for_by_their_number(compile):
    m, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.ones(2, 3)
    first = m[0].register_forward_hook(added)
    number = first.id

    def fn(x):
        return m(x), number in m[0]._forward_hooks, m[0]._forward_hooks.get(number) is added

    f = compile(fn)
    out = [f(x)]
    first.remove()
    m[0].register_forward_hook(added)
    return [*out, f(x)]


@program
def hooks_of_an_optimizer_add_up(compile):
    weight, steps = torch.ones(2, requires_grad=True), []
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def fn(x):
        optimizer.register_step_post_hook(lambda *args: steps.append(1))
        return x + 1

    f = compile(fn)
    out = [f(torch.ones(2)) for _ in range(3)]
    weight.sum().backward()
    optimizer.step()
    return out, steps


def test_hooks_that_are_taken_off_and_put_back_need_no_other_compilation() -> None:
    m, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.ones(2, 3)

    def inside(x):
        handle = m[1].register_forward_hook(doubled)
        out = m(x)
        handle.remove()
        return out - m(x)

    f, g = ptdebug.compile(m), ptdebug.compile(inside, fullgraph=True)
    before = ptdebug.stats()["graphs"]
    for _ in range(4):
        handle = m[0].register_forward_hook(added)
        torch.testing.assert_close(f(x), m(x))
        torch.testing.assert_close(g(x), inside(x))
        handle.remove()
    assert ptdebug.stats()["graphs"] == before + 2


@pytest.mark.parametrize("name", program)
def test_a_program_with_hooks_of_modules_is_the_program(name: str) -> None:
    check(program[name])
