"""Programs that decorate what compile and disable return, and call that inside of compiled functions."""

# mypy: ignore-errors

from __future__ import annotations

import contextlib
import functools
import types

import pytest
import torch

from ..checking import Programs, check

program = Programs()
X = torch.ones(2)


def f(x):
    return x * 2


@program
def a_mode_around_a_compiled_function(compile):
    g = torch.no_grad()(compile(f))
    h = compile(lambda x: g(x) + 1)
    x = X.clone().requires_grad_()
    return [h(x), g(x), h(x).requires_grad]


@program
def a_wrapper_with_the_attributes_of_what_it_wraps(compile):
    c = compile(f)
    w = functools.wraps(c)(lambda x: c(x) * 3)
    h = compile(lambda x: w(x))
    return [h(X), w(X)]


@program
def a_wrapper_of_a_wrapper(compile):
    c = compile(f)
    w = functools.wraps(c)(lambda x: c(x) * 3)
    v = functools.wraps(w)(lambda x: w(x) + 5)
    h = compile(lambda x: v(x))
    return [h(X), v(X)]


@program
def compiled_wrappers_of_compiled_functions(compile):
    c = compile(f)
    w = compile(functools.wraps(c)(lambda x: c(x) * 3))
    v = compile(functools.wraps(w)(lambda x: w(x) + 5))
    h = compile(lambda x: v(x))
    return [h(X), v(X), w(X)]


@program
def decorated_methods(compile):
    class A:
        k = 3

        def m(self, x):
            return x * self.k

        m = compile(m)

        @torch.no_grad()
        @compile
        def n(self, x):
            return x * self.k

        def o(self, x):
            return x * self.k

        c = compile(o)

        @functools.wraps(c)
        def o(self, x, c=c):
            return c(self, x) + 7

        del c

    a = A()
    x = X.clone().requires_grad_()
    h = compile(lambda x: (a.m(x), a.n(x), a.o(x)))
    return [h(x), a.m(x), a.n(x), a.o(x)]


@program
def decorated_class_and_static_methods(compile):
    class A:
        k = 3

        @classmethod
        @torch.no_grad()
        @compile
        def n(cls, x):
            return x * cls.k

        @staticmethod
        @torch.no_grad()
        @compile
        def s(x):
            return x * 4

        @property
        @torch.no_grad()
        @compile
        def p(self):
            return X * 5

    x = X.clone().requires_grad_()
    a = A()
    h = compile(lambda x: (A.n(x), a.n(x), a.s(x), A.s(x), a.p))
    return [h(x)]


@program
def a_decorated_forward(compile):
    class M(torch.nn.Module):
        @torch.no_grad()
        @compile
        def forward(self, x):
            return x * 2

    m = M()
    x = X.clone().requires_grad_()
    h = compile(lambda x: m(x) + 1)
    return [h(x), m(x)]


@program
def wrappers_made_inside(compile):
    def base(x: int) -> str:
        """A text."""
        return x

    base.z, base.b = 1, 2

    def fn(x):
        @functools.wraps(base)
        def first(*args):
            return base(*args)

        first.own = 5

        def second(*args):
            return 1

        second.before = 0
        second = functools.update_wrapper(second, first)
        del second.z
        second.last = 9
        return x + 1, first, second

    y, first, second = compile(fn)(torch.ones(2))
    seen = [(f.__name__, f.__doc__, f.__annotations__, list(vars(f)), f.__qualname__) for f in (first, second)]
    return y, seen, first.__wrapped__ is base, second.__wrapped__ is first


@program
def a_forward_that_wraps_the_old_one(compile):
    m = torch.nn.Linear(2, 2)
    c = compile(m.forward)
    m.forward = functools.wraps(c)(lambda x: c(x) * 3)
    h = compile(lambda x: m(x) + 1)
    return [h(X), m(X)]


@program
def a_wrapper_of_a_disabled_function(compile):
    d = torch.compiler.disable(f)
    w = functools.wraps(d)(lambda x: d(x) * 3)
    h = compile(lambda x: w(x) + 1)
    n = torch.no_grad()(d)
    h2 = compile(lambda x: n(x) + 1)
    return [h(X), w(X), h2(X.clone().requires_grad_())]


@program
def a_disabled_wrapper(compile):
    c = compile(f)
    d = torch.compiler.disable(c)
    w = functools.wraps(d)(lambda x: d(x) * 3)
    h = compile(lambda x: w(x) + 1)
    e = compile(torch.compiler.disable(functools.wraps(c)(lambda x: c(x) * 3)))
    k = compile(lambda x: e(x) + 1)
    return [h(X), w(X), e(X), k(X)]


@program
def gradients_of_gradients(compile):
    g = torch.func.grad
    return compile(g(g(compile(lambda x: (x**3).sum()))))(torch.tensor(0.5))


