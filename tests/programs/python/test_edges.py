"""What Python's own types and functions do at their edges: equal keys, order and number of questions, what was taken
before an exception, what special methods may return."""
# ruff: noqa: C408, UP031 - programs as people write them

from __future__ import annotations

import collections
import contextvars
import copy
import enum
import functools
import itertools
import json
import random
import typing
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from ptdebug.tracer.runtime.statistics import STATISTICS

from ..checking import Programs, call, check

program = Programs()


class Logged:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def __eq__(self, other):
        self.log.append((self.name, getattr(other, "name", other)))
        return False


class Sized:
    def __init__(self):
        self.asked = 0

    def __len__(self):
        self.asked += 1
        return 2

    def __iter__(self):
        return iter([1, 2])


@program
def who_is_asked_whether_it_equals(compile):
    def fn(x):
        log = []
        a, b = Logged(log, "a"), Logged(log, "b")
        mapping = {"k": b, "l": b}
        found = [a in [b], b in (a,), a in collections.deque([b]), a in mapping.values(), ("k", a) in mapping.items()]
        equal = [[a] == [b, b], (a,) == (b, b), {"p": a, "q": 1} == {"p": b, "r": 1}]
        left = [b, b, a]
        return x + 1, found, equal, len(list(iter(left.pop, a))), log

    return compile(fn)(torch.ones(2))


@program
def how_often_the_length_is_asked_for(compile):
    def fn(x):
        sized, asked, taken = Sized(), [], []
        for use in (list, tuple, sorted, set, sum, taken.extend, collections.deque, lambda s: [*s], lambda s: max(*s)):
            use(sized)
            asked.append(sized.asked)
        taken[:] = sized
        first, second = sized
        return x + first + second, asked, sized.asked, taken

    return compile(fn)(torch.ones(2))


@program
def one_of_two_equal_keys(compile):
    def fn(x):
        sets = {1} & {True}, {1.0, 2} & {1, 5}, {1}.intersection([True]), {0} | {False}, {1, 7} ^ {True}
        moved = collections.OrderedDict([(1, "a"), (2, "b")])
        moved.move_to_end(True)
        moved.move_to_end(2.0, last=False)
        merged = {} | collections.OrderedDict(a=1), collections.OrderedDict() | {}, {} | collections.defaultdict(int)
        return x + 1, [repr(sorted(one)) for one in sets], repr(moved), [type(one).__name__ for one in merged]

    return compile(fn)(torch.ones(2))


@program
def keys_that_only_python_can_compare(compile):
    class Pair(tuple):
        pass

    class Owner:
        def method(self):
            return 1

    def fn(x):
        owner, mapping = Owner(), {Pair((1, 2)): 1}
        mapping[Pair((1, 2))] = 2
        methods = {owner.method: 1}
        references = {weakref.ref(owner): 1}
        same = {"a": [1]}.items() == {"a": [1]}.items()
        return x + 1, len(mapping), (1, 2) in mapping, owner.method in methods, weakref.ref(owner) in references, same

    return compile(fn)(torch.ones(2))


@program
def what_was_taken_before_the_end(compile):
    def fn(x):
        def failing():
            yield 1
            raise ValueError("stop")

        numbers = {1, 2, 3}
        try:
            numbers.difference_update([2], failing())
        except ValueError as error:
            reason = str(error)
        above, apart = iter([1, 9, 3, 4]), iter([5, 1, 3, 4])
        answers = {1, 3}.issuperset(above), {1, 3}.isdisjoint(apart), {1, 2} in {frozenset((1, 2))}
        items = [3, 1, 2, "a", 0]
        try:
            items.sort()
        except TypeError:
            reason += "; not sorted"
        seen = []
        names = ["b", "a"]
        names.sort(key=lambda name: (seen.append(len(names)), name)[1])
        return x + 1, numbers, reason, answers, list(above), list(apart), items, names, seen

    return compile(fn)(torch.ones(2))


