"""Subclasses of containers, iterators that leave, and the errors of containers, under `fullgraph=True`."""
from __future__ import annotations

import collections
import functools
import itertools
import operator
import typing
import unittest

import numpy as np
import pytest
import torch

from ..checking import Programs, check

whole = Programs()
X = torch.arange(1.0, 5.0)


class Tagged(tuple):
    def __new__(cls, *items):
        self = super().__new__(cls, items)
        self.extra = 3
        return self


class Plain(tuple):
    pass


class Numbers(list):
    def __init__(self, *items):
        super().__init__(items)
        self.n = len(items)


class Names(typing.NamedTuple):
    a: int
    b: int = 2


class More(collections.namedtuple("Base", ["p", "q"])):
    def __new__(cls, p, q=3):
        return super().__new__(cls, p, q)


class Table(dict):
    def __missing__(self, key):
        return key


class Some(set):
    pass


class Few(frozenset):
    pass


class ByIndex:
    def __init__(self, n):
        self.n = n

    def __getitem__(self, i):
        if i >= self.n:
            raise IndexError
        return i * 2


class Refuses:
    __contains__ = None

    def __iter__(self):
        return iter([1])


class Position:
    def __index__(self):
        return 1


class Generic(typing.Generic[typing.TypeVar("T")]):
    def __init__(self, value):
        self.value = value


class Listed:
    __match_args__ = ["a"]


class Twice:
    __match_args__ = ("a", "a")
    a = 1


def told(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return type(error).__name__, str(error)


@whole
def attributes(x):
    t, n = Tagged(1, 2), More(1)
    t.more, n.attr = x, 4
    return x + t.extra + n.attr, t, n, t.more + 1, n == (1, 3), {Names(1): 2}[1, 2]


@whole
def compared(x):
    found = Numbers(1) < Numbers(2), Plain((1,)) < Plain((2,)), Names(1) < Names(2), Few([1]) == {1}, Some([1]) | {2}
    methods = {1}.__or__({2}), {1}.__ror__({3}), [1].__ne__([2]), {1}.__lt__(3), {1}.__eq__({1}), (1,).__ge__(())
    return x + 1, found, methods


@whole
def texts(x):
    made = Numbers(1), Some([1]), Some(), Table(a=1), Plain((1,)), {1: 2}.keys(), {1: 2}.items()
    found = [repr(one) for one in made]
    return x + 1, found, str({1: x.shape[0]}.values()), repr(Few([1])), repr(Few())


@whole
def from_keys(x):
    made = dict.fromkeys([1, 2], x), Table.fromkeys("a"), Table(b=1).fromkeys("c", 2), {}.fromkeys([3])
    empty = frozenset([1])
    empty.__init__([2])
    return x, made, collections.OrderedDict.fromkeys("ab", 1), collections.defaultdict.fromkeys("a"), empty


@whole
def iterators(x):
    chain, cycle, ended = itertools.chain([1, 3], [2]), itertools.cycle([1, 2, 3]), itertools.takewhile(bool, [1, 0])
    late, calls = itertools.dropwhile(bool, [1, 0, 2]), iter([3, 4, 5].pop, 4)
    first = next(chain), next(cycle), next(cycle), list(ended), next(late), next(calls)
    again = itertools.cycle([1, 2])
    return x, first, chain, cycle, ended, late, calls, [next(again) for _ in range(3)], again, iter(ByIndex(2))


@whole
def by_index(x):
    calls = list(iter(iter([1, 2]).__next__, 2))
    return x + sum(ByIndex(4)), list(ByIndex(3)), 4 in ByIndex(3), [3, 4][Position()], calls


@whole
def popped(x):
    s, d = {3, 1, 2}, collections.defaultdict(list)
    d.default_factory = int
    d |= [("k", 1)]
    return x + s.pop(), s, d["a"], d, d.__missing__("b")


@whole
def sets_of_the_caller(x, given=(Some([1, 2]), Few("ab"))):  # noqa: B008
    return x + len(given[0]), 1 in given[0], given[0] | {5}, sorted(given[1] | {"c"}), given[0] == {1, 2}, given


@whole
def refused(x):
    calls = [
        lambda: [].append(1, 2), lambda: {}.get(), lambda: {1}.remove(2), lambda: {}.popitem(), lambda: {}.popitem(1),
        lambda: dict([(1,)]), lambda: dict([1]), lambda: list(3), lambda: [1] < (1,), lambda: {1} - [1],
        lambda: Some() - "a", lambda: Numbers() + (1,), lambda: len(iter([])), lambda: (1,).count(),
        lambda: {}.update(1, 2), lambda: {} | [],
        lambda: Plain(a=1), lambda: Plain(1, 2), lambda: Few(a=1), lambda: 1 in Refuses(), lambda: {}.fromkeys(),
        lambda: {}.__ior__(None), lambda: collections.defaultdict(int) | [1], lambda: frozenset().union(3),
        lambda: [].__getitem__(1.5),
    ]  # fmt: skip
    return x + 1, [told(call) for call in calls]


@whole
def exceptions(x):
    error = ValueError(1)
    error.__cause__ = None
    found = [told(setattr, error, name, 3) for name in ("__cause__", "__context__", "__traceback__")]
    group = ExceptionGroup("g", [ValueError(1)])
    return x + 1, error.__suppress_context__, found, told(lambda: ValueError(a=1)), len(group.exceptions), group.message


@whole
def contexts_of_generators(x):
    def handling():
        try:
            raise KeyError("a")
        except KeyError:
            yield

    generator = handling()
    next(generator)
    try:
        generator.throw(ValueError)
    except ValueError as error:
        found = error.__context__
    fresh = handling()
    text, after = told(fresh.send, 3), next(fresh)
    fresh.close()
    kinds = type(handling()).__name__, handling().__class__.__name__
    return x + 1, type(found).__name__, found.args, kinds, text, after


@whole
def patterns(x):
    def listed():
        match Listed():
            case Listed(y):
                return y

    def twice():
        match Twice():
            case Twice(y, z):
                return y, z

    return x + 1, told(listed), told(twice)


@whole
def operands_that_change(x):
    first, second = [], [1]

    class Clears:
        def __eq__(self, other):
            second.clear()
            return NotImplemented

    first.append(Clears())
    return x + 1, first == second, [1, 2] == [1, 2], [1, 2] < [1, 3], (1, 2) >= (1,), [1] < [1, 2]


@whole
def functions(x):
    def annotated(a: int, b: str = "") -> float:
        return a

    annotated.kind = 3
    partial = functools.partial(operator.add, 1)
    return x + annotated.kind, annotated.__annotations__, annotated, hasattr(partial, "missing")


@whole
def identities(x):
    a, b = [], []
    memo = {id(a): 1}
    return x, id(a) == id(b), id(a) == id(a), id(b) in memo, memo[id(a)], len({id(a), id(b), id(a)})


@whole
def constants(x):
    limits = np.iinfo(np.int16).max, np.finfo("float32").eps, np.dtype("int16").itemsize
    return x + limits[0], limits, Generic[int](4).value, Generic(2).value, torch.typename(x)


@whole
def asserted(x):
    case = unittest.TestCase()
    case.assertEqual([1], [1])
    case.assertRaises(KeyError, {}.pop, "a")
    with case.assertRaises(TypeError):
        len(3)
    return x + 1


@pytest.mark.parametrize("name", whole)
def test_captured_whole(name):
    check(lambda compile: [compile(whole[name], fullgraph=True)(X.clone()) for _ in range(2)])
