"""Programs about named tuples: methods of all kinds, operators, fields, attributes."""

# ruff: noqa: B019, F811, F841, RUF059 - programs as people write them
# mypy: ignore-errors

from __future__ import annotations

import collections
import functools
from typing import NamedTuple

import pytest
import torch

from ..checking import Programs, check

program = Programs()
X = torch.ones(2)


class Q(collections.namedtuple("Q", "a b")):
    pass


class P(NamedTuple):
    a: int
    b: int = 2

    @staticmethod
    def k(v=3):
        return v * 2

    @classmethod
    def make(cls, a, b=9):
        return cls(a, b)

    @property
    def s(self):
        return self.a + self.b

    def m(self, x):
        return x * self.a

    @functools.lru_cache
    def cached(self):
        return self.a * 100

    def __add__(self, o):
        return P(self.a + o[0], self.b + o[1])

    def __call__(self, x):
        return x + self.b

    const = 7


@program
def operators_of_a_named_tuple(compile):
    class V(NamedTuple):
        x: int
        y: int = 0

        def __add__(self, o):
            return V(self.x + o.x, self.y + o.y)

        def __mul__(self, k):
            return V(self.x * k, self.y * k)

        def __neg__(self):
            return V(-self.x, -self.y)

        def __bool__(self):
            return self.x > 0

        def __str__(self):
            return f"<{self.x}>"

    v = V(1, 2)

    def h(x, w):
        a = v + V(3, 4) + w
        b = -v * 2
        return (
            x * a.x + a[1],
            b,
            bool(b),
            bool(v),
            str(v),
            f"{a}",
            "yes" if w else "no",
            a._replace(x=9),
            a._asdict(),
            [*a],
            len(a),
            a == V(a.x, a.y),
            hash(a) == hash(tuple(a)),
            a.x,
            V._fields,
            V._make([1, 2]),
            a.count(1),
            a[0:1],
        )

    return compile(h)(X, V(5, 5)), compile(h)(X, V(5, 6))


@program
def comparisons_of_a_named_tuple(compile):
    class V(NamedTuple):
        x: int
        y: int = 0

        def __eq__(self, o):
            return self.x == o.x

        def __hash__(self):
            return hash(self.x)

        def __lt__(self, o):
            return self.y < o.y

        def __contains__(self, k):
            return k == "q"

        def __repr__(self):
            return f"V<{self.x}>"

    v = V(1, 2)

    def h(x, w):
        return (
            x * (v == w),
            v == V(1, 7),
            {v: 3}[V(1, 9)],
            sorted([V(1, 9), v, w]),
            "q" in v,
            1 in w,
            repr(v),
            [v].index(V(1, 0)),
            v != w,
        )

    return compile(h)(X, V(1, 5)), compile(h)(X, V(2, 6))


@program
def a_named_tuple_with_items_of_its_own(compile):
    class V(NamedTuple):
        x: int
        y: int = 0

        def __len__(self):
            return 7

        def __iter__(self):
            yield 5

        def __getitem__(self, i):
            return i * 10

    def h(x):
        v = V(1, 2)
        return x * len(v), list(v), v[3], v.x, bool(v), tuple(v)

    return compile(h)(X)


@program
def overridden_fields_and_methods(compile):
    class B(NamedTuple):
        a: int
        b: int

    class Q(B):
        @property
        def a(self):
            return self[0] * 100

        def _replace(self, **k):
            return "replaced"

        def _asdict(self):
            return {"q": 1}

        def count(self, x):
            return -1

        def index(self, x):
            return -2

    q = Q(1, 2)

    def h(x):
        r = Q(3, 4)
        return x * q.a, r.a, q._replace(b=2), r._asdict(), r.count(3), q.index(9), q.b, B(1, 2).a

    return compile(h)(X)


