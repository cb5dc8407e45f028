"""Programs about classes that derive from tuple, list, dict, set, str and int: methods, operators, attributes."""

# ruff: noqa: E741, E742 - programs as people write them
# mypy: ignore-errors

from __future__ import annotations

import pytest
import torch

from ..checking import Programs, check

program = Programs()
X = torch.ones(2)


class T(tuple):
    pass


class L(list):
    pass


class D(dict):
    pass


class S(set):
    pass


class F(frozenset):
    pass


@program
def tuples_of_a_class(compile):
    a = T((1, 2))

    def h(x):
        return (
            x * 2,
            a == T((1, 2)),
            T((1, 2)) == a,
            a == (1, 2),
            (1, 2) == a,
            T((1,)) == T((1,)),
            T((1,)) != T((1,)),
            T((1,)) < T((2,)),
            a + (3,),
            a + T((3,)),
            (3,) + a,
            a * 2,
            T((1,)) in [T((1,))],
            hash(T((1,))) == hash((1,)),
            {T((1, 2)): 3}[a],
            {(1, 2): 3}[T((1, 2))],
            T((1, 2)) is a,
        )

    return compile(h)(X)


@program
def lists_of_a_class(compile):
    l = L([1])

    def h(x):
        return (
            x * 2,
            l == L([1]),
            L([1]) == l,
            l == [1],
            [1] == l,
            L([1]) == L([1]),
            L([1]) != L([2]),
            L([1]) < L([2]),
            l + [3],
            l + L([3]),
            [3] + l,
            l * 2,
            L([1]) in [[1]],
        )

    return compile(h)(X)


@program
def dicts_of_a_class(compile):
    d = D(a=1)

    def h(x):
        return (
            x * 2,
            d == D(a=1),
            D(a=1) == d,
            d == {"a": 1},
            {"a": 1} == d,
            D(a=1) == D(a=1),
            D(a=1) != D(a=2),
            d | {"b": 1},
            {"b": 1} | d,
            D(q=1) | d,
        )

    return compile(h)(X)


@program
def sets_of_a_class(compile):
    def h(x):
        s = S([1])
        return (
            x * 2,
            s == S([1]),
            S([1]) == s,
            s == {1},
            {1} == s,
            S([1]) != S([2]),
            s | {2},
            {2} | s,
            s & {1},
            s <= S([1, 2]),
            S([1]) < {1, 2},
            F([1]) == F([1]),
            F([1]) == S([1]),
            hash(F([1])) == hash(frozenset([1])),
            {F([1]): 2}[frozenset([1])],
        )

    return compile(h)(X)


@program
def attributes_of_a_tuple(compile):
    def h(x):
        r = T((3, x))
        r.z = 5
        s = r
        s.z += 1
        return x * r.z, r, r.__dict__, s is r

    return compile(h)(X)


@program
def methods_of_containers(compile):
    class T(tuple):
        @staticmethod
        def k(v=3):
            return v * 2

        @classmethod
        def make(cls, *a):
            return cls(a)

        @property
        def first(self):
            return self[0]

    class L(list):
        @staticmethod
        def k(v=3):
            return v * 2

        @classmethod
        def make(cls, *a):
            return cls(a)

    class Dd(dict):
        @staticmethod
        def k(v=3):
            return v * 2

        @classmethod
        def make(cls, **a):
            return cls(a)

    t = T((1, 2))
    l = L([1])
    d = Dd(a=1)

    def h(x):
        t2 = T((3, 4))
        l2 = L([4])
        d2 = Dd(b=1)
        return (
            x * t.k() + t2.k(5),
            t.make(1),
            t2.make(2),
            t.first,
            t2.first,
            l.k(1),
            l2.k(),
            l.make(1),
            l2.make(2),
            d.k(),
            d2.k(),
            d.make(c=1),
            d2.make(q=1),
        )

    return compile(h)(X)


@program
def methods_of_texts_and_numbers(compile):
    class S(str):
        @staticmethod
        def k(v=3):
            return v * 2

        @classmethod
        def make(cls, a):
            return cls(a)

        def twice(self):
            return self * 2

    class I(int):
        @staticmethod
        def k(v=3):
            return v * 2

        @classmethod
        def make(cls, a):
            return cls(a)

        def twice(self):
            return self * 2

    class F(float):
        @classmethod
        def make(cls, a):
            return cls(a)

        @staticmethod
        def k(v=3):
            return v * 2

    s = S("a")
    i = I(4)
    f = F(1.5)

    def h(x):
        return (
            x * i,
            s.k(),
            i.k(2),
            s.make("q"),
            i.make(3),
            s.twice(),
            i.twice(),
            f.k(),
            f.make(2.5),
            I(3).k(),
            S("z").twice(),
        )

    return compile(h)(X)


@pytest.mark.parametrize("name", program)
def test_a_program(name):
    check(program[name])
