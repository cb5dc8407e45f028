"""What a program reads once and somebody changes later: modes of torch, what modules compute, how tensors came to be;
and numbers that are errors for later calls only."""
from __future__ import annotations

import enum
import functools
import logging
import math
import sys
import types

import pytest
import torch

from tests.programs.checking import Programs, call, check, check_engine

PROGRAMS = Programs()


def _module(**variables):
    module = types.ModuleType("settings_of_a_test")
    vars(module).update(variables)
    return module


@PROGRAMS
def history_of_inputs(compile):
    @compile
    def function(x):
        return x.detach() + 1, x.is_leaf, x.grad_fn is None, x.retains_grad, x.output_nr, x.is_shared()

    leaf = torch.ones(3, requires_grad=True)
    retained = leaf * 1
    retained.retain_grad()
    second = torch.ones(6, requires_grad=True).split(3)[1]
    return [function(x) for x in (leaf, leaf * 1, retained, second, leaf, torch.ones(3), torch.ones(3).share_memory_())]


@PROGRAMS
def the_same_memory(compile):
    function = compile(lambda x, y: (x + 1, x.is_set_to(y)))
    x = torch.ones(3)
    return [function(x, torch.ones(3)), function(x, x[:]), function(x, torch.ones(3))]


@PROGRAMS
def bounds_of_equal_ranges(compile):
    function = compile(lambda x, r: (x + 1, r.start, r.stop, r.step))
    return [function(torch.ones(2), r) for r in (range(0, 3, 2), range(0, 4, 2), range(0), range(5, 5))]


@PROGRAMS
def tensors_that_are_swapped(compile):
    torch.manual_seed(0)
    layer, other = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    function = compile(lambda x: layer(x.to(layer.weight.dtype)))
    found = [function(torch.ones(2, 3))]
    found[0].sum().backward()
    layer.zero_grad()
    torch.utils.swap_tensors(layer.weight, other.weight)
    found.append(function(torch.ones(2, 3)).detach())
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        layer.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
    return [*found, function(torch.ones(2, 3))]


@PROGRAMS
def settings_of_torch(compile):
    @compile
    def function(x):
        with torch.autocast("cpu"):
            product = x @ x
        flags = torch.backends.cudnn.benchmark, torch.utils.deterministic.fill_uninitialized_memory
        return product, torch.get_autocast_dtype("cpu"), torch.is_anomaly_enabled(), flags

    x, seen = torch.ones(2, 2), []
    seen.append(function(x))
    for owner, name in (
        (torch.backends.cudnn, "benchmark"), (torch.utils.deterministic, "fill_uninitialized_memory"),
    ):  # fmt: skip
        before = getattr(owner, name)
        setattr(owner, name, not before)
        seen.append(function(x))
        setattr(owner, name, before)
    with torch.autograd.set_detect_anomaly(True):
        seen.append(function(x))
    torch.set_autocast_dtype("cpu", torch.float16)
    seen.append(function(x))
    torch.set_autocast_dtype("cpu", torch.bfloat16)
    return [*seen, function(x)]


@PROGRAMS
def globals_that_modules_compute(compile):
    settings = _module()
    function = compile(lambda x: (x + 1, hasattr(settings, "scale"), getattr(settings, "scale", 0)))
    sys.modules["settings_of_a_test"] = settings
    seen = [function(torch.ones(2))]
    settings.__getattr__ = lambda name: 5
    seen.append(function(torch.ones(2)))
    settings.scale = 3
    seen.append(function(torch.ones(2)))
    del settings.__getattr__, settings.scale
    seen.append(function(torch.ones(2)))
    del sys.modules["settings_of_a_test"]
    return seen


@PROGRAMS
def modules_that_are_replaced(compile):
    @compile
    def function(x):
        import settings_of_a_test

        return x * settings_of_a_test.scale

    seen = []
    for scale in (1, 2):
        sys.modules["settings_of_a_test"] = _module(scale=scale)
        seen.append(function(torch.ones(2)))
    del sys.modules["settings_of_a_test"]
    return seen


@PROGRAMS
def levels_of_loggers(compile):
    function = compile(lambda x: (x + 1, logging.getLogger("of a test").level))
    seen = []
    for level in (10, 40, 0):
        logging.getLogger("of a test").setLevel(level)
        seen.append(function(torch.ones(2)))
    return seen


@PROGRAMS
def text_of_a_method_without_module(compile):
    function = compile(lambda x, rate: (x + rate.as_integer_ratio()[0], rate.is_integer()))
    return [function(torch.ones(2), rate) for rate in (3.5, 4.5, 6.25, 2.0)]


@PROGRAMS
def sets_that_change_while_a_loop_breaks(compile):
    @compile
    def function(x, items):
        seen = []
        for item in items:
            print(item)
            x = x + item
        try:
            for item in items:
                print(item)
                items.add(99)
        except RuntimeError as error:
            seen.append(str(error))
        return x, seen, items

    return [function(torch.ones(2), {1, 2, 3}) for _ in range(2)]


