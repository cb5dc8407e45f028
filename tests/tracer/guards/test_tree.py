"""Guard trees accept what they were made for and reject what differs in the guarded respect, exactly."""
from __future__ import annotations

import collections
import gc
import math
import types
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from ptdebug.tracer.guards import record_guards
from ptdebug.tracer.guards.kinds import KINDS
from ptdebug.tracer.guards.same_constants import is_same_constant
from ptdebug.tracer.sources.roots import GlobalSource, LocalSource, ModuleGlobalSource
from ptdebug.tracer.sources.source import (
    AttrSource,
    CallSource,
    CellSource,
    DefaultSource,
    ItemSource,
    KeySource,
    SizeSource,
)

A, B = LocalSource("a"), LocalSource("b")
some_global = 3


class Point:
    def __init__(self, x: Any) -> None:
        self.x = x


class Slotted:
    __slots__ = ("x",)


def double(x: Any) -> Any:
    return x * 2


def other(x: Any) -> Any:
    return x * 3


def make_double() -> Any:
    def inner(x: Any) -> Any:
        return x * 2

    return inner


CONSTANTS = [
    (3, [3], [4, 3.0, True, "3", None]),
    (True, [True], [False, 1, 1.0]),
    (False, [False], [True, 0, None]),
    (None, [None], [0, False, ""]),
    (0.0, [0.0], [-0.0, 0, False]),
    (-0.0, [-0.0], [0.0]),
    (math.nan, [math.nan, float("nan")], [0.0, None]),
    (1.5, [1.5], [2.5]),
    ("abc", ["ab" + "c"], ["abd", b"abc"]),
    ((1, 2), [(1, 2)], [(1, 2.0), (1, True), (1, 2, 3), [1, 2]]),
    (("a", "b"), [("a", "b")], [("a",), ("a", "c")]),
    ([1, [0.0]], [[1, [0.0]]], [[1, [-0.0]], [True, [0.0]]]),
    ({"k": 1}, [{"k": 1}], [{"k": True}, {"j": 1}, {}]),
    (torch.float32, [torch.float32], [torch.float64]),
    (torch.device("cpu"), [torch.device("cpu")], [torch.device("meta")]),
    (int, [int], [bool, float]),
    (frozenset({1}), [frozenset({1})], [frozenset({True}), frozenset({2})]),
]


@pytest.mark.parametrize(("value", "same", "different"), CONSTANTS, ids=repr)
def test_equals_match_is_exact(make_guards, value, same, different):
    guarded = make_guards(value).add(A, "EQUALS_MATCH", value)
    assert guarded.accepts(value)
    for item in same:
        assert guarded.accepts(item)
    for item in different:
        assert not guarded.accepts(item), item
        reason = guarded.why(item)
        assert reason.expected != "" and reason.actual != "" and "L['a']" in reason.guard


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(width=16), st.sampled_from(["", "a", "b"]),
)
TREES = st.recursive(
    SCALARS,
    lambda x: st.one_of(st.lists(x, max_size=2), st.tuples(x, x), st.dictionaries(st.sampled_from("ab"), x)),
    max_leaves=4,
)


@given(TREES, TREES)
def test_same_constant_agrees_with_repr(a, b):
    """repr tells apart exactly what a compiled constant must be told apart by (types, zeros' signs, order)."""
    assert is_same_constant(a, b) == (repr(a) == repr(b)) or "nan" in repr(a)


@pytest.mark.parametrize(("value", "good", "bad"), [
    (3, 4, 3.0), ([1], [2], (1,)), (Point(1), Point(2), Slotted()), ({}, {1: 2}, collections.OrderedDict()),
])
def test_type_match(make_guards, value, good, bad):
    guarded = make_guards(value).add(A, "TYPE_MATCH")
    assert guarded.accepts(good) and not guarded.accepts(bad)
    assert guarded.why(bad).actual.endswith(type(bad).__qualname__)


def test_identity(make_guards):
    point = Point(1)
    guarded = make_guards(point).add(A, "ID_MATCH", point)
    assert guarded.accepts(point) and not guarded.accepts(Point(1))
    assert guarded.why(Point(1)).actual.startswith("another object: an object of class `")


def test_an_entry_goes_with_the_object_it_knows_by_identity(make_guards):
    point = Point(1)
    guarded = make_guards(point).add(A, "ID_MATCH", point)
    entry = guarded.build()
    del guarded.builder, point
    gc.collect()
    assert "Point" in entry.dead


