"""Objects whose class has `__hash__` of its own, as keys of dicts and items of sets, under `fullgraph=True`."""
from __future__ import annotations

import collections
import dataclasses
import functools
import typing

import pytest
import torch

from ..checking import Programs, check

whole = Programs()
X = torch.arange(1.0, 5.0)


class Named:
    def __init__(self, name):
        self.name = name

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        return isinstance(other, Named) and self.name == other.name

    def __repr__(self):
        return f"Named({self.name})"


class Colliding:
    """With a hash, and equal to itself alone."""

    def __init__(self, number):
        self.number = number

    def __hash__(self):
        return 7


class Counted:
    asked = 0

    def __hash__(self):
        Counted.asked += 1
        return 3


class Equal:
    def __eq__(self, other):
        return True


class Frozen(frozenset):
    pass


class Pair(tuple):
    pass


@dataclasses.dataclass(frozen=True)
class Point:
    x: int = 1
    name: str = "x"


@dataclasses.dataclass(unsafe_hash=True)
class Loose:
    x: int = 1


class First(typing.NamedTuple):
    a: int
    b: int

    def __hash__(self):
        return 1

    def __eq__(self, other):
        return self.a == other.a

    def __lt__(self, other):
        return self.b > other.b

    def __add__(self, other):
        return "added"


class Same(typing.NamedTuple):
    a: int

    def __eq__(self, other):
        return True


class Layer(torch.nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name, self.inner = name, torch.nn.Linear(4, 4)

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        return isinstance(other, Layer) and self.name == other.name

    def forward(self, x):
        return self.inner(x)


LAYERS = {Layer("a"): 1, Layer("b"): 2}
FIRST_LAYER = next(iter(LAYERS))
TABLE = {Named(1): 10, Named(2): 20}
NAMES = {Named(1), Named(2)}
KEY = Named(1)


@whole
def made(x):
    d = {}
    d[Named(1)] = 1
    d[Named(1)] = 2
    d[Named(3)] = x
    s = {Named(1), Named(1), Named(2)}
    s.add(Named(1))
    s.discard(Named(2))
    asked = Named(1) in s, Named(9) in d, d.get(Named(9))
    return d[Named(1)] + x, len(d), d, list(d), s, asked, repr(s), sorted(map(str, d))


@whole
def read(x):
    return x + TABLE[Named(1)] + TABLE[KEY], KEY in NAMES, Named(2) in NAMES, TABLE.get(Named(9), 4), list(TABLE)


@whole
def items_removed(x):
    table, names = {Named(5): 1}, {Named(5)}
    names.add(Named(6))
    names.add(Named(5))
    table[Named(7)] = x
    return x + len(names) + table.pop(Named(5)), names, table


@whole
def algebra(x):
    a, b = {Named(1), Named(2)}, {Named(2), Named(3)}
    return x + 1, a | b, a & b, a - b, a ^ b, a == {Named(2), Named(1)}, a <= b, {Named(1): 2} == {Named(1): 2}


@whole
def in_tuples(x):
    return x + {(Named(1), 2): 3}[Named(1), 2] + {(Point(), 2): 3}[Point(), 2], (Named(1),) == (Named(1),)


@whole
def dataclasses_as_keys(x):
    return x + {Point(): 1}[Point()] + {Loose(): 2}[Loose()], Point() in {Point()}, hash(Point(2)) == hash((2, "x"))


@whole
def subclasses(x):
    return x + {Pair((1, 2)): 3}[1, 2] + {Frozen("a"): 4}[frozenset("a")], hash(Pair((1,))) == hash((1,))


@whole
def by_identity(x):
    one = Colliding(1)
    return x + len({Colliding(1), Colliding(1), one, one}), {one: 3}[one], Colliding(1) in {one}


@whole
def asked_once(x):
    Counted.asked, key = 0, Counted()
    d = {key: 1}
    d[key] = d[key] + 1
    d.pop(key)
    return x, Counted.asked


@whole
def default_dicts(x):
    d = collections.defaultdict(list)
    d[Named(1)].append(x)
    return d, collections.OrderedDict([(Named(1), 2)]), collections.Counter([Named(1), Named(1)])


@whole
def named_tuples(x):
    kept = {First(1, 2): 4}[First(1, 3)], len({First(1, 2), First(1, 3)}), {Same(1): 2}[Same(1)]
    compared = First(1, 2) == First(1, 5), First(1, 2) != First(1, 5), sorted([First(1, 2), First(1, 3)])
    return x + kept[0], kept, compared, First(1, 2) + First(1, 2), First(1, 2) in [First(1, 3)], Same(1) == 3


@whole
def modules(x):
    seen = {FIRST_LAYER, FIRST_LAYER}
    return FIRST_LAYER(x) + LAYERS[FIRST_LAYER], FIRST_LAYER in seen, len(LAYERS), {FIRST_LAYER: 3}[FIRST_LAYER]


@whole
def cached_results(x):
    @functools.lru_cache
    def length(named):
        return len(str(named))

    return x + length(Named(1)) + length(Named(1)) + length(Named(22)), length.cache_info().hits


@whole
def refused(x):
    found, d = [], {}
    for key in (Equal(), [], ({},), {1}):
        try:
            d = {key: 1}
        except TypeError as error:
            found.append(str(error))
    try:
        TABLE[Named(7)]
    except KeyError as error:
        found.append(repr(error.args[0]))
    return x + 1, found, d


@pytest.mark.parametrize("name", whole)
def test_captured_whole(name):
    check(lambda compile: [compile(whole[name], fullgraph=True)(X.clone()) for _ in range(2)])


def test_tables_of_the_caller():
    def program(compile):
        def f(x, table, names):
            names.add(Named(6))
            names.add(Named(5))
            table[Named(7)] = x
            return x + len(names) + table.pop(Named(5))

        f, held = compile(f, fullgraph=True), []
        for number in range(3):
            held += [{Named(5): number, Named(4): 0}, {Named(5), Named(number)}]
            held.append(f(torch.ones(2), *held[-2:]))
        return held

    check(program)


def test_a_key_that_changes_compiles_again():
    def program(compile):
        table = {Named(1): 2}
        f = compile(lambda x: x + table.get(Named(1), 7))
        out = [f(torch.ones(1))]
        next(iter(table)).name = 5
        out.append(f(torch.ones(1)))
        table[Named(1)] = 3
        return [*out, f(torch.ones(1))]

    check(program)