@program
def transforms_of_compiled_functions(compile):
    g = torch.func.grad
    c = g(compile(lambda x: (x**3).sum()))
    return [
        compile(lambda x: c(x) * 2)(X),
        compile(torch.func.vmap(compile(g(compile(lambda x: x**3)))))(X * 3),
        compile(torch.vmap(torch.func.grad(compile(torch.sin))))(X),
    ]


@program
def jacobians_and_hessians(compile):
    J = torch.func
    c = J.jacrev(J.jacfwd(compile(lambda x: (x**3).sum())))
    h = J.hessian(compile(lambda x: (x**3).sum()))
    v = J.grad_and_value(compile(lambda x: (x**3).sum()))
    return [compile(lambda x: (c(x), h(x), v(x)))(X * 2)]


@program
def copied_attributes(compile):
    c = compile(f)

    def w(x):
        return c(x) * 3

    w.__dict__.update(c.__dict__)
    w2 = functools.partial(c)
    functools.update_wrapper(w2, c)

    def v(x):
        return c(x) * 5

    functools.update_wrapper(v, c, assigned=(), updated=("__dict__",))
    h = compile(lambda x: (w(x), w2(x), v(x)))
    return h(X)


@program
def wrappers_made_while_tracing(compile):
    c = compile(f)

    def h(x):
        @functools.wraps(c)
        def w(y):
            return c(y) * 3

        @torch.no_grad()
        def v(y):
            return w(y) + 1

        return w(x), v(x), torch.no_grad()(c)(x), torch.no_grad()(w)(x)

    return compile(h)(X.clone().requires_grad_())


@program
def a_cache_around_a_wrapper(compile):
    c = compile(f)
    w = functools.lru_cache(functools.wraps(c)(lambda k: k * 3))
    h = compile(lambda x: x * w(2))
    return h(X)


@program
def an_object_that_wraps(compile):
    class K:
        def __init__(self, c):
            functools.update_wrapper(self, c)
            self.c = c

        def __call__(self, x):
            return self.c(x) * 3

    k = K(compile(f))
    h = compile(lambda x: k(x) + 1)
    return [h(X), compile(k)(X)]


@program
def a_compiled_object(compile):
    class A:
        def __call__(self, x):
            return x * 2

    a = compile(A())
    w = functools.wraps(a)(lambda x: a(x) * 3)
    v = torch.no_grad()(a)
    h = compile(lambda x: (w(x), v(x)))
    return h(X.clone().requires_grad_())


@program
def what_a_wrapper_says_of_itself(compile):
    c = compile(f)
    w = functools.wraps(c)(lambda x: c(x) * 3)

    def h(x):
        return (
            x * (w.__name__ == "f"),
            w.__wrapped__(x),
            w.__wrapped__ is c,
            w.__wrapped__.__wrapped__(x) if hasattr(w.__wrapped__, "__wrapped__") else w.__wrapped__(x),
        )

    return compile(h)(X)


@program
def contexts_as_decorators(compile):
    @contextlib.contextmanager
    def scale():
        print("in")
        yield
        print("out")

    c = scale()(compile(f))
    a = torch.autocast("cpu")(compile(lambda x: x @ x))
    i = torch.inference_mode()(compile(f))
    sg = torch.set_grad_enabled(False)(compile(f))
    torch.set_grad_enabled(True)
    eg = torch.enable_grad()(compile(f))
    h = compile(lambda x: (c(x), a(x), i(x), sg(x), eg(x)))
    with torch.no_grad():
        r = h(torch.ones(2, 2).requires_grad_())
    return [h(torch.ones(2, 2).requires_grad_()), r]


@program
def marks_that_are_taken_off(compile):
    c = compile(f)
    w = functools.wraps(c)(lambda x: c(x) * 3)
    h = compile(lambda x: w(x))
    o = [h(X)]
    w.__wrapped__ = lambda x: x
    w.__dict__.pop("_ptdebug_original", None)
    o.append(h(X))
    return o


@program
def a_copy_of_a_compiled_function(compile):
    c = compile(f)
    d = types.FunctionType(c.__code__, c.__globals__, "d", c.__defaults__, c.__closure__)
    d.__dict__.update(c.__dict__)
    h = compile(lambda x: d(x) + 1)
    return h(X)


@program
def disabled_and_not_recursive(compile):
    c = compile(f)
    d = torch.compiler.disable(recursive=False)(compile(lambda x: x * 5))
    w = functools.wraps(d)(lambda x: d(x) * 3)
    h = compile(lambda x: (w(x), c(x)))
    return h(X)


@pytest.mark.parametrize("name", program)
def test_a_program(name):
    check(program[name])
