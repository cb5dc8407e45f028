"""Programs with a say in what torch does: subclasses of Tensor, `__torch_function__`, torch function modes."""
# mypy: ignore-errors

from __future__ import annotations

from typing import Any

import ptdebug
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from ptdebug.tracer.runtime.statistics import STATISTICS

from ..checking import Programs, call, check, check_engine
from .log_mode import Log
from .wrapper_classes import Wrapped

program, whole = Programs(), Programs()


class Sub(torch.Tensor):
    """Only data."""


class Tag(torch.Tensor):
    """Counts the operations behind a tensor."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(out, Tag):
            out.tag = max([getattr(a, "tag", 0) for a in args if isinstance(a, Tag)] + [0]) + 1
        return out

    def doubled(self):
        return self * 2

    @property
    def level(self):
        return getattr(self, "tag", -1)


class Named(torch.Tensor):
    """Notes what it is asked; results are plain."""

    log: list[Any] = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Named.log.append((getattr(func, "__name__", "?"), [t.__name__ for t in types], len(args), sorted(kwargs or {})))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Duck:
    """Not a tensor, but with a say in torch's functions."""

    def __init__(self, data, unit="m"):
        self.data = data
        self.unit = unit

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in (torch.cat, torch.stack):
            return cls(func([a.data for a in args[0]], *args[1:]), args[0][0].unit)
        if func is torch.numel:
            return NotImplemented
        plain = [a.data if isinstance(a, Duck) else a for a in args]
        return Duck(func(*plain, **(kwargs or {})), "?")

    def __add__(self, other):
        return torch.add(self, other)

    def __radd__(self, other):
        return torch.add(other, self)


def data(cls, *shape):
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape).as_subclass(cls)


def plain(tensor):
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(torch.Tensor)


@whole
def results_have_the_class(compile):
    f = compile(lambda x, y: (torch.sin(x + y) * 2, x.max(0), x.sort().values, torch.unbind(x), x.shape, x.T, x.data))
    a, b, c, d, e, g, h = f(data(Sub, 2, 3), torch.ones(2, 3))
    kinds = [type(t).__name__ for t in (a, b.values, c, d[0], g, h)], type(b).__name__, type(e).__name__
    return kinds, [plain(t) for t in (a, b.values, b.indices, c, *d)], e, a.__dict__


@whole
def attributes_are_kept(compile):
    x = data(Tag, 3)
    x.tag = 4
    f = compile(lambda x: (x + 1).doubled())
    out = f(x)
    return type(out).__name__, out.tag, out.level, plain(out), f(data(Tag, 2)).tag


@whole
def every_call_asks(compile):
    def f(x, y):
        out = [y + x, x - 1, 2 - x, x**2, 2**x, x[0], F.relu(x), F.linear(x, weight=y.expand(3, 3)), -x, x.split(1)]
        out += [torch.cat([y, x]), x.sum(), x.shape, x.T, F.softmax(input=x, dim=0), torch.where(x > 1, x, y)]
        x[1] = 3
        a, b, c = x
        out += [a, b, c, x.view(-1, 1) @ x.view(1, -1)]
        x += 1
        return out, x.add_(y) is x, x.dim(), x.dtype, x.device, x.is_leaf, x.requires_grad, len(x)

    Named.log.clear()
    x = data(Named, 3)
    out, *rest = compile(f)(x, torch.ones(3))
    return [type(o) for o in out], [o for o in out if type(o) is torch.Tensor], rest, list(Named.log), plain(x)


@whole
def types_and_instances(compile):
    def f(x, y):
        z = x * y
        return type(x) is Sub, isinstance(x, Sub), isinstance(z, torch.Tensor), type(z).__name__, x.__class__.__name__

    return compile(f)(data(Sub, 3), torch.ones(3))


@whole
def gradients(compile):
    x = torch.ones(3, requires_grad=True)
    leaf = torch.ones(3).as_subclass(Sub).requires_grad_()
    w = torch.full((3,), 2.0, requires_grad=True)
    out = compile(lambda s, t, w: (s * w).sin().sum() + (t * t).sum())(x.as_subclass(Sub), leaf, w)
    out.backward()
    return type(out).__name__, type(x.grad), plain(leaf.grad), leaf.is_leaf, x.grad, w.grad