def test_function_match_is_about_code(make_guards):
    first, second = make_double(), make_double()
    guarded = make_guards(first).add(A, "FUNCTION_MATCH")
    assert guarded.accepts(second) and not guarded.accepts(double) and not guarded.accepts(3)
    assert "the function `double` in test_tree.py" in guarded.why(double).actual
    assert make_guards(len).add(A, "FUNCTION_MATCH").accepts(len)
    assert not make_guards(len).add(A, "FUNCTION_MATCH").accepts(max)


@pytest.mark.parametrize(("value", "bad"), [
    ([1, 2], [1]), ((1,), (1, 2)), ({1: 2}, {}), ({1}, {1, 2}), (collections.deque([1]), collections.deque()),
])
def test_length(make_guards, value, bad):
    guarded = make_guards(value).add(A, "LENGTH")
    assert guarded.accepts(value) and not guarded.accepts(bad) and not guarded.accepts(3)
    assert guarded.why(3).actual
    reason = guarded.why(bad)
    assert (reason.expected, reason.actual) == (str(len(value)), str(len(bad)))


@pytest.mark.parametrize("cls", [list, tuple])
def test_items_of_a_long_sequence(make_guards, cls):
    guarded = make_guards(cls(range(1000)))
    for index in range(1000):
        guarded.add(ItemSource(A, index), "EQUALS_MATCH", index)
    assert guarded.accepts(cls(range(1000))) and guarded.accepts(cls(range(1001)))
    for index in (0, 255, 256, 511, 512, 999):
        other = list(range(1000))
        other[index] = -1
        assert not guarded.accepts(cls(other)), index
        reason = guarded.why(cls(other))
        assert (reason.expected, reason.actual) == (str(index), "-1")
    assert not guarded.accepts(cls(range(999))) and not guarded.accepts(3)


def test_items_and_keys_of_a_large_dict(make_guards):
    names = {f"name{number}": number for number in range(1000)}
    guarded = make_guards(names)
    for number, name in enumerate(names):
        guarded.add(ItemSource(A, name), "EQUALS_MATCH", number).add(KeySource(A, number), "EQUALS_MATCH", name)
    assert guarded.accepts(dict(names))
    for number in (0, 255, 256, 999):
        assert not guarded.accepts({**names, f"name{number}": -1}), number
        assert guarded.why({**names, f"name{number}": -1}).actual == "-1"
        assert not guarded.accepts({k if v != number else "x": v for k, v in names.items()})
    assert not guarded.accepts(3)


@pytest.mark.parametrize("cls", [dict, collections.OrderedDict])
def test_dict_keys_in_order(make_guards, cls):
    guarded = make_guards(cls(x=1, y=2)).add(A, "DICT_KEYS")
    assert guarded.accepts(cls(x=5, y=6))
    for bad in (cls(y=1, x=2), cls(x=1), cls(x=1, y=2, z=3), cls(x=1, z=2), 3):
        assert not guarded.accepts(bad), bad
    assert guarded.why(cls(y=1, x=2)).actual == "['y', 'x']"


def test_membership(make_guards):
    guarded = make_guards({"x": 1}).add(A, "IN_DICT", "x").add(A, "NOT_IN_DICT", "y")
    assert guarded.accepts({"x": 2}) and not guarded.accepts({}) and not guarded.accepts(3)
    assert not guarded.accepts({"x": 1, "y": 1})
    guarded = make_guards({1}).add(A, "IN_DICT", 1).add(A, "NOT_IN_DICT", 2)
    assert guarded.accepts({1, 3}) and not guarded.accepts({1, 2}) and not guarded.accepts({3})


def test_attributes(make_guards):
    guarded = make_guards(Point(1)).add(A, "HAS_ATTR", "x").add(A, "NO_ATTR", "y")
    y = Point(1)
    y.y = 1
    assert guarded.accepts(Point(5)) and not guarded.accepts(y) and not guarded.accepts(Slotted())
    assert guarded.why(y).actual == "with `y`"


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)
        self.register_buffer("state", torch.zeros(2))
        self.number = 3

    @property
    def computed(self) -> int:
        return self.number + 1


