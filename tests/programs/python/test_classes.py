"""Programs about classes and exceptions: descriptors, metaclasses, operators, contexts and groups; captured whole."""


from __future__ import annotations

import dataclasses
import functools
import threading
import typing

import pytest
import torch

from ..checking import Programs, check, check_whole

program = Programs()
X = torch.arange(6.0).view(2, 3)


@program
def properties_and_deleters(compile):
    class Gauge:
        def __init__(self):
            self._level = 1
            self.log = []

        @property
        def level(self):
            self.log.append("get")
            return self._level

        @level.setter
        def level(self, n):
            if n < 0:
                raise ValueError("negative")
            self._level = n

        @level.deleter
        def level(self):
            self.log.append("del")
            self._level = 0

        fixed = property(lambda self: 5)

    gauge = Gauge()

    def fn(x):
        gauge.level += 2
        messages = []
        for name, value in (("level", -1), ("fixed", 1)):
            try:
                setattr(gauge, name, value)
            except (ValueError, AttributeError) as error:
                messages.append(str(error))
        y = x * gauge.level
        del gauge.level
        try:
            del gauge.fixed
        except AttributeError as error:
            messages.append(str(error))
        return y, gauge.level, messages

    f = compile(fn)
    return [f(X) for _ in range(2)], gauge.log


class Typed:
    """A data descriptor that keeps its value under its own name in the instance's dict."""

    def __init__(self, kind):
        self.kind = kind

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, owner, cls=None):
        return self if owner is None else owner.__dict__.get(self.name, "unset")

    def __set__(self, owner, value):
        if not isinstance(value, self.kind):
            raise TypeError(f"{self.name} is no {self.kind.__name__}")
        owner.__dict__[self.name] = value

    def __delete__(self, owner):
        del owner.__dict__[self.name]


@program
def data_descriptors(compile):
    class Config:
        width = Typed(int)
        name = Typed(str)

    kept = Config()

    def fn(x, config):
        config.width = 4
        try:
            config.name = 4
        except TypeError as error:
            message = str(error)
        made = Config()
        made.name = "q"
        before = made.name
        del made.name
        return x * config.width, message, before, made.name, config.name, Config.width.kind

    f = compile(fn)
    return [f(X, kept) for _ in range(2)], vars(kept)


@program
def counting_descriptor_of_a_class(compile):
    class counted:
        def __init__(self, function):
            functools.update_wrapper(self, function)
            self.function = function
            self.calls = 0

        def __call__(self, *args):
            self.calls += 1
            return self.function(*args)

        def __get__(self, owner, cls=None):
            return self if owner is None else functools.partial(self, owner)

    class Layer(torch.nn.Module):
        @counted
        def forward(self, x):
            return x.relu() + 1

    layer = Layer()
    f = compile(lambda x: layer(x))
    return [f(X) for _ in range(3)], Layer.forward.calls


@program
def missing_attributes(compile):
    class Lazy:
        def __init__(self, items):
            self.items = items

        @property
        def broken(self):
            raise AttributeError("inner")

        def __getattr__(self, name):
            if name in ("broken", "a"):
                return self.items[name]
            raise AttributeError(name)

    class Magic:
        y = 2

        def __getattribute__(self, name):
            return 42 if name == "magic" else super().__getattribute__(name)

        def __getattr__(self, name):
            return f"no {name}"

    def fn(x):
        lazy, magic = Lazy({"a": 3, "broken": 5}), Magic()
        return x * lazy.a + lazy.broken, hasattr(lazy, "zz"), getattr(lazy, "q", 7), magic.magic + magic.y, magic.other

    f = compile(fn)
    return [f(X) for _ in range(2)]


@program
def super_of_local_classes(compile):
    class A:
        def __init__(self, x, **more):
            self.log = ["A"]

        def f(self, t):
            return t + 1

        @property
        def p(self):
            return 1

    class B(A):
        def __init__(self, *args, **more):
            super().__init__(*args, **more)
            self.log.append("B")

        def f(self, t):
            return super().f(t) * 2

        @property
        def p(self):
            return super().p + 1

    class C(A):
        def f(self, t):
            return super().f(t) - 3

    class D(B, C):
        def __init__(self, *args, **more):
            super(D, self).__init__(*args, **more)  # noqa: UP008 - the form with arguments is what is tested
            self.log.append("D")

        def f(self, t):
            return super().f(t) + A.f(self, t)

    class E(D):
        pass

    def fn(x):
        e = E(x)
        return e.f(x), e.log, e.p, [cls.__name__ for cls in type(e).__mro__]

    f = compile(fn)
    return [f(X) for _ in range(2)]


@program
def reflected_operators(compile):
    class V:
        def __init__(self, v):
            self.v = v

        def __add__(self, other):
            return ("add", self.v)

        def __radd__(self, other):
            return ("radd", self.v)

        def __lt__(self, other):
            return self.v < other.v

        def __eq__(self, other):
            return isinstance(other, V) and self.v == other.v

        def __hash__(self):
            return hash(self.v)

        def __divmod__(self, other):
            return ("divmod", other)

        def __format__(self, spec):
            return f"<{spec}>"

        def __round__(self, digits=None):
            return ("round", digits)

    class Sub(V):
        def __radd__(self, other):
            return ("sub", self.v)

    def fn(x):
        a, b = V(3), Sub(2)
        found = [a + b, b + a, a + 1, 1 + a, a > b, a < b, a != V(3), a != b, divmod(a, 2), f"{a:>3}|{a}", round(a, 1)]
        return x + 1, found, hash(a) == hash(3), object() == object(), max(a, b).v

    f = compile(fn)
    return [f(X) for _ in range(2)]