@program
def a_named_tuple_with_a_constructor(compile):
    class B(NamedTuple):
        a: int
        b: int

    class Q(B):
        def __new__(cls, a):
            return super().__new__(cls, a, a * 2)

        def __add__(self, o):
            return Q(self.a + o.a)

    class R(B):
        def __init__(self, *a):
            self.extra = 5

    def h(x):
        q = Q(1) + Q(2)
        r = R(1, 2)
        r.more = 4
        return x * q.b, q, r.extra, r, r.more, vars(r)

    return compile(h)(X)


@program
def attributes_of_a_named_tuple(compile):
    class B(NamedTuple):
        a: int

    class Q(B):
        pass

    q = Q(1)

    def h(x):
        r = Q(3)
        r.z = 5
        q.w = 4
        try:
            B(1).z = 3
        except AttributeError as e:
            m = str(e)
        return x * r.z, r, q.w, m

    return compile(h)(X), vars(q)


@program
def a_named_tuple_of_tensors(compile):
    class V(NamedTuple):
        x: torch.Tensor
        y: torch.Tensor

        def __add__(self, o):
            return V(self.x + o.x, self.y + o.y)

        def __matmul__(self, o):
            return (self.x * o.x).sum()

        def norm(self):
            return self.x.norm() + self.y.norm()

        @classmethod
        def zeros(cls, n):
            return cls(torch.zeros(n), torch.zeros(n))

        @staticmethod
        def scale(v, k):
            return V(v.x * k, v.y * k)

    def h(v):
        w = v + V.zeros(2) + v.scale(v, 3)
        a, b = w
        return w, w @ v, w.norm(), a, {"w": w}

    h = compile(h)
    return h(V(X, X * 2)), h(V(X * 3, X * 4))


@program
def a_named_tuple_over_a_break(compile):
    class V(NamedTuple):
        x: torch.Tensor
        n: int

        def __add__(self, o):
            return V(self.x + o.x, self.n + o.n)

    def h(v):
        w = v + v
        torch._dynamo.graph_break()
        u = w + v
        return u, u.x * u.n

    return compile(h)(V(X, 3))


@program
def methods_of_all_kinds(compile):
    p = P(4)

    def h(x):
        q = P(5, 6)
        return (
            x * p.k() + q.k(4) + P.k(),
            p.make(1),
            q.make(2, 3),
            P.make(8),
            p.s,
            q.s,
            p.m(x),
            q.m(x),
            p.const,
            q.const,
            (p + q),
            p(x),
            q(x),
            type(q).k(1),
            p._replace(a=3),
            q._asdict(),
            P._fields,
            q._make([1, 2]),
            p.cached(),
            P._make((3, 4)),
            type(p).make(1),
        )

    return compile(h)(X), compile(h)(X)


@program
def methods_of_an_argument(compile):
    def h(x, p):
        f = p.k
        g = p.make
        d = P.__dict__["k"]
        return (
            x * f() + f(2),
            g(1, b=4),
            map(p.k, [1, 2]),
            list(map(p.make, [1, 2])),
            p.k(1),
            hasattr(p, "make"),
            p._field_defaults,
        )

    r = compile(h)(X, P(4))
    return r[0], r[1], list(r[2]), r[3:]


@program
def a_class_below_a_named_tuple(compile):
    class Q(collections.namedtuple("Q", "a b")):
        __slots__ = ()

        @staticmethod
        def k(v=3):
            return v * 2

        @classmethod
        def make(cls, *args):
            return super().__new__(cls, *args)

        def __new__(cls, a, b=5):
            return super().__new__(cls, a * 2, b)

        def __repr__(self):
            return f"Q<{self.a}>"

        def __eq__(self, o):
            return self.a == o.a

        def __hash__(self):
            return hash(self.a)

        @functools.partialmethod
        def zz(self):
            pass

        zz = functools.partialmethod(lambda self, n, m: (self.a, n, m), 3)

    p = Q(4)

    def h(x):
        q = Q(1)
        return x * p.k() + q.k(4), p.make(1, 2), Q.make(2, 3), q, repr(q), p == Q(4), {Q(4): 1}[p], p.zz(4), q.zz(1)

    return compile(h)(X)


@pytest.mark.parametrize("name", program)
def test_a_program(name):
    check(program[name])