@whole
def made_inside(compile):
    class WithLabel(torch.Tensor):
        def __new__(cls, data, label):
            return torch.Tensor._make_subclass(cls, data)

        def __init__(self, data, label):
            self.label = label

    def f(x):
        s = x.as_subclass(Tag)
        s.tag = 3
        y = s + 1
        return y, s, y.level, WithLabel(x * 2, "q"), Sub(x), s.as_subclass(Tag) is s

    y, s, level, n, k, same = compile(f)(torch.ones(3))
    kinds = [type(t).__name__ for t in (y, s, n, k)]
    return kinds, y.tag, s.tag, level, n.label, same, [plain(t) for t in (y, s, n, k)]


@whole
def with_and_without_gradients(compile):
    w = torch.ones(3, requires_grad=True)

    def f(w):
        with torch.no_grad():
            s = w.as_subclass(Sub)
        t = w.as_subclass(Sub)
        return s, t, t * 2

    s, t, u = compile(f)(w)
    return s.requires_grad, t.requires_grad, u.requires_grad, t.is_leaf, s.grad_fn, type(t.grad_fn).__name__


@whole
def kinds_of_parameters(compile):
    class Scaled(nn.Parameter):
        def scaled(self):
            return self * self.scale

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = Scaled(torch.ones(3))
            self.p.scale = 3

        def forward(self, x):
            return self.p.scaled() + x, isinstance(self.p, Scaled), type(self.p + 1)

    m = Model()
    out = compile(m)(torch.ones(3))
    out[0].sum().backward()
    return out, m.p.grad


@whole
def in_place(compile):
    def f(x):
        y = x.add_(1)
        x.mul_(2)
        x[0] = 5
        v = x.view(-1)
        v += 1
        return y is x, v

    x = data(Tag, 3)
    x.tag = 1
    same, v = compile(f)(x)
    return same, type(v).__name__, v.tag, x.tag, plain(x), plain(v), type(x).__name__


@whole
def modules(compile):
    m = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.LayerNorm(3))
    out = compile(m)(data(Sub, 2, 3))
    return type(out).__name__, plain(out)


@program
def across_a_break(compile):
    def f(x):
        y = x + 1
        y.note = "n"
        print("here")
        z = y * 2
        return y, z, y.note

    y, z, note = compile(f)(data(Sub, 3))
    return y.note, note, type(z).__name__, plain(z), plain(y)


@whole
def two_kinds(compile):
    class A(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if any(t is B for t in types):
                return NotImplemented
            return super().__torch_function__(func, types, args, kwargs)

    class B(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {})).as_subclass(B), [t.__name__ for t in types]

    class AA(A):
        pass

    of_b, kinds = compile(lambda a, b: torch.add(a, b))(data(A, 2), data(B, 2))
    out = compile(lambda a, b: a + b)(data(A, 2), data(AA, 2))
    return type(of_b).__name__, kinds, type(out).__name__


@whole
def many_kinds_of_one_argument(compile):
    f = compile(lambda x: x + 1)
    kinds = [type(f(data(c, 3))).__name__ for c in (Sub, torch.Tensor, Tag, Sub)]
    sizes = [f(data(Sub, n)).shape for n in (3, 4, 5)]
    with torch._C.DisableTorchFunctionSubclass():
        kinds.append(type(f(data(Sub, 3))).__name__)
    return kinds, sizes, type(f(data(Sub, 3))).__name__


@program
def special_methods(compile):
    class S(torch.Tensor):
        def __add__(self, o):
            return torch.mul(self, o)

        def __getitem__(self, i):
            return "item"

        def __len__(self):
            return 7

        def __neg__(self):
            return "neg"

        def __getattr__(self, n):
            return "got " + n

        def sum(self):
            return super().sum() + 100

        def __call__(self, x):
            return x * self

    def f(x, y):
        return x[0], len(x), -x, x.what, x.sum(), x(y)

    first = compile(f)(data(S, 2), torch.ones(2))
    added = [compile(g)(data(S, 2)) for g in (lambda x: x + 3, lambda x: 3 + x, lambda x: torch.ones(2) + x)]
    return first[:4], [plain(t) for t in (*first[4:], *added)]