class Asked:
    def __radd__(self, other):
        return "radd", list(other)

    def __rmul__(self, other):
        return "rmul", list(other)

    def __index__(self):
        return 2

    def __iter__(self):
        return iter([7])


@program
def operands_that_are_asked_before_a_list(compile):
    def fn(x):
        one = other = [1, 2]
        one += Asked()
        two = other
        two *= Asked()
        three = other
        three += np.array([3, 4])
        return x + 1, one, two, three, other, int(Asked()), float(Asked())

    return compile(fn)(torch.ones(2))


class Odd:
    def __int__(self):
        return 2.5

    def __float__(self):
        return 3

    def __bool__(self):
        return 2

    def __len__(self):
        return -1

    def __hash__(self):
        return -1


@program
def special_methods_that_return_something_else(compile):
    def fn(x, ask):
        return x + 1, ask(Odd())

    return [call(compile(fn), torch.ones(2), ask) for ask in (int, float, bool, len, hash)]


Point = collections.namedtuple("Point", "a b")


class Made:
    def __new__(cls, below=False):
        return object.__new__(Below if below else cls)

    def __init__(self, below=False):
        self.kind = "made"


class Below(Made):
    def __init__(self, below=False):
        self.kind = "below"


class Refused:
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)


@program
def constructors(compile):
    def fn(x, make):
        return x + 1, make()

    makes = [
        lambda: Made(True).kind, lambda: Refused(1), lambda: Refused(a=1), lambda: Point(1, a=2), lambda: Point(1, c=2),
        lambda: Point(), lambda: Point(1, 2)._replace(c=3), lambda: type(copy.deepcopy(Point([1], 2))),
    ]  # fmt: skip
    return [call(compile(fn), torch.ones(2), make) for make in makes]


@program
def attributes_of_partials(compile):
    def fn(x, scaled):
        return scaled(x), getattr(scaled, "tag", "none"), getattr(scaled, "__name__", "unnamed"), scaled.__module__

    fn = compile(fn)
    scaled = functools.partial(torch.mul, 2)
    results = [fn(torch.ones(2), scaled)]
    functools.update_wrapper(scaled, torch.mul).tag = "own"
    return [*results, fn(torch.ones(2), scaled)]


CURRENT: contextvars.ContextVar[Any] = contextvars.ContextVar("CURRENT")


class Color(enum.Enum):
    RED = 1

    def __init__(self, value):
        self.seen = []


@program
def objects_that_no_variable_holds(compile):
    def fn(x):
        CURRENT.get().append(1)
        Color.RED.seen.append(2)
        return x + len(CURRENT.get()) + len(Color.RED.seen)

    Color.RED.seen.clear()
    kept: list[int] = []
    CURRENT.set(kept)
    fn = compile(fn)
    return [fn(torch.ones(2)), fn(torch.ones(2)), kept, list(Color.RED.seen)]


@program
def sums_of_floats(compile):
    def fn(x, numbers):
        mixed = sum([1, 0.1, 2, 0.2, True, 0.3]), sum((x.shape[0], 0.1, 0.2, 0.3)), sum([x, 0.1, 0.1, 0.1])
        return x * sum(numbers), sum(numbers), sum([1e100, 1.0, -1e100]), sum([-0.0]), mixed

    fn = compile(fn)
    return [fn(torch.ones(2), [0.1 * factor] * 10) for factor in (1, 2, 3)]