class Registry(type):
    """A metaclass whose classes are containers of their instances' names."""

    def __call__(cls, *args):
        made = super().__call__(*args)
        made.made_by = cls.__name__
        return made

    def __getitem__(cls, index):
        return index * 2

    def __len__(cls):
        return 5

    def __iter__(cls):
        return iter((1, 2))

    def __contains__(cls, item):
        return item == 3

    def __add__(cls, other):
        return "added"

    def __getattr__(cls, name):
        if name.startswith("dyn_"):
            return name[4:]
        raise AttributeError(name)


class Registered(metaclass=Registry):
    def __init__(self, v):
        self.v = v


@program
def metaclass_operators(compile):
    def fn(x):
        made = Registered(2)
        kinds = Registered[4], len(Registered), list(Registered), 3 in Registered, Registered + 1, Registered.dyn_foo
        return x * made.v, made.made_by, kinds

    f = compile(fn)
    return [f(X) for _ in range(2)]


@dataclasses.dataclass
class Step:
    name: str
    size: int = 1
    parts: list = dataclasses.field(default_factory=list)


class Positioned(typing.NamedTuple):
    x: torch.Tensor
    n: int = 2


class Options(typing.TypedDict, total=False):
    a: int
    b: torch.Tensor


@program
def records(compile):
    def fn(x, options: Options):
        step = Step("s", parts=[Step("inner")])
        made: Options = Options(a=1, b=x)
        point = Positioned._make([x, 3])
        return point.x * options["a"], repr(step), f"{step}", made, type(made).__name__, point, point.__class__.__name__

    f = compile(fn)
    return [f(X, Options(a=3, b=X)) for _ in range(2)]


@pytest.mark.parametrize("name", program)
def test_a_captured_program_is_the_program(name):
    check_whole(program[name])


def test_a_value_that_a_subclass_of_int_makes_is_left_to_eager():
    class Positive(int):
        def __new__(cls, value):
            return super().__new__(cls, abs(value))

    def use(compile):
        f = compile(lambda x: (x * Positive(-3), Positive(-2)))
        return f(X)

    check(use)


def test_names_of_variables_are_those_of_the_program():
    def asked(x, n):
        doubled = x * n
        names = sorted(vars()), sorted(dir())
        print("broken")
        return doubled, names, dir(), sorted(vars(n.__class__))[:2], dir(n)[:2]

    def enclosing(x, n):
        def inner():
            return sorted(dir()), n

        return x * 2, inner(), sorted(vars()), [len(dir()) for _ in range(2)]

    def in_the_body_of_a_class(x, n):
        class Local:
            first = 1
            seen = "x" in locals(), "first" in vars(), sorted(set(dir()) - {"__firstlineno__"})
            locals()["made"] = n
            second = made + 1  # noqa: F821
            doubled = x * 2

        return Local.doubled + 1, Local.seen, Local.second, [name for name in vars(Local) if name[0] != "_"]

    check(lambda compile: [compile(f)(torch.ones(2), 3) for f in (asked, enclosing, in_the_body_of_a_class)])


def test_a_function_that_looks_at_its_variables_has_its_own_after_a_break():
    def use(compile):
        def fn(x):
            first = x + 1
            names = sorted(locals())
            print("seen")
            doubled = first * 2
            return doubled, names, sorted(locals()), eval("first + 1")

        f = compile(fn)
        return [f(X) for _ in range(2)]

    check(use)


def test_methods_of_builtin_bases_stay_theirs_after_a_break():
    class Meta(type):
        def __call__(cls, *args):
            return super().__call__(*args)

    class Law(metaclass=Meta):
        def __init__(self, x):
            self.x = x
            print("made")

        def __call__(self, y):
            return self.x * y

    class Table(dict):
        def update(self, *args, **kwargs):
            update = super().update
            print("updates")
            update(*args, **kwargs)
            self["last"] = X + 1

        def __setitem__(self, key, value):
            store = super().__setitem__
            print("stores", key)
            store(key, value)

    def use(compile):
        kept = Table()

        def fn(x):
            kept.update(a=x)
            made = Table()
            made["b"] = x * 3
            return Law(x)(x + 1), kept, made

        return compile(fn)(X), kept

    check(use)


def test_the_dict_of_a_thread_local_is_that_of_the_thread():
    def use(compile):
        local, told = threading.local(), []
        local.scale = 3

        def fn(x):
            return x * local.__dict__.get("scale", 1), sorted(vars(local))

        f = compile(fn)
        told.append(f(X))
        local.scale, local.other = 5, 1
        told.append(f(X))
        thread = threading.Thread(target=lambda: told.append(f(X)))
        thread.start()
        thread.join()
        del local.scale
        return told, f(X)

    check(use)


def test_attributes_of_thread_locals_are_set():
    class Own(threading.local):
        pass

    def use(compile):
        plain, own = threading.local(), Own()

        def fn(x):
            plain.calls = getattr(plain, "calls", 0) + 1
            own.last = x + plain.calls
            return x * plain.calls

        f = compile(fn)
        return [f(X) for _ in range(3)], plain.calls, own.last

    check(use)