@PROGRAMS
def errors_in_a_loop_that_breaks(compile):
    @compile
    def function(x):
        try:
            ratios = [1 // shown(2 - i) for i in range(4)]
        except ZeroDivisionError:
            ratios = "none"
        return x + 1, ratios

    return [function(torch.ones(2)) for _ in range(2)]


def shown(number):
    print(number)
    return number


ERRORS = {
    "floordiv": lambda n: 1 // n, "modulo": lambda n: 7 % n, "division": lambda n: 1 / n,
    "sqrt": lambda n: math.sqrt(n), "log": lambda n: math.log(n), "power": lambda n: n**-1,
    "shift": lambda n: 1 << int(n), "pow": lambda n: math.pow(0, n),
}  # fmt: skip


DIVISIONS = {
    "used": lambda x, n: x + 1 // n.item(), "not_needed": lambda x, n: (x + 1, 7 % n.item())[0],
    "of_a_float": lambda x, n: x * (1 / n.double().item()),
}  # fmt: skip


@pytest.mark.parametrize("name", DIVISIONS)
def test_division_by_a_number_in_a_tensor(name):
    """The graph checks it, or breaks: compiled code would go on with some quotient, or leave the division out."""

    def function(x, n):
        try:
            return DIVISIONS[name](x, n)
        except ZeroDivisionError as error:
            return str(error)

    check_engine(lambda compile: [call(compile(function), torch.ones(2), torch.tensor(n)) for n in (1, 0, 3)])


class Described:
    """Members of a class that attributes of instances hide."""

    def __init__(self):
        self.count = 0

    @staticmethod
    def static(x):
        return x + 1

    @classmethod
    def of_class(cls, x):
        return x * 2

    @functools.cached_property
    def cached(self):
        self.count += 1000
        return 4

    @functools.singledispatchmethod
    def dispatched(self, x):
        return x * 5

    partial = functools.partialmethod(lambda self, x: x - 1)

    def __getattr__(self, name):
        if name != "lazy":
            raise AttributeError(name)
        self.lazy = 5
        self.count += 100
        return 5


@PROGRAMS
def members_of_a_class_that_an_instance_hides(compile):
    def fn(x, obj):
        return obj.static(x), obj.of_class(x), obj.dispatched(x), obj.partial(x), obj.cached

    results = []
    for name in ("static", "of_class", "dispatched", "partial"):
        f, obj = compile(fn), Described()
        results.append(f(torch.ones(1), obj))
        setattr(obj, name, lambda x: x * 77)
        results.append(f(torch.ones(1), obj))
        delattr(obj, name)
        results.append(f(torch.ones(1), obj))
    return results


@PROGRAMS
def attributes_that_are_computed_where_they_are_missing(compile):
    """Guards do not compute them."""

    def lazily(x, obj):
        obj.count += 1
        before = obj.count
        return x + obj.lazy, before

    def cached(x, obj):
        obj.count += 1
        before = obj.count
        return x + obj.cached, before

    results = []
    for fn in (lazily, cached):
        f, obj = compile(fn), Described()
        for number in range(7):
            if number in (3, 5):
                for name in ("lazy", "cached"):
                    vars(obj).pop(name, None)
            results.append((f(torch.ones(1), obj), obj.count))
    return results


@pytest.mark.parametrize("name", PROGRAMS)
def test_is_as_eager(name):
    check(PROGRAMS[name])


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("kind", [int, float])
def test_numbers_that_are_errors_later(name, kind):
    """Nothing needs the result, so no graph would raise."""
    compute = ERRORS[name]

    def function(x, n):
        compute(n)
        return x + 1

    def program(compile):
        compiled = compile(function)
        return [call(compiled, torch.ones(2), kind(n)) for n in (2, 3, 5, 0, -1, 4)]

    check(program)


class _Other:
    def __radd__(self, left):
        return 2

    def __gt__(self, left):
        return True


def _sum(items):
    try:
        return sum(items)
    except TypeError:
        return 1


GAINED = {
    "__len__": (lambda self: 0, lambda a, cls: 1 if a else 2),
    "__bool__": (lambda self: False, lambda a, cls: 1 if cls() else 2),
    "__call__": (lambda self: 0, lambda a, cls: callable(a)),
    "__eq__": (lambda self, other: True, lambda a, cls: a == 3),
    "__hash__": (lambda self: 3, lambda a, cls: {a: 1}.get(cls(), 2)),
    "__iter__": (lambda self: iter([1, 2]), lambda a, cls: _sum(a)),
    "__add__": (lambda self, other: 7, lambda a, cls: a + _Other()),
    "__lt__": (lambda self, other: False, lambda a, cls: a < _Other()),
    "__str__": (lambda self: "text", lambda a, cls: len(f"{a}") < 5),
    "__format__": (lambda self, spec: "text", lambda a, cls: len(f"{a}") < 5),
    "__init__": (lambda self: setattr(self, "more", 9), lambda a, cls: getattr(cls(), "more", 3)),
    "__new__": (lambda cls: 8, lambda a, cls: isinstance(cls(), int)),
    "__getattr__": (lambda self, name: 8, lambda a, cls: getattr(cls(), "more", 3)),
    "__getattribute__": (lambda self, name: 8, lambda a, cls: getattr(cls(), "more", 3)),
    "more": (5, lambda a, cls: getattr(cls(), "more", 3)),
}
"""Special methods, and what asks for each of `a`, an instance of `cls`, which has none."""


@pytest.mark.parametrize("of_base", [False, True])
@pytest.mark.parametrize("name", GAINED)
def test_a_class_that_gains_a_special_method(name, of_base):
    method, ask = GAINED[name]

    def program(compile):
        class Base:
            def __repr__(self):
                return "an object"

        class Own(Base):
            pass

        compiled = compile(lambda x, a, cls: x + ask(a, cls))
        a = Own()
        before = call(compiled, torch.ones(2), a, Own)
        setattr(Base if of_base else Own, name, method)
        return before, call(compiled, torch.ones(2), a, Own)

    check(program)


def test_metaclasses_that_gain_special_methods():
    def program(compile):
        class Meta(type):
            pass

        class Own(metaclass=Meta):
            pass

        compiled = compile(lambda x: (x + isinstance(3, Own), 1 if Own else 2, isinstance(Own(), Own)))
        results = [compiled(torch.ones(2))]
        for name, method in (("__instancecheck__", lambda cls, value: True), ("__call__", lambda cls: 3)):
            setattr(Meta, name, method)
            results.append(compiled(torch.ones(2)))
        Meta.__bool__ = lambda cls: False
        return [*results, compiled(torch.ones(2))]

    check(program)


def _tried(function, *args):
    try:
        return function(*args)
    except TypeError as error:
        return str(error)


def _with_parts():
    def function(x, n, m=1, *, k=2):
        """What it does."""
        return x.sum() + n + 10 * m + 100 * k

    function.more = 1
    return function


CHANGES = {
    "other defaults": (lambda f: f(1), lambda f: setattr(f, "__defaults__", (5,))),
    "more defaults": (lambda f: f(1), lambda f: setattr(f, "__defaults__", (5, 1))),
    "defaults for all": (lambda f: f(), lambda f: setattr(f, "__defaults__", (5, 1))),
    "no defaults": (lambda f: f(1), lambda f: setattr(f, "__defaults__", None)),
    "another keyword default": (lambda f: f(1), lambda f: setattr(f, "__kwdefaults__", {"k": 3})),
    "a keyword default changed": (lambda f: f(1), lambda f: f.__kwdefaults__.update(k=3)),
    "no keyword defaults": (lambda f: f(1), lambda f: setattr(f, "__kwdefaults__", None)),
    "a keyword default removed": (lambda f: f(1), lambda f: f.__kwdefaults__.clear()),
    "name": (lambda f: f.__name__, lambda f: setattr(f, "__name__", "another")),
    "qualified name": (lambda f: f.__qualname__, lambda f: setattr(f, "__qualname__", "another")),
    "docstring": (lambda f: f.__doc__, lambda f: setattr(f, "__doc__", "another")),
    "module": (lambda f: f.__module__, lambda f: setattr(f, "__module__", "another")),
    "attribute": (lambda f: f.more, lambda f: setattr(f, "more", 2)),
    "attributes": (lambda f: list(f.__dict__), lambda f: setattr(f, "another", 2)),
}
"""What is read of a function, and what somebody does to it between two calls."""


@pytest.mark.parametrize("of_method", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_functions_change(name, of_method):
    read, change = CHANGES[name]

    def program(compile):
        class Holder:
            method = _with_parts()

            def sum(self):
                return 3

        function, holder = _with_parts(), Holder()
        method = (lambda x: holder.method) if of_method else (lambda x: types.MethodType(function, x))
        compiled = compile(lambda x: (x + 1, _tried(read, method(x))))
        results = [compiled(torch.ones(2))]
        change(Holder.__dict__["method"] if of_method else function)
        return [*results, compiled(torch.ones(2))]

    check(program)


def test_names_of_classes_change():
    def program(compile):
        class Own:
            pass

        compiled = compile(lambda x, a: (x + 1, Own.__name__, Own.__qualname__, type(a).__name__, len(Own.__bases__)))
        results = [compiled(torch.ones(2), Own())]
        for name in ("__name__", "__qualname__"):
            setattr(Own, name, "another")
            results.append(compiled(torch.ones(2), Own()))
        return results

    check(program)


KEYS = {
    "list": list, "items": lambda d: [key for key, _ in d.items()], "first": lambda d: next(iter(d)), "copy": dict.copy,
    "spread": lambda d: {**d}, "merged": lambda d: d | {}, "item": lambda d: dict(d).popitem(), "set": lambda d: {*d},
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_that_are_members_of_an_enumeration(name):
    class Word(enum.StrEnum):
        A = "a"

    def program(compile):
        compiled = compile(lambda x, d: (x + 1, KEYS[name](d), "a" in d, d[Word.A]))
        return [repr(compiled(torch.ones(2), {key: 1})) for key in ("a", Word.A, "a")]

    check(program)
