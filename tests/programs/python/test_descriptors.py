"""Programs about descriptors of every kind: read, set and deleted, on instances, classes, modules and exceptions."""

# mypy: ignore-errors

from __future__ import annotations

import dataclasses

import pytest
import torch

from ..checking import Programs, check

program = Programs()
X = torch.ones(2)


@program
def a_setter_that_writes_under_its_name(compile):
    class D:
        def __get__(self, o, t=None):
            return self if o is None else o.__dict__.get("_f", 0)

        def __set__(self, o, v):
            print("set", v)
            o.__dict__["_f"] = v * 2

    class Foo:
        f = D()

    foo = Foo()

    def h(x):
        foo.f = 10
        return x * foo.f

    h = compile(h)
    return [h(X), foo.f, h(X), foo.f, vars(foo)]


@program
def a_setter_called_by_init(compile):
    class D:
        def __set_name__(self, o, n):
            self.n = n

        def __get__(self, o, t=None):
            return o.__dict__.get(self.n, 0)

        def __set__(self, o, v):
            o.__dict__[self.n] = v * 2

    class Foo:
        f = D()

        def __init__(self, v):
            self.f = v

    def h(x):
        foo = Foo(10)
        return x * foo.f, foo

    r = compile(h)(X)
    return [r[0], r[1].f, vars(r[1])]


@program
def a_descriptor_with_all_methods(compile):
    class D:
        def __get__(self, o, t=None):
            return o._f

        def __set__(self, o, v):
            o._f = v + 1

        def __delete__(self, o):
            del o._f

    class Foo:
        f = D()

    foo = Foo()
    foo.f = 3

    def h(x):
        a = foo.f
        del foo.f
        b = hasattr(foo, "_f")
        foo.f = 7
        return x * a, b, foo.f

    h = compile(h)
    return [h(X), vars(foo), h(X), vars(foo)]


@program
def object_setattr_runs_the_setter(compile):
    class D:
        def __get__(self, o, t=None):
            return o.__dict__.get("f", 0)

        def __set__(self, o, v):
            o.__dict__["f"] = v * 2

    class Foo:
        f = D()

        def __setattr__(self, n, v):
            object.__setattr__(self, n, v + 1)

    foo = Foo()

    def h(x):
        foo.f = 10
        a = foo.f
        foo.f = 4
        b = foo.f
        object.__setattr__(foo, "f", 1)
        return x * a, b, foo.f

    h = compile(h)
    return [h(X), vars(foo), h(X)]


@program
def a_descriptor_beside_slots(compile):
    class D:
        def __get__(self, o, t=None):
            return o._v

        def __set__(self, o, v):
            o._v = v * 2

    class Foo:
        __slots__ = ("_v",)
        f = D()

    foo = Foo()

    def h(x):
        foo.f = 10
        return x * foo.f

    h = compile(h)
    return [h(X), foo._v]


@program
def a_descriptor_changed_in_place(compile):
    class D:
        def __get__(self, o, t=None):
            return o._v

        def __set__(self, o, v):
            print("set")
            o._v = v

    class Foo:
        f = D()

    foo = Foo()
    foo._v = 3

    def h(x):
        foo.f += 10
        foo.f *= 2
        return x * foo.f

    h = compile(h)
    return [h(X), foo._v]


@program
def a_typed_descriptor(compile):
    class Typed:
        def __init__(self, t):
            self.t = t

        def __set_name__(self, o, n):
            self.n = "_" + n

        def __get__(self, o, t=None):
            return getattr(o, self.n)

        def __set__(self, o, v):
            if not isinstance(v, self.t):
                raise TypeError(self.n)
            setattr(o, self.n, v)

    class Foo:
        a = Typed(int)
        b = Typed(str)

        def __init__(self, a, b):
            self.a = a
            self.b = b

    def h(x):
        f = Foo(2, "q")
        try:
            f.a = "x"
        except TypeError as e:
            m = str(e)
        f.a = 5
        return x * f.a, m, f

    return compile(h)(X)