def test_modules(make_guards):
    module = Tied()
    guarded = make_guards(module).add(A, "TYPE_MATCH")
    guarded.add(AttrSource(A, "training"), "BOOL", True).add(AttrSource(A, "number"), "EQUALS_MATCH", 3)
    guarded.add(AttrSource(A, "computed"), "EQUALS_MATCH", 4).add(A, "NO_ATTR", "missing")
    guarded.add(AttrSource(AttrSource(A, "inner"), "weight"), "TENSOR_MATCH")
    guarded.add(AttrSource(A, "state"), "TENSOR_MATCH")
    assert guarded.accepts(module) and guarded.accepts(Tied())
    changes = [
        lambda m: m.eval(),
        lambda m: setattr(m, "number", 4),
        lambda m: setattr(m, "missing", 1),
        lambda m: m.register_buffer("missing", None),
        lambda m: m.add_module("missing", None),
        lambda m: m.inner.double(),
        lambda m: setattr(m.inner.weight, "data", torch.zeros(2, 2, dtype=torch.float16)),
        lambda m: m.inner.weight.requires_grad_(False),
        lambda m: setattr(m, "state", torch.zeros(3)),
        lambda m: setattr(m.inner, "weight", None),
        lambda m: delattr(m, "inner"),
    ]
    for number, change in enumerate(changes):
        changed = Tied()
        change(changed)
        assert not guarded.accepts(changed), number
        reason = guarded.why(changed)
        assert reason.guard and reason.expected != reason.actual, number
    assert guarded.accepts(module)


def test_change_of_a_module_that_was_checked_before(make_guards):
    """Nothing is remembered between checks that would hide a change made in place."""
    module = Tied()
    guarded = make_guards(module).add(AttrSource(AttrSource(A, "inner"), "weight"), "TENSOR_MATCH")
    assert all(guarded.accepts(module) for _ in range(3))
    module.inner.weight.data = torch.zeros(2, 2, dtype=torch.float64)
    assert not guarded.accepts(module)


def make_closure(value: Any) -> Any:
    def inner(x: Any, y: Any = value, *, z: Any = value) -> Any:
        return value, x, y, z

    return inner


@pytest.mark.parametrize(("source", "make"), [
    (ItemSource(A, 0), lambda v: [v]),
    (ItemSource(A, 0), lambda v: (v,)),
    (ItemSource(A, -1), lambda v: [1, v]),
    (ItemSource(A, "k"), lambda v: {"k": v}),
    (ItemSource(A, "k"), lambda v: collections.OrderedDict(k=v)),
    (ItemSource(A, 0), lambda v: collections.deque([v])),
    (KeySource(A, 0), lambda v: {v: 1}),
    (AttrSource(A, "x"), Point),
    (AttrSource(A, "x", generic=True), Point),
    (ItemSource(AttrSource(A, "__dict__"), "x"), Point),
    (CellSource(A, 0, "value"), make_closure),
    (DefaultSource(A, 0), make_closure),
    (DefaultSource(A, "z"), make_closure),
    (CallSource(A, "len"), lambda v: [0] * v),
    (ItemSource(CallSource(A, "list"), 0), lambda v: {v: 1}),
    (AttrSource(A, "x"), lambda v: types.SimpleNamespace(x=v)),
], ids=lambda value: str(value) if hasattr(value, "expression") else "")
def test_sources(make_guards, source, make):
    guarded = make_guards(make(3)).add(source, "EQUALS_MATCH", 3)
    assert guarded.accepts(make(3)) and not guarded.accepts(make(4))
    assert guarded.why(make(4)).actual == "4"
    assert not guarded.accepts(object())  # cannot even be reached
    assert guarded.why(object()).actual


def test_globals_and_builtins(make_guards, monkeypatch):
    guarded = make_guards(0).add(GlobalSource("some_global"), "EQUALS_MATCH", 3).add(GlobalSource("len"), "ID_MATCH")
    guarded.add(ModuleGlobalSource("math", "pi"), "EQUALS_MATCH", math.pi)
    assert guarded.accepts(0)
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "some_global", 4)
        assert not guarded.accepts(0) and guarded.why(0).actual == "4"
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "len", max)
        assert not guarded.accepts(0) and "hides" in guarded.why(0).actual
    with monkeypatch.context() as patch:
        patch.setattr(math, "pi", 3.0)
        assert not guarded.accepts(0) and guarded.why(0).actual == "3.0"
    assert guarded.accepts(0)


def test_aliasing(make_guards):
    x, y = torch.zeros(2), torch.zeros(2)
    different = make_guards(x, y).add(A, "TENSOR_MATCH").add(B, "TENSOR_MATCH")
    assert different.accepts(torch.ones(2), torch.ones(2)) and not different.accepts(x, x)
    assert different.why(x, x).actual == "the same tensor twice"
    same = make_guards(x, x).add(A, "TENSOR_MATCH").add(B, "DUPLICATE_INPUT", A)
    assert same.accepts(y, y) and not same.accepts(x, y)
    assert same.why(x, y).expected == "the same object as L['a']"


def test_lambda(make_guards):
    guarded = make_guards(3).add(A, "LAMBDA", (lambda v: v > 2, "{} > 2"))
    assert guarded.accepts(5) and not guarded.accepts(1) and not guarded.accepts("x")
    assert guarded.why(1).guard == "L['a'] > 2"


