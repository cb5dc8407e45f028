"""Lists, tuples, dicts, sets and deques against eager."""
from __future__ import annotations

import collections
import itertools
import operator
import typing
from collections import OrderedDict, defaultdict, deque
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from ptdebug.tracer.frames.dispatch import optimize
from ptdebug.tracer.fx.backend_call import CompileOptions

X = torch.arange(6.0).reshape(2, 3)


class Point(typing.NamedTuple):
    x: Any
    y: Any = 2

    def total(self) -> Any:
        return self.x + self.y


def list_methods(x):
    items = [x, 1]
    items.append(x + 1)
    items.extend((2, 3))
    items.insert(0, "first")
    last = items.pop()
    items.remove("first")
    items.reverse()
    items[0] = x * 2
    items[1:2] = [7, 8]
    del items[-1]
    plain = [7, 8, 8]
    found = plain.index(8), plain.count(8), 9 in plain
    return items, last, found, len(items), items[::-1], items * 2, items + [0]




def tuples(x):
    a, *rest = (x, 1, 2, 3)
    return (a, *rest)[1:], (1, 2) < (1, 3), (1, x)[0], rest, tuple(v for v in rest if v > 1), (1, 2).index(2)


def named_tuples(x):
    p = Point(x)
    q = p._replace(y=3)
    return p, q.total(), q.x, p._fields, p._asdict(), Point(y=x, x=1)[1]


def return_types(x):
    top = x.max(dim=1)
    values, indices = torch.topk(x, 2)
    return top.values + 1, top.indices, values, indices, type(top).__name__


def dict_methods(x):
    d = {"a": x, "b": 1}
    d["c"] = x + 1
    d.update(e=5, f=6)
    d.setdefault("a", 0)
    d.setdefault("g", []).append(1)
    popped = d.pop("b"), d.pop("zz", None)
    merged = {**d, "h": 1} | {"i": 2}
    del d["e"]
    first = next(iter(d.items()))
    return d, popped, merged, list(d), first[0], "a" in d, d.get("q"), d.get("q", 3), len(d), d == dict(d)


def dict_of_the_caller(x, d):
    d["sum"] = x.sum()
    del d["old"]
    return {k: v for k, v in d.items() if k != "sum"}, d.get("missing")


def ordered_and_default(x):
    o = OrderedDict(a=1, b=x)
    o.move_to_end("a")
    d = defaultdict(list)
    d["k"].append(x)
    return o, d, list(o), o.popitem(), d["other"]


def object_keys(x):
    table = {torch.relu: "relu", int: "int", (1, "a"): x, torch.float32: 1}
    return table[torch.relu], table[int], table[1, "a"], torch.float32 in table, str in table


def sets(x):
    s = {1, 2} | {3}
    s.add(4)
    s.discard(9)
    s -= {1}
    return x + len(s), 2 in s, s, s & {2, 8}, frozenset((1, 2)), {2} <= s, sorted(s)


def deques(x):
    q = deque([1, 2], maxlen=2)
    q.append(x)
    q.appendleft(0)
    return q, q.popleft(), len(q), list(q), q.maxlen


def comprehensions(x):
    return [i * x for i in range(3)], {i: i * i for i in range(3)}, {i % 2 for i in range(4)}, sum(i for i in range(4))


def errors_are_caught(x):
    found = []
    for attempt in (lambda: [][0], lambda: {}["k"], lambda: (1,).index(5), lambda: [].pop(), lambda: {}[[]]):
        try:
            attempt()
        except (IndexError, KeyError, ValueError, TypeError) as error:
            found.append((type(error).__name__, str(error)))
    return x, found


def texts(x):
    ordered, default = OrderedDict(a=1, b=2), defaultdict(int, c=3)
    return str(ordered), f"{ordered!r}", repr([default]), str({"d": ordered}), str(deque([1], 2))


@pytest.mark.parametrize(
    "function",
    [
        list_methods, texts, tuples, named_tuples, return_types, dict_methods, ordered_and_default, object_keys, sets,
        deques,
        comprehensions, errors_are_caught,
    ],
)  # fmt: skip
def test_made_in_the_trace(check, function):
    check(lambda x: (x + 1, function(x)), X)


def equality_of_data(x, y):
    return (x.sum(), 1) == (y.sum(), 1), [x.sum(), 1] == [y.sum(), 2], (x.mean(), "a") == (x.sum() / 6, "a")


def test_equal_where_only_data_tells(check):
    check(equality_of_data, X, X + 1)
    fast = optimize(lambda x, y: (x, 1) == (y, 2), CompileOptions(lambda captured, context: captured.module.forward))
    with pytest.raises(RuntimeError, match="more than one value"):
        fast(X, X.clone())