EXPRESSIONS = [
    lambda: {(1, [2]): 3}, lambda: {(1, [2])}, lambda: {}.get((1, {})), lambda: [1, 2][::0], lambda: range(1, 5, 0),
    lambda: [1, 2, 3].__setitem__(slice(None, None, 2), [1]), lambda: sum(["a"], ""), lambda: divmod(1.0, 0),
    lambda: [1].__imul__(1.5), lambda: list(itertools.islice([1, 2], -1)), lambda: list(reversed(frozenset((1,)))),
    lambda: {}.popitem(), lambda: collections.OrderedDict().popitem(), lambda: collections.defaultdict(factory=1),
    lambda: dict(tx=1, self=2), lambda: b"\xff".decode(), lambda: json.loads("{"), lambda: dict([1]),
    lambda: 1 in Odd(),
    lambda: map(1), lambda: max(default=1), lambda: max(1, 2, default=3), lambda: sorted([1], None),
    lambda: [].__eq__(1),
    lambda: {**[("a", 1)]}, lambda: call(*1), lambda: call(**1), lambda: (1, 2).copy(), lambda: [1].append(1, 2),
    lambda: "%ld %s" % (1, [1]), lambda: (lambda a: a)(1, 2, b=3), lambda: functools.partial(call, 1).missing,
    lambda: call.__get__(None, Odd) is call, lambda: callable(functools.partial(call).__call__),
]  # fmt: skip


@program
def expressions(compile):
    def ask(x, expression):
        try:
            return x + 1, repr(expression())
        except Exception as error:
            return x + 1, type(error).__name__, str(error)

    return [compile(lambda x, e=expression: ask(x, e))(torch.ones(2)) for expression in EXPRESSIONS]


class Pair(typing.NamedTuple):
    left: Any
    right: Any


class Whole(int):
    pass


class Searched:
    def __init__(self, **attributes):
        self.log = []
        vars(self).update(attributes)

    def __getattr__(self, name):
        if name != "log":
            self.log.append(name)
        raise AttributeError(name)


class Plain:
    pass


@program
def copies_and_what_they_share(compile):
    def fn(x, given):
        found = []
        for one in given:
            shallow, deep = copy.copy(one), copy.deepcopy(one)
            found += [shallow is one, deep is one, shallow, deep, type(shallow), type(deep)]
        own = Plain()
        vars(own)["__deepcopy__"] = lambda memo: 5
        return x + 1, found, copy.deepcopy(own)

    given = [Pair(1, "a"), Pair(1, [2]), torch.Size([2]), frozenset([1]), slice(1, 2), Whole(3), range(2), (1, [2])]
    f = compile(fn)
    return [f(torch.ones(2), given) for _ in range(2)]


@program
def copies_of_objects_that_are_asked(compile):
    def fn(x):
        one, other = Searched(a=1), Searched(a=[2])
        return x + 1, copy.copy(one), copy.deepcopy(other), one, other

    f = compile(fn)
    return [call(f, torch.ones(2)) for _ in range(2)]


class Tenfold(functools.partial):
    def __call__(self, *args):
        return super().__call__(*args) * 10


@program
def partials_that_change(compile):
    def scaled(x, factor=1):
        return x * factor

    def made(x):
        one = functools.partial(scaled, x, factor=2)
        same = one.args is one.args, one.keywords is one.keywords
        one.keywords["factor"] = 5
        return one(), same, functools.partial(one)()

    def changed(x, one):
        one.keywords["factor"] += 1
        return one(x), functools.partial(one, factor=2)(x), functools.partial(one)(x)

    f, g, h = compile(made), compile(changed), compile(lambda x, one: one(x))
    one, x = functools.partial(scaled, factor=3), torch.ones(2)
    found = [f(x), g(x, one), g(x, one), h(x, one)]
    one.keywords["factor"] = 7
    return found, h(x, one), h(x, Tenfold(scaled, factor=3)), h(x, one), one.keywords


@program
def tee_of_tee(compile):
    def fn(x):
        first, _ = itertools.tee([1, 2, 3, 4])
        second, third = itertools.tee(first)
        next(second)
        return x + 1, second is first, list(first), list(second), list(third), itertools.tee(third, 0)

    f = compile(fn)
    return [f(torch.ones(2)) for _ in range(2)]


class Doubled(collections.OrderedDict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value * 2)


class Plainer(dict):
    pass


class Constant(dict):
    def __getitem__(self, key):
        return "always"


