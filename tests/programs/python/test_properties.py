"""Programs about properties: of instances, classes, modules and exceptions, and with their value in a dict."""

# mypy: ignore-errors

from __future__ import annotations

import functools

import pytest
import torch

from ..checking import Programs, check

program = Programs()
X = torch.ones(2)


@program
def a_property_replaced_by_a_number(compile):
    class Foo:
        @property
        def f(self):
            return 3

    foo = Foo()

    def h(x):
        return x * foo.f

    h = compile(h)
    o = [h(X)]
    Foo.f = 5
    o.append(h(X))
    foo.__dict__["f"] = 9
    o.append(h(X))

    def s(x):
        foo.f = 11
        return x * foo.f

    s = compile(s)
    o.append(s(X))
    o.append(vars(foo))
    return o


@program
def a_property_without_setter_behind_the_dict(compile):
    class Foo:
        @property
        def f(self):
            return 3

    foo = Foo()

    def s(x):
        foo.__dict__["f"] = 4
        return x * foo.f

    o = [compile(s)(X), vars(foo)]

    def s(x):
        try:
            foo.f = 4
        except AttributeError as e:
            return x, str(e)

    o.append(compile(s)(X))

    def s(x):
        try:
            del foo.f
        except AttributeError as e:
            return x, str(e)

    o.append(compile(s)(X))
    return o


@program
def a_property_with_its_value_in_the_dict(compile):
    class Foo:
        @property
        def f(self):
            return self.__dict__.setdefault("f", 10)

        def reset(self):
            self.__dict__["f"] = 20

    foo = Foo()

    def s(x):
        foo.reset()
        return x * foo.f

    h = compile(s)
    return [h(X), vars(foo), h(X)]


@program
def a_class_that_writes_past_its_property(compile):
    "the class writes past its property through __dict__"

    class Foo:
        def __init__(self):
            self.__dict__["f"] = 1

        @property
        def f(self):
            return self.__dict__["f"]

        def inc(self):
            self.__dict__["f"] += 1

        def upd(self):
            self.__dict__.update(f=50)

    foo = Foo()

    def s(x):
        foo.inc()
        a = foo.f
        foo.upd()
        return x * a, foo.f

    h = compile(s)
    return [h(X), vars(foo), h(X), vars(foo)]


@program
def a_cached_property_set_and_deleted(compile):
    class Foo:
        n = 0

        @functools.cached_property
        def f(self):
            self.n += 1
            return 3 + self.n

    foo = Foo()

    def h(x):
        a = foo.f
        foo.f = 8
        b = foo.f
        del foo.f
        return x * a, b, foo.f

    h = compile(h)
    return [h(X), vars(foo), h(X)]


@program
def descriptors_of_a_module(compile):
    class D:
        def __get__(self, o, t=None):
            return o._v if o is not None else self

        def __set__(self, o, v):
            o._v = v * 2

    class M(torch.nn.Module):
        f = D()

        def __init__(self):
            super().__init__()
            self.f = 3

        @property
        def p(self):
            return self._p

        @p.setter
        def p(self, v):
            self._p = v + 1

        @p.deleter
        def p(self):
            self._p = 0

        def forward(self, x):
            self.f = 10
            self.p = 5
            a = self.p
            del self.p
            return x * self.f + a, self.p

    m = M()
    h = compile(m)
    return [h(X), m._v, m._p]


@program
def a_property_of_a_metaclass(compile):
    class Meta(type):
        @property
        def k(cls):
            return cls._k

        @k.setter
        def k(cls, v):
            cls._k = v * 2

    class A(metaclass=Meta):
        _k = 1

    def h(x):
        A.k = 10
        return x * A.k

    r = compile(h)(X)
    return r, A._k


@program
def subclasses_of_property(compile):
    class P(property):
        pass

    class lazy(property):
        def __get__(self, o, t=None):
            return super().__get__(o, t) * 2 if o is not None else self

        def __set__(self, o, v):
            super().__set__(o, v + 1)

    class A:
        def __init__(self):
            self._v = 1

        @P
        def p(self):
            return self._v

        @p.setter
        def p(self, v):
            self._v = v

        @lazy
        def q(self):
            return self._v

        @q.setter
        def q(self, v):
            self._v = v

    a = A()

    def h(x):
        a.p = 3
        b = a.p
        a.q = 5
        return x * a.q, b, a.p

    return [compile(h)(X), vars(a)]


@program
def a_property_that_raises_attribute_error(compile):
    class A:
        @property
        def p(self):
            raise AttributeError("no")

        def __getattr__(self, n):
            return 7

    a = A()
    return compile(lambda x: x * a.p + a.zzz)(X)


@program
def a_property_without_getter(compile):
    class A:
        v = 3

        def g(self):
            return self.__dict__.get("v", 0)

        p = property(g)
        q = property(None, lambda self, v: self.__dict__.__setitem__("v", v), lambda self: self.__dict__.pop("v"))

    a = A()

    def h(x):
        a.q = 5
        b = a.p
        del a.q
        try:
            print(a.q)
        except AttributeError as e:
            m = str(e)
        return x * b, a.p, m

    return compile(h)(X), vars(a)


@program
def descriptors_called_by_hand(compile):
    class D:
        def __get__(self, o, t=None):
            return o._v

        def __set__(self, o, v):
            o._v = v * 2

        def __delete__(self, o):
            o._v = 0

    class A:
        d = D()

        @property
        def p(self):
            return self._v

        @p.setter
        def p(self, v):
            self._v = v + 1

    a = A()

    def h(x):
        A.__dict__["d"].__set__(a, 4)
        b = A.__dict__["d"].__get__(a, A)
        A.p.fset(a, 3)
        c = A.p.fget(a)
        A.p.__set__(a, 9)
        d = A.p.__get__(a)
        A.__dict__["d"].__delete__(a)
        return x * b, c, d, a.d

    return compile(h)(X), vars(a)


@program
def a_property_around_a_break(compile):
    class A:
        @property
        def p(self):
            return self.__dict__["p"]

        @p.setter
        def p(self, v):
            print("set")
            self.__dict__["p"] = v * 2

    a = A()
    a.p = 1

    def h(x):
        a.p = 10
        print("break")
        torch._dynamo.graph_break()
        y = x * a.p
        a.p = a.p + 1
        return y

    return compile(h)(X), vars(a)


@program
def a_property_of_a_module_with_its_value_in_the_dict(compile):
    class M(torch.nn.Module):
        @property
        def scale(self):
            return self.__dict__["scale"]

        @scale.setter
        def scale(self, v):
            self.__dict__["scale"] = v * 2

        def forward(self, x):
            self.scale = 4
            self.__dict__["scale"] += 1
            return x * self.scale

    m = M()
    return compile(m)(X), m.__dict__["scale"]


@program
def a_property_of_an_exception(compile):
    class E(ValueError):
        @property
        def code(self):
            return self.__dict__.get("code", 0)

        @code.setter
        def code(self, v):
            self.__dict__["code"] = v * 2

    def h(x):
        e = E("q")
        e.code = 4
        try:
            raise e
        except E as c:
            c.code = c.code + 1
            return x * c.code, c

    r = compile(h)(X)
    return r, vars(r[1])


@pytest.mark.parametrize("name", program)
def test_a_program(name):
    check(program[name])