@program
def an_override_raises(compile):
    class NoExp(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is torch.exp:
                raise ValueError("no exp")
            return super().__torch_function__(func, types, args, kwargs or {})

    def f(x):
        try:
            return torch.exp(x)
        except ValueError as e:
            return str(e), type(torch.sin(x)).__name__

    return compile(f)(data(NoExp, 2)), call(compile(lambda x: torch.exp(x)), data(NoExp, 2))[:3]


@whole
def ducks(compile):
    def f(d, x):
        more = torch.stack([Duck(x, "s"), d], 0), torch.matmul(x, d), d + x, F.relu(d)
        return torch.sin(d), d + 1, torch.cat([d, d]), x + d, x * d, more

    return compile(f)(Duck(torch.ones(3)), torch.ones(3))


@program
def a_duck_declines(compile):
    return call(compile(lambda d: torch.numel(d)), Duck(torch.ones(3)))


@whole
def modes_and_subclasses(compile):
    log = Log()

    def f(x):
        with log:
            y = x + 1
        return y, y.tag

    y, tag = compile(f)(data(Tag, 2))
    return plain(y), tag, type(y).__name__, log.names


class Rounded(torch.autograd.Function):
    """Rounds, and lets gradients through."""

    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@program
def functions_of_autograd(compile):
    @compile
    def f(x):
        y = Rounded.apply(x.as_subclass(Sub))
        return y, type(y).__name__, y * 2

    x = torch.tensor([0.4, 1.6], requires_grad=True)
    results = f(x)
    results[2].sum().backward()
    return results[0].detach(), results[1], type(results[2]).__name__, x.grad, f(x.detach())


@program
def what_a_class_is_asked_is_what_eager_asks(compile):
    """`__len__` by list and tuple, `__float__` by float; and nobody asks for the trace, or for its guards."""
    asked = []

    class Listens(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            asked.append(function.__name__)
            return super().__torch_function__(function, types, args, kwargs or {})

    x = torch.ones(3).as_subclass(Listens)
    questions = (
        list, tuple, lambda x: [*x], lambda x: x.grad, lambda x: x.grad_fn, lambda x: x.is_leaf, lambda x: float(x[0])
    )
    for question in questions:
        f = compile(lambda x, question=question: (question(x), torch.ones(2) + 1))
        f(x), f(x)
        asked.append("next")
    return asked


@pytest.mark.parametrize("name", program | whole)
def test_a_program_with_overrides_is_the_program(name: str) -> None:
    STATISTICS.clear()
    check((program | whole)[name])
    assert not STATISTICS.graph_breaks or name not in whole


@pytest.mark.parametrize("name", ["attributes_are_kept", "gradients", "in_place", "made_inside"])
def test_the_engine_gives_the_same(name: str) -> None:
    check_engine((program | whole)[name])


def test_a_class_with_dispatch_of_its_own_breaks_the_graph() -> None:
    STATISTICS.clear()
    out = ptdebug.compile(lambda w: w + 1)(Wrapped(torch.ones(2)))
    assert type(out) is Wrapped and out.inner.tolist() == [2.0, 2.0]
    assert any("which has __torch_dispatch__" in reason for reason in STATISTICS.reasons)


def test_what_is_left_of_a_transform_in_the_programs_class_is_no_input():
    """It is a view of what is wrapped."""

    def left_of_a_transform(compile):
        kept = []

        def f(x):
            def inner(a):
                kept.append(torch.cat([kept.pop() if kept else x.as_subclass(Sub), (a * 2).real])[-2:])
                return a * 3

            return torch.func.jvp(inner, (x,), (x,))[1], len(kept)

        fast = compile(f)
        return [call(fast, torch.ones(2)) for _ in range(3)], [type(t).__name__ for t in kept]

    STATISTICS.clear()
    check(left_of_a_transform)
    assert not [reason for reason in STATISTICS.reasons if reason.startswith("internal error")]