GLOBAL_CHANGES = {
    "grad_mode": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "default_dtype": lambda: _temporarily(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "deterministic_algorithms": lambda: _temporarily(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True
    ),
    "threads": lambda: _temporarily(torch.get_num_threads, torch.set_num_threads, 1 + torch.get_num_threads() % 2),
    "torch function modes": lambda: torch.device("cpu"),
}


class _temporarily:
    def __init__(self, get, put, value):
        self.get, self.put, self.value = get, put, value

    def __enter__(self):
        self.before = self.get()
        self.put(self.value)

    def __exit__(self, *_):
        self.put(self.before)


@pytest.mark.parametrize("what", GLOBAL_CHANGES)
def test_global_state_is_always_guarded(make_guards, what):
    guarded = make_guards(0)
    assert guarded.accepts(0)
    with GLOBAL_CHANGES[what]():
        assert not guarded.accepts(0)
        reason = guarded.why(0)
        assert reason.guard == f"{reason.subject} == {reason.expected}" and reason.expected != reason.actual, reason
    assert guarded.accepts(0)


TENSOR_CHANGES = {
    ".dtype": lambda t: t.double(),
    ".size()[0]": lambda t: torch.zeros(4, 4),
    ".stride()[0]": lambda t: torch.zeros(4, 3).t(),
    ".dim()": lambda t: t[0],
    ".requires_grad": lambda t: t.clone().requires_grad_(),
    ".device": lambda t: t.to("meta"),
    "type(": lambda t: torch.nn.Parameter(t, requires_grad=False),
}


@pytest.mark.parametrize("what", TENSOR_CHANGES)
def test_tensor_match(make_guards, what):
    tensor = torch.zeros(3, 4)
    guarded = make_guards(tensor).add(A, "TENSOR_MATCH")
    assert guarded.accepts(torch.ones(3, 4))
    bad = TENSOR_CHANGES[what](tensor)
    assert not guarded.accepts(bad)
    reason = guarded.why(bad)
    assert what in reason.guard and reason.expected != reason.actual
    assert not guarded.accepts(None)


def test_sizes_as_values(make_guards):
    guarded = make_guards(torch.zeros(3, 4)).add(SizeSource(A, "size", 1), "EQUALS_MATCH", 4)
    assert guarded.accepts(torch.zeros(7, 4)) and not guarded.accepts(torch.zeros(7, 5))
    guarded = make_guards(torch.zeros(3)).add(SizeSource(A, "storage_offset", -1), "EQUALS_MATCH", 0)
    assert guarded.accepts(torch.zeros(4)) and not guarded.accepts(torch.zeros(4)[1:])


def test_the_nearest_entry_is_compared_with(make_guards):
    from ptdebug.tracer.guards import explain_recompile
    from ptdebug.tracer.guards.read import Scope

    def entry(a, b, name):
        built = make_guards(a, b).add(A, "EQUALS_MATCH", a).add(B, "EQUALS_MATCH", b).build()
        built.compile_id = name
        return built

    entries = [entry(1, 1, "0/0"), entry(2, 2, "0/1")]
    reason = explain_recompile(entries, Scope({"a": 2, "b": 3}, globals(), {}))
    assert reason.compared_with == "0/1" and (reason.expected, reason.actual) == ("2", "3")
    assert explain_recompile([], Scope({}, globals(), {})) is None


def test_records(make_guards):
    guarded = make_guards(Tied()).add(A, "TYPE_MATCH").add(AttrSource(AttrSource(A, "inner"), "weight"), "TENSOR_MATCH")
    guarded.add(GlobalSource("double"), "FUNCTION_MATCH")
    records = {g.source: g for g in record_guards(guarded.build().checks, {"L['a']": "capture#a"}).guards}
    assert records["L['a'].inner.weight"].parent == records["L['a']"].id
    assert records["L['a']"].origins == ("capture#a",)
    assert records["G['double']"].subject.startswith("the function `double` in test_tree.py:")
    assert "dtype is torch.float32" in records["L['a'].inner.weight"].code


def test_unknown_kinds_are_refused(make_guards):
    with pytest.raises(KeyError):
        make_guards(1).add(A, "NO_SUCH_KIND")


def test_asking_twice_is_one_guard(make_guards):
    guarded = make_guards(1).add(A, "EQUALS_MATCH", 1).add(LocalSource("a"), "EQUALS_MATCH", 1)
    assert sum(spec.source == A for spec in guarded.builder.specs) == 1
    assert all(kind.expected is not None for kind in KINDS.values())