@program
def methods_of_dicts_for_other_mappings(compile):
    """An operator may ask the other's class, a method does not; OrderedDict asks subclasses of dict, dict does not."""
    def merged(x, others):
        found = []
        for other in others:
            one = {"a": 1}
            found += [one.__or__(other), Plainer(a=1).__or__(other), one.__ior__(other), Plainer(a=1) | other]
        return x + 1, found, [type(one) for one in found], {"a": 1}.__ior__([("b", 2)]), {"a": 1}.__or__([("b", 2)])

    def doubled(x):
        one = Doubled(a=1)
        one.update(b=2)
        read = dict(Constant(a=1)), collections.OrderedDict(Constant(a=1))
        return x + 1, one.setdefault("c", 3), one, one.pop("a"), read

    f, g = compile(merged), compile(doubled)
    others = {"b": 2}, collections.OrderedDict(b=2), collections.Counter("b"), Plainer(b=2)
    return [(f(torch.ones(2), others), g(torch.ones(2))) for _ in range(2)]


Point = collections.namedtuple("Point", "a b")
VARIABLE = contextvars.ContextVar("VARIABLE")
NAMES = (
    "__class__", "__doc__", "__module__", "__name__", "__qualname__", "__dict__", "__hash__", "__bases__", "__mro__",
    "__call__", "__len__", "__eq__", "__iter__", "__next__", "__repr__", "__init__", "__self__", "__slots__", "missing",
    "append", "default_factory", "__weakref__", "__text_signature__",
)  # fmt: skip

MAKERS = [
    lambda: [1], lambda: (1,), lambda: {1}, lambda: frozenset([1]), lambda: {1: 2}, lambda: collections.OrderedDict(),
    lambda: collections.defaultdict(None), lambda: collections.deque([1], 2), lambda: Point(1, 2), lambda: slice(1),
    lambda: enumerate([1]), lambda: reversed([1]), lambda: zip([1]), lambda: map(str, [1]), lambda: iter({1: 2}),
    lambda: itertools.chain([1]), lambda: itertools.count(), lambda: {1: 2}.keys(), lambda: range(2), lambda: VARIABLE,
]  # fmt: skip


@program
def attributes_of_objects_of_builtin_classes(compile):
    """Those of the class, not those that its metaclass gives the class itself."""
    def has(x, make):
        return x + 1, [hasattr(make(), name) for name in NAMES if name != "__dict__"]

    def what(x, make, name):
        found = getattr(make(), name, "none")
        return x + 1, type(found).__name__, found if isinstance(found, (str, type, tuple)) else 0

    found = []
    for make in MAKERS:
        found.append(compile(lambda x, m=make: has(x, m))(torch.ones(2)))
        for name in ("__class__", "__doc__", "__hash__", "__len__"):
            found.append(compile(lambda x, m=make, n=name: what(x, m, n))(torch.ones(2)))
    return found


class Watched(list):
    asked = 0

    def __getitem__(self, index):
        self.asked += 1
        return super().__getitem__(index)

    def __iter__(self):
        self.asked += 1
        return iter([9])


@program
def lists_that_see_what_is_read(compile):
    f, watched = compile(lambda x, items: (x + items[0], list(items), [*items], len(items))), Watched([1, 2])
    return [f(torch.ones(2), watched) for _ in range(3)], watched.asked


@pytest.mark.parametrize("name", program)
def test_program(name):
    check(program[name])


@pytest.mark.parametrize("function", [
    lambda x, n: (x * n, list(Watched([1, 2]))), lambda x, n: x.sum(0)[:n], lambda x, n: (x * 2, range(n), [1] * n),
    lambda x, n: (x * 2, random.sample(population=[1, 2, 3], k=2)), lambda x, n: (x * 2, random.choice(seq=[1, 2])),
])  # fmt: skip
def test_what_is_not_followed_breaks_the_graph_and_is_no_error_of_ours(function):
    STATISTICS.clear()
    check(lambda compile: compile(function)(torch.ones(2, 3), Whole(2)))
    assert not [reason for reason in STATISTICS.reasons if reason.startswith("internal error")]