@program
def a_descriptor_that_only_reads(compile):
    class N:
        def __get__(self, o, t=None):
            return 7 if o is not None else 8

    class Foo:
        f = N()

    foo = Foo()

    def h(x):
        a = foo.f, Foo.f
        foo.f = 3
        b = foo.f
        del foo.f
        return x * b, a, foo.f

    h = compile(h)
    return [h(X), vars(foo), h(X)]


@program
def a_descriptor_that_only_sets(compile):
    class S:
        def __set__(self, o, v):
            o.__dict__["f"] = v * 2

    class Foo:
        f = S()

    foo = Foo()

    def h(x):
        foo.f = 3
        return x * foo.f

    h = compile(h)
    return [h(X), vars(foo), h(X)]


@program
def a_descriptor_that_sets_elsewhere(compile):
    class S:
        def __set__(self, o, v):
            o.__dict__["g"] = v * 2

    class Foo:
        f = S()

    foo = Foo()

    def h(x):
        a = foo.f is Foo.__dict__["f"]
        foo.f = 3
        return x * foo.g, a, type(foo.f).__name__

    h = compile(h)
    return [h(X), vars(foo), h(X)]


@program
def descriptors_read_from_classes(compile):
    class D:
        def __get__(self, o, t=None):
            return self if o is None else 5

        def __set__(self, o, v):
            o.q = v

        def meth(self):
            return 9

    class Foo:
        f = D()

    class Bar(Foo):
        pass

    foo = Bar()

    def h(x):
        foo.f = 2
        return x * foo.f, Bar.f.meth(), foo.q, Bar.__dict__.get("f"), type(foo).f is Foo.__dict__["f"]

    h = compile(h)
    return [h(X)]


@program
def a_counting_descriptor(compile):
    class Counter:
        def __init__(self):
            self.n = 0

        def __get__(self, o, t=None):
            self.n += 1
            return self.n

        def __set__(self, o, v):
            self.n = v

    class Foo:
        f = Counter()

    foo = Foo()

    def h(x):
        a = foo.f
        b = foo.f
        foo.f = 10
        return x * a, b, foo.f

    h = compile(h)
    return [h(X), Foo.__dict__["f"].n, h(X)]


@program
def a_descriptor_that_is_replaced(compile):
    class D:
        def __init__(self, k):
            self.k = k

        def __get__(self, o, t=None):
            return self.k

        def __set__(self, o, v):
            o.__dict__["w"] = v * self.k

    class Foo:
        f = D(2)

    foo = Foo()

    def h(x):
        foo.f = 3
        return x * foo.f + foo.w

    h = compile(h)
    o = [h(X)]
    Foo.f = D(5)
    o.append(h(X))
    Foo.__dict__["f"].k = 7
    o.append(h(X))
    D.__set__ = lambda self, o, v: o.__dict__.update(w=100)
    o.append(h(X))
    del D.__set__
    o.append(h(X))
    o.append(vars(foo))
    return o


@program
def a_descriptor_of_a_tensor_subclass(compile):
    class D:
        def __get__(self, o, t=None):
            return o._v if o is not None else self

        def __set__(self, o, v):
            o._v = v * 2

    class T(torch.Tensor):
        f = D()

    def h(x):
        x.f = 10
        return x * x.f

    t = torch.ones(2).as_subclass(T)
    return [compile(h)(t), t._v]


@program
def a_descriptor_as_a_field(compile):
    class D:
        def __init__(self, default):
            self.default = default

        def __set_name__(self, o, n):
            self.n = "_" + n

        def __get__(self, o, t=None):
            return self.default if o is None else getattr(o, self.n, self.default)

        def __set__(self, o, v):
            setattr(o, self.n, int(v) * 2)

    @dataclasses.dataclass
    class Item:
        q: int = D(default=100)
        r: int = 3

    def h(x):
        i = Item()
        j = Item(2.5)
        j.q = 7
        return x * i.q, j.q, i, j

    return compile(h)(X)


@pytest.mark.parametrize("name", program)
def test_a_program(name):
    check(program[name])
