"""Programs that delete through descriptors, past them, and through slots."""

# mypy: ignore-errors

from __future__ import annotations

import pytest
import torch

from ..checking import Programs, check

program = Programs()
X = torch.ones(2)


@program
def a_deleter_that_writes(compile):
    class D:
        def __get__(self, o, t=None):
            return o.__dict__["f"]

        def __set__(self, o, v):
            o.__dict__["f"] = v

        def __delete__(self, o):
            print("del")
            o.__dict__["f"] = -1

    class Foo:
        f = D()

    foo = Foo()
    foo.f = 3

    def h(x):
        y = x * foo.f
        del foo.f
        return y + foo.f

    h = compile(h)
    return [h(X), vars(foo)]


@program
def a_descriptor_that_only_deletes(compile):
    class S:
        def __delete__(self, o):
            o.__dict__["d"] = 1

    class Foo:
        f = S()

    foo = Foo()

    def h(x):
        del foo.f
        try:
            foo.f = 3
        except AttributeError as e:
            m = str(e)
        return x * foo.d, m

    h = compile(h)
    return [h(X), vars(foo), h(X)]


@program
def slots_by_their_descriptors(compile):
    class A:
        __slots__ = ("u", "v")

    a = A()
    a.u = 1

    def h(x):
        s = A.u
        s.__set__(a, 5)
        b = s.__get__(a, A)
        s.__delete__(a)
        A.v.__set__(a, 8)
        return x * b, hasattr(a, "u"), a.v

    return compile(h)(X), a.v


@program
def overridden_deletion(compile):
    class A:
        def __delattr__(self, n):
            print("del", n)
            object.__delattr__(self, n)

        def __setattr__(self, n, v):
            print("set", n)
            object.__setattr__(self, n, v)

    a = A()
    a.x = 3

    def h(x):
        y = x * a.x
        del a.x
        a.z = 3
        return y, hasattr(a, "x")

    return compile(h)(X), vars(a)


@program
def a_dict_beside_a_slot_of_that_name(compile):
    class A:
        __slots__ = ("__dict__", "u")

    a = A()

    def h(x):
        a.u = 4
        a.__dict__["u"] = 5
        a.__dict__["k"] = 6
        return x * a.u, a.__dict__["u"]

    r = compile(h)(X)

    def g(x):
        a.__dict__[1] = 5
        return x * a.k

    return r, a.u, vars(a), compile(g)(X), vars(a)


@program
def deleted_past_the_deleter(compile):
    class D:
        def __get__(self, o, t=None):
            return o.__dict__.get("f", 0)

        def __set__(self, o, v):
            o.__dict__["f"] = v

        def __delete__(self, o):
            print("deleting")
            del o.__dict__["f"]

    class A:
        f = D()

    a = A()
    a.f = 1

    def h(x):
        del a.f
        b = a.f
        a.f = 3
        c = a.f
        a.__dict__.pop("f")
        return x * c, b, a.f

    return compile(h)(X), vars(a)


@pytest.mark.parametrize("name", program)
def test_a_program(name):
    check(program[name])
