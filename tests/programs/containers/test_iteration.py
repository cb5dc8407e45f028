"""Programs that change what they iterate over, whose folds see what ran between two items, or that compare what a break
left."""
# ruff: noqa: C405, C416 - programs as people write them

from __future__ import annotations

import collections
import decimal
import functools
import itertools
import operator
from typing import Any

import numpy as np
import ptdebug
import pytest
import torch

from ..checking import Programs, call, check

program = Programs()
X = torch.ones(2)


@program
def reversed_list_that_changes(compile):
    def fn(x, ns, shrink):
        seen = []
        for n in reversed(ns):
            seen.append(n)
            if shrink:
                del ns[-2:]
            else:
                ns[:1] = [n, n]
        return x * len(seen), seen

    fn = compile(fn)
    numbers = [[1, 2, 3], [4, 5, 6, 7]]
    return [fn(torch.ones(2), ns, shrink) for ns in numbers for shrink in (False, True)], numbers


@program
def reversed_list_across_a_break(compile):
    def fn(x, ns):
        seen = []
        for n in reversed(ns):
            seen.append(n)
            ns[0] = n
            print(n)
            del ns[-1:]
        return x * len(seen), seen

    return compile(fn)(torch.ones(2), [1, 2, 3, 4, 5])


@program
def deque_that_changes(compile):
    def fn(x, change, backwards):
        items = collections.deque([1, 2, 3], maxlen=4)
        seen = []
        try:
            for item in reversed(items) if backwards else items:
                seen.append(item)
                change(items)
        except RuntimeError as error:
            seen.append(str(error))
        return x * len(seen), seen, items

    fn = compile(fn)
    changes = [
        lambda d: d.append(1), lambda d: d.rotate(1), lambda d: d.reverse(), lambda d: d.extend([]),
        lambda d: d.__setitem__(0, 7), lambda d: d.insert(0, 1), lambda d: d.clear(), lambda d: d.extendleft(d),
    ]  # fmt: skip
    return [fn(torch.ones(2), change, way) for change in changes for way in (False, True)]


@program
def errors_of_deques(compile):
    def fn(x, act):
        items = collections.deque([1, 2, 3], maxlen=3)
        return x * act(items), items

    fn = compile(fn)
    acts = [
        lambda d: d.remove(9), lambda d: d.insert(0, 1), lambda d: d[9], lambda d: d[0:1], lambda d: d.index(9),
        lambda d: d.clear() or d.pop(), lambda d: (d.popleft() and d.append(5)) or d[-1], lambda d: d.sort(),
    ]  # fmt: skip
    return [call(fn, torch.ones(2), act) for act in acts]


@program
def dict_that_changes(compile):
    def fn(x, make, change, view):
        d = make(a=1, b=2, c=3)
        seen = []
        try:
            for key in view(d):
                seen.append(key)
                change(d)
                if len(seen) > 9:
                    break
        except RuntimeError as error:
            seen.append(str(error))
        return x * len(seen), seen, d

    fn = compile(fn)
    changes = [
        lambda d: d.update(z=1), lambda d: (d.pop("b", 0), d.update(b=5)), lambda d: d.update(a=9),
        lambda d: d.update(z=1) if len(d) == 3 and "c" in d else None,
    ]  # fmt: skip
    views = [iter, reversed, lambda d: d.items(), lambda d: d.values(), lambda d: reversed(d.items())]
    makes = [dict, collections.OrderedDict]
    return [call(fn, torch.ones(2), m, c, view) for m in makes for c in changes for view in views]


@program
def equal_sets_that_were_filled_in_another_order(compile):
    def fn(x, given):
        made = given | {5}, given - {5}, set(given), frozenset(given), given.union([3])
        text, frozen = str(given), list(map(list, made))
        given.add(5)
        return x + len(given), frozen, text, list(given), [list(one) for one in made]

    f = compile(fn)
    return [f(torch.ones(2), set(items)) for items in ([8, 0], [0, 8], [8, 0])]


