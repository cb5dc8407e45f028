"""Read-only views of mappings (`types.MappingProxyType`, signatures, the `__dict__` of a class) are no constants: what
becomes of the mapping shows in them."""
from __future__ import annotations

import collections
import inspect
import types

import pytest
import torch

from ..checking import Programs, check, check_whole

program = Programs()
"""Programs that make one graph for each state of what they read."""


class Base:
    scale = 2


class Plain(Base):
    """Its class is changed between calls."""

    def __init__(self, **items):
        self.items = items

    @property
    def shown(self):
        return types.MappingProxyType(self.items)


@program
def the_mapping_changes(compile):
    held = {"a": 1, "b": 2}
    shown = types.MappingProxyType(held)
    f = compile(lambda x: (x + shown["a"], len(shown), "c" in shown, shown.get("c", 3), bool(shown), list(shown)))
    results = [f(torch.ones(1))]
    held["a"] = 5
    results.append(f(torch.ones(1)))
    held["c"] = torch.zeros(2)
    return [*results, f(torch.ones(1))]


@program
def loops(compile):
    def f(x, shown):
        for name, value in shown.items():
            x = x + value * len(name)
        return x, [*shown], [*shown.keys()], [*shown.values()], {**shown}, dict(shown), shown.copy(), shown

    f = compile(f)
    views = [types.MappingProxyType(made) for made in ({"a": 1, "bc": 2}, collections.OrderedDict(d=torch.ones(1)))]
    return [f(torch.ones(1), shown) for shown in views]


@program
def comparison_and_union(compile):
    def f(x, shown, other):
        union = shown | {"z": 1}, {"z": 1} | shown, other | shown
        return x + 1, shown == {"a": 1}, {"a": 1} == shown, shown != other, union

    f = compile(f)
    views = [types.MappingProxyType(made) for made in ({"a": 1}, {"a": 2}, {"a": 1, "b": 2})]
    return [f(torch.ones(1), shown, views[0]) for shown in views]


@program
def made_in_the_function(compile):
    def f(x, held, o):
        shown = types.MappingProxyType(held)
        before = x * shown["a"]
        held["a"] = 5
        return before, shown["a"], shown, list(shown.items()), sorted(o.shown), o.shown.get("q", 0)

    f = compile(f)
    return [f(torch.ones(1), {"a": 3}, o) for o in (Plain(b=2, a=1), Plain(c=torch.ones(1)))]


@program
def parameters_of_a_signature(compile):
    def message(x_i, x_j, index, size=3):
        pass

    kept = inspect.signature(message).parameters

    def f(x):
        empty = inspect.Parameter.empty
        here = [name for name, p in inspect.signature(message).parameters.items() if p.default is empty]
        return x + sum(p.default for p in kept.values() if p.default is not empty), here, "size" in kept, list(kept)

    return compile(f)(torch.ones(1))


@program
def dicts_of_classes(compile):
    def f(x, o):
        names = [name for name in vars(type(o)) if not name.startswith("_")]
        called = [name for name, value in vars(Base).items() if callable(value)]
        return x * Base.__dict__["scale"], "other" in vars(Base), "scale" in Plain.__dict__, names, called

    f = compile(f)
    results = [f(torch.ones(1), Plain())]
    try:
        Base.scale = 3
        results.append(f(torch.ones(1), Plain()))
        Base.other = 1
        results.append(f(torch.ones(1), Plain()))
        Plain.scale = 7
        results.append(f(torch.ones(1), Plain()))
    finally:
        Base.scale = 2
        for cls, name in ((Base, "other"), (Plain, "scale")):
            if name in vars(cls):
                delattr(cls, name)
    return results


@program
def texts_and_order(compile):
    def f(x, shown):
        words = repr(shown), str(shown), f"{shown}, {shown!r:>40}"
        return x + 1, words, [*reversed(shown)], [*reversed(shown.items())], [*shown.__reversed__()]

    f = compile(f)
    made = {"a": 1, "b": (2, [None])}, {}, {3: {"c": "d"}, "e": 1.5}
    return [f(torch.ones(1), types.MappingProxyType(items)) for items in made]


@program
def what_has_no_hash(compile):
    def f(x, key):
        found = []
        for act in (hash, lambda key: {key: 1}, lambda key: key in {1, 2}, lambda key: hash((1, key))):
            try:
                found.append(act(key))
            except TypeError as error:
                found.append(str(error))
        return x + 1, found

    f = compile(f)
    keys = (
        types.MappingProxyType({"a": 1}), [1], {}, {1}, collections.deque(), collections.OrderedDict(),
        collections.defaultdict(int), collections.Counter(), types.SimpleNamespace(),
    )  # fmt: skip
    return [f(torch.ones(1), key) for key in keys]


@pytest.mark.parametrize("name", program)
def test_program(name):
    check_whole(program[name])


def test_what_it_refuses():
    def f(x, shown):
        found = []
        acts = lambda: shown.update, lambda: hash(shown), lambda: shown["none"], lambda: shown.__setitem__("a", 1)
        for act in acts:
            try:
                act()
            except Exception as error:
                found.append((type(error), str(error)))
        return x + 1, found, repr(shown)

    check(lambda compile: compile(f)(torch.ones(1), types.MappingProxyType({"a": 1})))
