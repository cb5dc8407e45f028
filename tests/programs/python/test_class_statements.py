"""Class statements inside of a compiled function: captured where the class stays inside, else run in eager there."""
from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from ptdebug.tracer.frames import dispatch
from ptdebug.tracer.runtime.statistics import STATISTICS

from ..checking import Programs, call, check

whole, broken = Programs(), Programs()
X = torch.arange(6.0).view(2, 3)


def twice(compile: Any, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Two calls."""
    f = compile(function)
    return [call(f, *args) for _ in range(2)]


@broken
def comprehensions_over_free_variables_of_the_class(compile):
    """Since 3.12 they are part of the body's code, which then has two variables of one name."""

    def fn(x, y):
        class Made:
            q = 1
            other = [y for p in range(2)], [q + 1 for q in range(2)]

            def run(self):
                return y

        return x + Made.other[0][1], Made.other[1], [name for name in vars(Made) if len(name) < 6], Made().run()

    return twice(compile, fn, X, X)


@whole
def members(compile):
    def fn(x, k):
        class Scale:
            """Scales."""

            factor, table, made = 2, {"a": x}, 0
            bias: int = 1

            def __init__(self, by=3):
                self.by = by
                type(self).made += 1

            def __call__(self, t):
                return t * self.factor * self.by + self.table["a"] + k

            @property
            def area(self):
                return self.by * self.factor

            @area.setter
            def area(self, value):
                self.by = value // self.factor

            @staticmethod
            def half(t):
                return t / 2

            @classmethod
            def of(cls, by):
                return cls(by)

            @functools.cached_property
            def once(self):
                return [self.by]

        a, b = Scale(), Scale.of(5)
        a.area = 8
        b.factor = 7
        Scale.bias = 4
        names = Scale.__name__, Scale.__qualname__, Scale.__doc__, type(a).__name__, Scale.__annotations__
        asked = isinstance(a, Scale), issubclass(Scale, object), hasattr(a, "factor"), getattr(b, "nope", 3)
        kept = a.once is a.once, a.area, b.area, Scale.made, Scale.bias, a.bias, a.by, dict(vars(b))
        return Scale.half(a(x)), b(x), names, asked, kept

    return twice(compile, fn, X, 4)


@whole
def inheritance(compile):
    def fn(x):
        class Base:
            scale = 2

            def run(self, t):
                return t * self.scale

            def __repr__(self):
                return f"{type(self).__name__}({self.scale})"

        class Child(Base):
            scale = 3

            def run(self, t):
                return super().run(t) + 1

        class Items(list):
            def total(self):
                return sum(self)

        items = Items([x, x + 1])
        items.append(x)
        return Child().run(x), repr(Child()), Child.__mro__[1].__name__, items.total(), len(items), Base().run(x)

    return twice(compile, fn, X)


@whole
def operators_and_slots(compile):
    def fn(x):
        class Vector:
            __slots__ = ("n", "t")

            def __init__(self, t, n):
                self.t, self.n = t, n

            def __add__(self, other):
                return Vector(self.t + other.t, self.n + other.n)

            def __eq__(self, other):
                return self.n == other.n

            def __lt__(self, other):
                return self.n < other.n

            def __len__(self):
                return self.n

            def __getitem__(self, i):
                return self.t[i]

            def __enter__(self):
                return self

            def __exit__(self, *error):
                self.n += 1

        a, b = Vector(x, 1), Vector(x * 2, 2)
        with a as c:
            total = c + b
        return total.t, len(total), a == b, sorted([b, a])[0].n, total[1], max(a, b).n, a.n

    return twice(compile, fn, X)


@whole
def errors_of_its_own(compile):
    def fn(x):
        class Wrong(ValueError):
            def __init__(self, code):
                super().__init__(f"code {code}")
                self.code = code

        try:
            raise Wrong(3)
        except ValueError as error:
            return x + error.code, str(error), type(error).__name__, error.args

    return twice(compile, fn, X)


@whole
def data_classes(compile):
    def fn(x):
        @dataclasses.dataclass
        class Config:
            t: torch.Tensor
            width: int = 3
            names: list = dataclasses.field(default_factory=list)

            def area(self):
                return self.width * 2

        @dataclasses.dataclass(frozen=True, order=True)
        class Key:
            a: int
            b: str = "b"

        c, d = Config(x), Config(x, width=5)
        c.names.append("n")
        keys = sorted([Key(2), Key(1, "z"), Key(1)])
        shown = repr(keys), Key(1) == Key(1), hash(Key(1)) == hash(Key(1)), [f.name for f in dataclasses.fields(Config)]
        plain = dataclasses.asdict(Key(3)), dataclasses.astuple(Key(1)), dataclasses.replace(Key(1), a=7).a
        return c.t * c.area() + d.area(), c.names, d.names, shown, plain

    return twice(compile, fn, X)


@whole
def loops_and_conditions_in_the_body(compile):
    flag = True

    def fn(x):
        class Table:
            squares = [i * i for i in range(4)]
            if flag:
                kind = "on"
            else:
                kind = "off"
            for i in range(2):
                last = i + len(squares)
            del i
            y = x + 1

        return x * Table.last + Table.y, Table.squares, Table.kind, hasattr(Table, "i")

    return twice(compile, fn, X)


@broken
def the_class_leaves(compile):
    def fn(x):
        y = x + 1

        class Made:
            k = 2

            def run(self, t):
                return t * self.k + y

        return Made().run(x), Made

    f = compile(fn)
    (a, first), (b, second) = f(X), f(X)
    return a, b, first is second, first().run(X), first.__qualname__


@broken
def an_instance_leaves(compile):
    kept = []

    def fn(x):
        class Made:
            def __init__(self, t):
                self.t = t * 2

        kept.append(Made(x))
        return x.sin(), kept[-1].t

    found = twice(compile, fn, X)
    return found, [(type(k).__name__, k.t) for k in kept], type(kept[0]) is type(kept[1])


@broken
def the_fields_of_a_data_class_leave(compile):
    @dataclasses.dataclass
    class Config:
        width: int = 3

    def fn(x, config):
        return x * config.width, dataclasses.replace(config, width=5).width, config.__dataclass_fields__

    (a, b, fields), _ = twice(compile, fn, X, Config())
    return a, b, type(fields), list(fields), fields is Config.__dataclass_fields__


@broken
def a_break_after_it(compile):
    def fn(x):
        class Made:
            k = 3

            def run(self, t):
                print("runs")
                return t * self.k

        y = Made().run(x)
        print(Made.__name__)
        return y + Made.k

    return twice(compile, fn, X)


@broken
def other_bases_and_metaclasses(compile):
    class Plugin:
        found = []

        def __init_subclass__(cls, **options):
            Plugin.found.append((cls.__name__, options))

    class Meta(type):
        def __call__(cls, *args):
            return super().__call__(*args), cls.__name__

    def fn(x):
        class One(Plugin, key=1):
            pass

        class Two(metaclass=Meta):
            pass

        return x + len(Plugin.found), isinstance(Two()[0], Two), issubclass(One, Plugin)

    return twice(compile, fn, X), Plugin.found


@broken
def code_that_runs_when_classes_are_made_or_objects_die(compile):
    log = []

    def fn(x):
        class Base:
            def __init_subclass__(cls):
                log.append(cls.__name__)

        class Child(Base):
            def __del__(self):
                log.append("dead")

        Child()
        return x + 1

    return twice(compile, fn, X), log


@broken
def tensors_in_the_body(compile):
    def fn(x):
        class Made:
            rows = [x + 1, x * 2]
            total = sum(rows).sin()

            def run(self, t, by=x.mean() + x.sum().item()):  # noqa: B008
                return t * by + self.total

        return Made().run(x), Made

    return [result for result, _ in twice(compile, fn, X)]


@broken
def an_error_in_the_body(compile):
    def fn(x, n):
        y = x + 1

        class Made:
            k = [1, 2][n]

            def run(self):
                return y * self.k

        return Made().run()

    f = compile(fn)
    return [call(f, X, n) for n in (0, 5, 1)]


@whole
def named_tuples_that_stay_inside(compile):
    def features(x):
        pair = collections.namedtuple("Pair", ["low", "high"], defaults=[3])
        return pair(x * 2, x + 1), pair(2), pair.__name__, pair._fields

    def fn(x):
        both, plain, name, fields = features(x)
        low, high = both
        total = sum(part.sum() for part in zip_products(both, both._replace(high=x)))
        return low, both.high, plain.high * high, name, fields, total, len(both), both[0] is low, both == (low, high)

    def zip_products(a, b):
        return [left * right for left, right in zip(a, b)]

    return compile(fn)(X)


@broken
def named_tuples_that_leave(compile):
    def fn(x, n):
        pair = collections.namedtuple("Pair", "low high", rename=n == 3)
        made = pair(x * 2, 1), pair(1, 2), (pair(1, (pair(1, 2),)),)
        return made if n == 1 else pair if n == 2 else x + made[1].low

    def told(found):
        parts = found if isinstance(found, tuple) and not isinstance(found, type) else ()
        return [(repr(part), type(part).__module__) for part in parts], getattr(found, "_fields", found)

    f = compile(fn)
    first, second = f(X, 1), f(X, 1)
    same = type(first[0]) is type(first[1]), type(first[0]) is type(second[0])
    return told(first), same, told(f(X, 2)), told(f(X, 0))


@broken
def named_tuples_that_cannot_be_made(compile):
    def fn(x, names, **options):
        try:
            return collections.namedtuple("Pair", names, **options)(x, 1).low
        except (TypeError, ValueError) as error:
            return str(error)

    f = compile(fn)
    return [call(f, X, "low low"), call(f, X, "low high", rename=True), call(f, X, ["class"]), call(f, X, 3)]


@broken
def classes_that_derive_from_a_named_tuple(compile):
    def fn(x):
        class Pair(collections.namedtuple("Pair", "low high")):
            def both(self):
                return self.low + self.high

        return Pair(x, 2).both()

    return compile(fn)(X)


@pytest.mark.parametrize("name", whole)
def test_a_class_that_stays_inside_is_captured(name: str) -> None:
    dispatch.reset()
    check(whole[name])
    assert (STATISTICS.graph_breaks, STATISTICS.recompiles) == (0, 0), dict(STATISTICS.reasons)


@pytest.mark.parametrize("name", broken)
def test_other_class_statements_run_in_eager(name: str) -> None:
    check(broken[name])


def test_many_calls_make_no_class_anew():
    def program(compile):
        def fn(x):
            class Made:
                def run(self, t):
                    return t * 2

            return Made().run(x)

        f = compile(fn)
        return [f(X) for _ in range(12)]

    dispatch.reset()
    check(program)
    assert STATISTICS.graphs == 1