@program
def equal_constants_of_other_types_in_sets_and_as_keys(compile):
    def of_a_set(x, given):
        return x + len(given), list(given), str(given)

    def of_a_dict(x, given):
        return x + len(given), list(given), str(list(given.items()))

    f, g = compile(of_a_set), compile(of_a_dict)
    groups = [(1, True, 1.0), (0.0, -0.0, False), ((1, 2), (True, 2), (1, 2.0)), (frozenset([1]), frozenset([True]))]
    groups += [(range(0, 3, 2), range(0, 4, 2)), (torch.float32, np.dtype("float32"), np.float32)]
    return [(f(torch.ones(2), {one}), g(torch.ones(2), {one: 2})) for group in groups for one in group]


@program
def sets_and_views_of_dicts(compile):
    """A set made with a view is a new one, in the order that it has where Python makes it."""

    def fn(x, plain, other):
        numbers = given = {1, 2, 3}
        numbers -= {1: 0}.keys()
        kinds = frozenset((1, 2)) | {3: 0}.keys(), {1: 1}.keys() & frozenset((1,)), {5: 1}.items() ^ {(5, 1), (6, 1)}
        orders = []
        for keys in (plain.keys(), other.keys(), collections.OrderedDict(plain).keys()):
            made = [keys - {"a"}, keys | {"u", "v"}, keys & {"a", "b", "d", "f"}, keys ^ {"a", "q"}]
            made += [{"a", "b", "q"} - keys, {"a", "b", "c", "q"} & keys]
            orders += [list(one) for one in made]
        wholes = list(set(plain)), list(set(other)), list({"k"}.union(other)), list({**plain}.items() - {("a", 0)})
        return x + len(given), numbers is given, numbers, kinds, [type(one) for one in kinds], orders, wholes

    fn = compile(fn)
    letters, colliding = "abcdefghijkl", [0, 8, 16, 33, 32, 40, 1, 2]
    keys = letters[:4], letters[:9], colliding
    return [fn(torch.ones(2), dict.fromkeys(ks, 0), collections.Counter(ks)) for ks in keys]


@program
def order_of_sets(compile):
    def fn(x, ns):
        shown = {3, 17, 33, 1, 65, 9}
        taken = set(range(0, 90, 7))
        for n in (0, 7, 14, 21, 28):
            taken.remove(n)
        made = [shown, set([9, 65, 33, 17, 3, 1]), taken, shown | {129}, shown - {3}, shown & taken, set(ns)]
        made += [taken.union([5], {6}), taken.intersection([35, 77, 3]), frozenset(ns) | {70, 71}, taken.copy()]
        grown = {q * 8 for q in range(9)}
        grown -= {8, 16}
        grown |= {1, 9}
        grown.update([1, 2], {100: 0, 200: 0})
        orders = [list(one) for one in (*made, grown)], str(taken)
        print(grown)
        return x * len(grown), orders, list(grown), [n for n in ns], made

    fn = compile(fn)
    return [fn(torch.ones(2), ns) for ns in ([8, 4, 16, 0], {8, 0, 16}, {16, 0, 8}, dict.fromkeys(range(0, 99, 8)))]


@program
def set_that_changes(compile):
    def fn(x, change):
        items, seen = {1, 2, 3}, []
        try:
            for item in items:
                seen.append(item)
                change(items)
        except RuntimeError as error:
            seen.append(str(error))
        return x * len(seen), seen, items

    fn = compile(fn)
    return [fn(torch.ones(2), change) for change in (lambda s: s.add(9), lambda s: s.discard(9), lambda s: s.clear())]