def test_list_argument_is_changed(check):
    def append(x, items):
        items.append(x.sum())
        items[0] = items[0] + 1
        return items

    check(append, X, [1, 2])


def test_sort_of_an_argument(check):
    def sort(x, items):
        items.sort(key=lambda v: -v)
        return x + items[0]

    check(sort, X, [1, 3, 2])


def test_dict_argument_is_changed(check):
    check(dict_of_the_caller, X, {"old": 1, "kept": X})


def test_result_is_the_list_that_was_given(check):
    def identity(x, items):
        items.append(x + 1)
        return items, items is items

    items: list[Any] = []
    fast = optimize(identity, CompileOptions(lambda captured, context: captured.module.forward))
    result, _ = fast(X, items)
    assert result is items
    assert torch.equal(items[0], X + 1)


def test_nested_containers_of_tensors(check):
    def nested(tree):
        return {"sum": tree["a"][0] + tree["b"]["c"][1], "all": [v for part in tree.values() for v in part]}

    check(nested, {"a": [X, X + 1], "b": {"c": (X, X * 2)}})


def test_only_read_items_are_guarded():
    calls = []

    def backend(captured, context):
        calls.append(1)
        return captured.module.forward

    def read(x, table):
        return x * table["a"]

    fast = optimize(read, CompileOptions(backend, dynamic=False))
    assert torch.equal(fast(X, {"a": 2, "b": 3}), X * 2)
    assert torch.equal(fast(X, {"a": 2, "b": 4, "c": 5}), X * 2)
    assert len(calls) == 1
    assert torch.equal(fast(X, {"a": 3}), X * 3)


def test_length_is_guarded():
    def read(x, items):
        return x * len(items)

    fast = optimize(read, CompileOptions(lambda captured, context: captured.module.forward))
    for count in (2, 3, 2, 5):
        assert torch.equal(fast(X, [0] * count), X * count)


def test_missing_key_is_guarded():
    def read(x, table):
        return x + 1 if "flag" in table else x - 1

    fast = optimize(read, CompileOptions(lambda captured, context: captured.module.forward))
    for table in ({}, {"flag": 0}, {"other": 1}, {"flag": 0}):
        assert torch.equal(fast(X, table), read(X, table))


def test_changed_size_while_iterating(check):
    def grows(x):
        table = {1: 2}
        try:
            for key in table:
                table[key + 10] = 1
        except RuntimeError as error:
            return x + 1, str(error)
        return x + 1, None

    check(grows, X)


def test_iteration_sees_appended_items(check):
    def grows(x):
        items = [1, 2]
        for item in items:
            if len(items) < 5:
                items.append(item * 10)
        return x + 1, items

    check(grows, X)


def test_itertools_ask_for_an_item_when_it_is_wanted(check):
    def lazily(x):
        items, seen = [3, 1, 2], []
        for total in itertools.accumulate(items, initial=0):
            items.sort()
            seen.append(total)
        for pair in itertools.pairwise(items):
            seen.append(pair)
            if len(items) < 6:
                items.append(len(items))
        for row in itertools.zip_longest(items, itertools.islice(items, 2), fillvalue=9):
            seen.append(row)
            if len(items) < 8:
                items.append(0)
        seen.append(list(itertools.accumulate([2, 3], lambda a, b: a * b)))
        seen.append(list(itertools.accumulate([], operator.mul, initial=None)))
        return x + 1, seen

    check(lazily, X)


OPERATIONS = st.lists(
    st.sampled_from(["append", "pop", "insert", "reverse", "extend", "double", "drop", "swap"]), max_size=8
)


@settings(max_examples=25, deadline=None)
@given(OPERATIONS)
def test_any_sequence_of_list_operations(operations):
    def run(x, items):
        for operation in operations:
            if operation == "append":
                items.append(len(items))
            elif operation == "pop" and items:
                items.pop()
            elif operation == "insert":
                items.insert(1, 5)
            elif operation == "reverse":
                items.reverse()
            elif operation == "extend":
                items += [7, 8]
            elif operation == "double":
                items *= 2
            elif operation == "drop":
                del items[::2]
            elif operation == "swap" and len(items) > 1:
                items[0], items[-1] = items[-1], items[0]
        return x + sum(items), items[1:], tuple(items)

    fast = optimize(run, CompileOptions(lambda captured, context: captured.module.forward))
    ours, theirs = [1, 2, 3], [1, 2, 3]
    got, expected = fast(X, ours), run(X, theirs)
    assert torch.equal(got[0], expected[0])
    assert got[1:] == expected[1:]
    assert ours == theirs


def test_counter_is_left_to_eager(check):
    def count(x):
        return x + collections.Counter("aab")["a"]

    check(count, X, graphs=None)
