"""Programs about classes of tuples: generic ones, private methods, tensors in them, matched by patterns."""

# ruff: noqa: RUF059 - programs as people write them
# mypy: ignore-errors

from __future__ import annotations

import collections
import typing
from typing import NamedTuple

import pytest
import torch

from ..checking import Programs, check

program = Programs()
X = torch.ones(2)


class T(tuple):
    pass


class Q(collections.namedtuple("Q", "a b")):
    pass


@program
def a_generic_named_tuple(compile):
    T = typing.TypeVar("T")

    class G(NamedTuple, typing.Generic[T]):
        k: T
        v: int = 3

        def both(self):
            return (self.k, self.v)

    g = G(1)

    def h(x):
        return x * g.v, G("a").both(), g.both(), G[int](4).k

    return compile(h)(X)


@program
def a_named_tuple_with_an_attribute(compile):
    q = Q(1, 2)

    def h(x):
        return (
            x * 2,
            q == Q(1, 2),
            q == (1, 2),
            Q(1, 2) == q,
            Q(1, 2) == Q(1, 2),
            q + (3,),
            q < Q(2, 1),
            {q: 1}[(1, 2)],
            hash(q) == hash((1, 2)),
        )

    q.attr = 3
    return compile(h)(X)


@program
def tensors_in_tuples_of_a_class(compile):
    q = Q(X, 2)
    q.extra = X * 5
    t = T((X, X))

    def h(x):
        a, b = q
        return (
            torch.stack(t),
            torch.cat(T((x, x))),
            a * q.extra,
            q.a,
            q.b,
            len(q),
            list(q),
            q._replace(b=7),
            q,
            max(T((1, 5))),
            sum(T((1, 5))),
            sorted(T((5, 1))),
            [*t],
            dict(zip("ab", t)),
            q[1:],
            isinstance(q, tuple),
            type(q) is Q,
        )

    return compile(h)(X)


@program
def tuples_of_a_class_that_are_returned(compile):
    def h(x):
        q = Q(x * 2, 3)
        t = T((x, 4))
        return q, t, [t, t], q

    r = compile(h)(X)
    return r, r[2][0] is r[1], r[0] is r[3]


@program
def named_tuples_that_are_matched(compile):
    class V(NamedTuple):
        a: int
        b: int

        def __add__(self, o):
            return V(self.a + o.a, 0)

    def h(x, v):
        match v + V(1, 1):
            case V(a=1):
                r = 1
            case V(2, b):
                r = b + 10
            case (3, y):
                r = y + 20
            case _:
                r = 5
        return x * r

    h = compile(h)
    return [h(X, V(i, 0)) for i in range(4)]


@program
def attributes_over_a_break(compile):
    def h(x):
        r = Q(3, x)
        r.z = 5
        torch._dynamo.graph_break()
        return x * r.z, r, r.__dict__

    return compile(h)(X)


@program
def private_methods_and_descriptors(compile):
    class D:
        def __get__(self, o, t=None):
            return (None if o is None else o.a, t.__name__)

    class R(NamedTuple):
        a: int
        d = D()

        @classmethod
        def __helper(cls):
            return cls.__name__

        @classmethod
        def call(cls):
            return cls.__helper()

        @property
        def __priv(self):
            return self.a * 3

        def get(self):
            return self.__priv

    p = R(4)

    def h(x):
        q = R(5)
        return (
            x * p.a,
            p.d,
            q.d,
            R.d,
            q.call(),
            p.call(),
            p.get(),
            q.get(),
            q.count(5),
            q.index(5),
            len(q),
            q[0],
            tuple(q),
        )

    return compile(h)(X)


@pytest.mark.parametrize("name", program)
def test_a_program(name):
    check(program[name])