@program
def folds_take_items_one_by_one(compile):
    def fn(x, log):
        def items(n):
            for i in range(n):
                log.append(("item", i, len(log)))
                yield i

        def key(n):
            log.append(("key", n))
            return -n

        def add(a, b):
            log.append(("add", a, b))
            return a + b

        found = max(items(3), key=key), min(items(3), key=key), functools.reduce(add, items(3))
        log.extend(items(2))
        log += items(2)
        queue = collections.deque(maxlen=2)
        queue.extend(len(queue) for _ in range(4))
        return x * found[0], found, queue

    fn = compile(fn)
    log: list[Any] = []
    return [fn(torch.ones(2), log) for _ in range(2)], log


@program
def what_an_error_leaves_half_done(compile):
    def fn(x, ns, d):
        def items():
            yield "a", 1
            yield "b", 2
            raise KeyError("c")

        for act in (ns.extend, d.update, ns.__iadd__):
            try:
                act(items())
            except KeyError:
                ns.append(len(d))
        return x + len(ns)

    ns: list[Any] = [0]
    d: dict[str, int] = {"a": 0}
    return compile(fn)(torch.ones(2), ns, d), ns, d


@program
def groups_are_made_as_they_are_asked_for(compile):
    def fn(x, log):
        def items():
            for i in range(7):
                log.append(i)
                yield i

        kept = [(k, g) for k, g in itertools.groupby(items(), key=lambda i: i // 3)]
        late = [(k, list(g)) for k, g in kept]
        lists = []
        for k, g in itertools.groupby(items(), key=lambda i: i // 3):
            log.append(("key", k))
            if k != 1:
                lists.append((k, list(g)))
        return x + 1, late, lists

    log: list[Any] = []
    return compile(fn)(torch.ones(2), log), log


@program
def attributes_are_read_before_the_arguments(compile):
    class Owner:
        @property
        def found(self):
            log.append("found")
            print("found")
            return lambda value: value + 1

        def __getattr__(self, name):
            log.append(name)
            if name == "missing":
                raise AttributeError(name)
            return lambda value: value + 2

    def fn(x, owner, ns):
        def argument():
            log.append("argument")
            owner.act = lambda value: value - 1
            return x

        owner.act = lambda value: value * 2
        results = [owner.act(argument()), owner.found(argument()), owner.other(argument())]
        for bad in (owner, ns, x.sum, x):
            try:
                bad.missing(argument())
            except AttributeError as error:
                log.append(str(error))
        return results

    log: list[str] = []
    return call(compile(fn), torch.ones(2), Owner(), [1]), log


@program
def a_function_is_made_after_a_break(compile):
    def fn(x, ns):
        def items():
            yield from reversed(ns)

        made = items()
        next(made)
        ns[0] = 17
        print("broken")
        return x + 1, list(made)

    return compile(fn)(torch.ones(2), [1, 2, 3])


@program
def objects_that_a_break_left_are_compared(compile):
    def fn(x, y, number):
        size, items = x.shape, reversed([1, 2])
        print("broken")
        sizes = size == y.shape, y.shape == size, size != (x + 1).shape, size == (2,), list(size)
        return x + 1, sizes, items == items, items != 3, (items, 1) == (items, 1), number == 1.5, number in [2, 1.5]

    fn = compile(fn)
    return [fn(torch.ones(2), torch.zeros(n), decimal.Decimal("1.5")) for n in (2, 3)]


class Position:
    def __init__(self, at):
        self.at = at

    def __index__(self):
        return self.at


@program
def objects_that_are_indices(compile):
    def fn(x, ask, at):
        return x + 1, ask(Position(at))

    f = compile(fn)
    asks = [operator.index, lambda p: [1, 2, 3][p], lambda p: range(5)[p], lambda p: [1, 2, 3][p:]]
    return [call(f, torch.ones(2), ask, at) for ask in asks for at in (1, [], Position(1), 2.0)]


@program
def iterators_that_have_ended(compile):
    def fn(x, items):
        ended = iter([x, x + 1]), reversed([x]), iter((x,)), iter(items), reversed(items)
        return x * 2, [list(one) for one in ended], ended, [next(one, "ended") for one in ended]

    items = [1, 2]
    _, _, ended, _ = result = compile(fn)(torch.ones(2), items)
    items.append(3)
    return result, [type(one) for one in ended], [list(one) for one in ended]


@program
def tuples_from_back_to_front(compile):
    def fn(x, given):
        parts = x.unbind(0)
        made = x, x + 1, x + 2
        whole = given[:] is given, given[::1] is given, given[::-1] is given, given[1:] is given
        return torch.stack(parts[::-1]), made[::-1][0], made[::-2], made[-1:-4:-1], given[::-1], whole

    return compile(fn)(torch.arange(6.0).reshape(3, 2), (1, 2, 3))


@program
def iterators_that_are_none_and_rests_that_are_counted(compile):
    class Lying:
        def __iter__(self):
            return 3

    class Counted:
        def __init__(self, count):
            self.count = count

        def __iter__(self):
            return self

        def __next__(self):
            self.count -= 1
            if self.count < 0:
                raise StopIteration
            return self.count

        def __length_hint__(self):
            print("hint")
            return 3

    def fn(x):
        first, *rest = Counted(3)

        def too_few():
            _first, *_rest, _last = Counted(1)

        return first, rest, call(too_few), call(lambda: iter(Lying())), call(lambda: [*Lying()]), x + 1

    f = compile(fn)
    return [f(torch.ones(1)) for _ in range(2)]


@program
def types_of_iterators_by_isinstance(compile):
    def h(x):
        return (
            x * 2,
            isinstance(iter(range(5)), type(iter(range(1)))),
            type(iter([])).__name__,
            isinstance(iter([1]), type(iter([]))),
            isinstance(iter((1,)), type(iter(()))),
            isinstance(iter({}), type(iter({}))),
            isinstance(iter({1}), type(iter(set()))),
            isinstance(iter("a"), type(iter("b"))),
            isinstance(zip(), zip),
            isinstance(map(str, []), map),
            isinstance(enumerate([]), enumerate),
            isinstance(reversed([1]), type(reversed([]))),
            isinstance(iter({}.items()), type(iter({1: 2}.items()))),
            isinstance(iter({}.values()), type(iter({1: 2}.values()))),
            isinstance(iter(b"a"), type(iter(b""))),
            isinstance(reversed((1,)), reversed),
            isinstance(reversed({}), type(reversed({}))),
            isinstance(reversed(range(3)), type(iter(range(1)))),
            isinstance(iter(int, 1), type(iter(int, 1))),
        )

    return call(compile(h), X)


@program
def types_of_iterators_by_name(compile):
    its = [
        range(5),
        [1],
        (1,),
        {1: 2},
        {1},
        "a",
        "ä",
        b"a",
        {}.items(),
        {}.values(),
        collections.deque([1]),
        frozenset([1]),
        range(10**30),
        collections.OrderedDict(a=1),
        enumerate([1]),
        zip([1]),
        map(str, [1]),
        (i for i in [1]),
        bytearray(b"a"),
    ]

    def h(x):
        return x * 2, [type(iter(i)).__name__ for i in its], [type(iter(i)) is type(iter(j)) for i in its for j in its]

    return call(compile(h), X)


@pytest.mark.parametrize("name", program)
def test_program(name):
    check(program[name])


@pytest.mark.parametrize("count", (10**8, 10**30))
def test_numbers_that_are_too_many_to_list(count):
    """The function runs in eager, which takes one of them at a time."""

    def f(x, numbers):
        it = iter(numbers)
        return x * 2, next(it) + next(it)

    (doubled, third), = [ptdebug.compile(f)(torch.ones(2), range(7, count))]
    assert doubled.tolist() == [2.0, 2.0] and third == 15
    assert any("more Python than is traced" in reason for reason in ptdebug.stats()["reasons"])
