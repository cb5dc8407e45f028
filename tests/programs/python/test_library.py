"""Programs that use Python's library: functools, itertools, operator, collections, heapq, regular expressions; and
containers that grow from call to call. All are captured whole."""
from __future__ import annotations

import bisect
import collections
import functools
import heapq
import itertools
import json
import logging
import math
import operator
import re
import types
import weakref

import ptdebug
import pytest
import torch
import torch.nn.functional as F
from packaging import version
from ptdebug.tracer.runtime.statistics import STATISTICS
from ptdebug.tracer.sources.cached_results import NOT_CACHED, cached_result

from ..checking import Programs, call, check, check_whole

program = Programs()
X = torch.arange(6.0).view(2, 3)


@program
def accessors(compile):
    first = operator.itemgetter("a")
    scaled = operator.methodcaller("mul", 2)

    def fn(x, d):
        o = operator
        found = [
            o.itemgetter(1)([5, 6]), o.itemgetter("a", "b")(d), o.attrgetter("shape")(x), o.itemgetter(-1)(x),
            o.attrgetter("dtype", "device.type")(x), o.methodcaller("sum", dim=0)(x), o.itemgetter(slice(2))([1, 2, 3]),
        ]  # fmt: skip
        pairs = sorted({"p": 3, "q": 1}.items(), key=o.itemgetter(1), reverse=True)
        spaces = sorted([types.SimpleNamespace(n=2), types.SimpleNamespace(n=1)], key=o.attrgetter("n"))
        try:
            first({})
        except KeyError as error:
            missing = error.args
        return found, pairs, [space.n for space in spaces], first(d) * x, scaled(x), missing, o.itemgetter(0)

    f = compile(fn)
    *rest, getter = f(X, {"a": 1, "b": X})
    return rest, getter([7])


OLDEST, NEWEST = version.Version("2.0"), version.parse("99.1rc1+local")
TORCH = torch.__version__


@program
def versions(compile):
    def fn(x, given):
        now = version.parse(TORCH)
        try:
            version.parse("parrot")
        except version.InvalidVersion as error:
            wrong = str(error)
        compared = [
            now >= OLDEST, OLDEST <= now, now < version.Version("2.1.0"), OLDEST == version.parse("2"), now != NEWEST,
            given < now, max(now, NEWEST) is NEWEST, sorted([NEWEST, now, OLDEST]) == [OLDEST, now, NEWEST],
        ]  # fmt: skip
        read = now.release, now.major, now.base_version, NEWEST.is_prerelease, str(NEWEST), repr(OLDEST), {now: 1}[now]
        of_torch = [
            TORCH >= "2.0", TORCH < (1, 8), torch.__version__ == TORCH, TORCH.split("+")[0], TORCH.startswith("2"),
            isinstance(TORCH, str), type(TORCH), f"{TORCH:>20}", TORCH + "a", {str(TORCH): 1}[TORCH],
        ]  # fmt: skip
        return x * now.major, compared, read, of_torch, wrong, given, isinstance(now, version.Version)

    f = compile(fn)
    return [f(X, version.parse(text)) for text in ("1.0", "1.0", "99.0")]


@program
def one_iterable_for_several(compile):
    def fn(x):
        taken = []

        def source():
            for i in range(4):
                taken.append(i)
                yield x * i

        a, b = itertools.tee(source())
        heads = next(a), next(a), len(taken), next(b), len(taken)
        c, d = itertools.tee(b)
        rest = list(c), next(d), list(a)
        chosen = list(itertools.compress("abcd", [1, 0, 1, 1])), list(itertools.compress(source(), [0, 1]))
        flat = list(itertools.chain.from_iterable([[x], (x, 2)]))
        return heads, rest, chosen, flat, taken

    f = compile(fn)
    return [f(X) for _ in range(2)]


@program
def throwing_classes(compile):
    def waiting(x):
        try:
            yield x
        except KeyError as error:
            yield x + len(error.args)
        yield x * 3

    def fn(x):
        found = []
        for thrown in ((KeyError,), (KeyError("a", "b"),)):
            generator = waiting(x)
            next(generator)
            found.append((generator.throw(*thrown), next(generator)))
        other = waiting(x)
        next(other)
        try:
            other.throw(ValueError)
        except ValueError as error:
            found.append(error.args)
        return found

    f = compile(fn)
    return [f(X) for _ in range(2)]


@program
def heaps_and_bisection(compile):
    def fn(x):
        heap = [5, 1, 4, 3]
        heapq.heapify(heap)
        heapq.heappush(heap, 0)
        beams = []
        for score, name in ((0.5, "a"), (0.25, "b"), (0.75, "c")):
            heapq.heappush(beams, (-score, name))
        best = [heapq.heappop(beams)[1] for _ in range(2)]
        places = bisect.bisect_left([1, 3, 3], 3), bisect.bisect([1, 3], 3), bisect.bisect([3, 1], 2, key=lambda v: -v)
        ordered = [1, 5]
        bisect.insort(ordered, 3)
        try:
            heapq.heappop([])
        except IndexError as error:
            message = str(error)
        return x * heapq.heappop(heap), heap, heapq.heapreplace(heap, 9), best, places, ordered, message

    f = compile(fn)
    return [f(X) for _ in range(2)]


@program
def counters(compile):
    def fn(x, seen):
        counts = collections.Counter("hello")
        counts.update("lo")
        seen["calls"] += 1
        ordered = counts.most_common(2), sorted(collections.Counter(ab=2, c=1).elements())
        sums = counts + collections.Counter(z=1), counts - collections.Counter(l=9), counts.total(), counts["nope"]
        return x * ordered[0][0][1], ordered, sums, dict(counts)

    f, seen = compile(fn), collections.Counter()
    return [f(X, seen) for _ in range(2)], seen


@program
def caches(compile):
    @functools.lru_cache(maxsize=8)
    def table(n):
        return [1.0 / (i + 1) for i in range(n)]

    @functools.cache
    def frequencies(n, base=10.0):
        return base ** torch.arange(float(n))

    class Sizes:
        @functools.lru_cache  # noqa: B019 - as people write it
        def of(self, n):
            return n * 2

    sizes = Sizes()

    def fn(x):
        @functools.lru_cache(maxsize=2)
        def fib(n):
            return n if n < 2 else fib(n - 1) + fib(n - 2)

        return x * frequencies(3), table(3), x + sizes.of(4), frequencies(3), fib(10), fib.cache_info().misses

    f = compile(fn)
    return [f(X) for _ in range(3)], frequencies(3) is frequencies(3)


@program
def dispatch_and_partials(compile):
    @functools.singledispatch
    def size(value):
        raise TypeError(type(value).__name__)

    @size.register
    def _(value: torch.Tensor):
        return value.numel()

    @size.register(list)
    @size.register(tuple)
    def _(value):
        return sum(map(size, value))

    class Layer:
        gain = 3

        def scale(self, x, by):
            return x * by + self.gain

        quadruple = functools.partialmethod(scale, by=4)

    def fn(x):
        try:
            size(3)
        except TypeError as error:
            refused = str(error)
        backwards = sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))
        return x * size([x, (x, x)]), refused, Layer().quadruple(x), backwards

    f = compile(fn)
    return [f(X) for _ in range(2)]


@program
def patterns(compile):
    numbered = re.compile(r"(\w+)\.(\d+)")

    def fn(x, key):
        match = numbered.match(key)
        found = [m.group() for m in re.finditer(r"\d", "a1b2")]
        return x * int(match.group(2)), match.groups(), re.sub(r"\d", "N", key), found, json.loads('{"a": [1]}')

    f = compile(fn)
    return [f(X, "layer.3") for _ in range(2)]


@program
def proxies_of_weak_references(compile):
    class Trainer:
        kind = "trainer"

        def __init__(self):
            self.epoch, self.logged = 2, {}

        def __call__(self, x):
            return x + self.epoch

        def __len__(self):
            return 3

        def __getitem__(self, i):
            return i * 2

        def step(self, x):
            self.epoch += 1
            return x * self.epoch

    class Empty:
        pass

    def fn(x, trainer):
        try:
            y = x * trainer.epoch
        except AttributeError:
            y = x - 1
        found = [hasattr(trainer, "epoch"), getattr(trainer, "kind", None), hasattr(trainer, "missing")]
        if found[0]:
            trainer.logged["x"] = y
            trainer.last = trainer.step(x)
            found += [len(trainer), trainer[1], trainer(x), trainer.last, bool(trainer), isinstance(trainer, Trainer)]
            found += [weakref.proxy(trainers[0]) == trainer, trainer == trainers[0], trainer is trainers[0]]
        found += [isinstance(trainer, Empty), type(trainer) in weakref.ProxyTypes, trainer in (1, 2)]
        return y, found

    trainers, f = [Trainer(), Trainer(), Empty()], compile(fn)
    results = [f(X, weakref.proxy(trainer)) for trainer in (*trainers, trainers[0])]
    trainers[0].epoch = 7
    return results, f(X, weakref.proxy(trainers[0])), [vars(trainer) for trainer in trainers]


@pytest.mark.parametrize("name", program)
def test_a_captured_program_is_the_program(name):
    check_whole(program[name])


def test_caches_that_fill_forget_and_do_more_than_compute():
    def use(compile):
        runs = []

        @functools.lru_cache(maxsize=2)
        def squared(n):
            runs.append(n)
            return [n * n]

        class Sizes:
            @functools.cache  # noqa: B019 - as people write it
            def of(self, n, *, by=1):
                runs.append(("size", n, len(runs)))
                return torch.rand(1) * n * by

        @functools.cache
        def refused(n):
            runs.append("refused")
            raise ValueError(n)

        sizes = Sizes()

        def fn(x, n):
            runs.append("begin")
            y = x * squared(n)[0] + squared(1)[0]
            runs.append(squared(n) is squared(n))
            return y + sizes.of(2) + sizes.of(2, by=n), runs[-1], squared(1)

        f, g = compile(fn), compile(lambda x, n: (x + 1, refused(n)))
        found = [call(f, X, n) for n in (1, 2, 1, 3, 1, 2)]
        squared.cache_clear()
        return found, [call(f, X, n) for n in (1, 2, 1)], [call(g, X, n) for n in (1, 1, 2)], runs

    check(use)


def test_what_a_cache_has_is_read_without_a_call():
    for size, typed in itertools.product((None, 9), (False, True)):
        @functools.lru_cache(maxsize=size, typed=typed)
        def listed(*args, **kwargs):
            return [args, kwargs]

        keywords = ((1,), {"b": 3, "c": 2})
        for args, kwargs in [((1,), {}), ((2,), {}), (("a",), {}), ((1.5,), {}), ((1, 2), {}), keywords, ((), {})]:
            named = tuple(kwargs.items())
            assert cached_result(listed, args, named) is NOT_CACHED
            made, before = listed(*args, **kwargs), listed.cache_info()
            assert cached_result(listed, args, named) is made and listed.cache_info() == before
        for n in range(9):
            listed(n, "full")
        assert (cached_result(listed, (8, "full"), ()) is NOT_CACHED) == (size == 9)
    assert cached_result(len, (1,), ()) is NOT_CACHED and cached_result(listed, ([],), ()) is NOT_CACHED


def growing(compile):
    """Containers that each call adds to, of which it reads one item at most."""
    shapes, kept, by_name, grouped = [1], [X], {}, collections.defaultdict(list)

    class Probe(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.means = []

        def forward(self, x):
            self.means.append(x.mean())
            shapes.append(tuple(x.shape))
            kept.extend([x, x + 1])
            by_name["last"] = x
            grouped["a"].append(2)
            return x * shapes[0] + kept[0], kept[-1]

    probe = Probe()
    f = compile(probe)
    return [f(X + i) for i in range(5)], probe.means, shapes, kept, by_name, grouped


def test_containers_that_are_added_to_are_not_compiled_for_again():
    STATISTICS.clear()
    check(growing)
    assert STATISTICS.recompiles <= 1  # the key of `grouped` is not there at first


def test_containers_that_are_added_to_and_then_read():
    def use(compile):
        items, table = [1, 2], {"a": 1}

        def fn(x, how):
            items.append(3)
            table["b"] = 2
            if how == 0:
                return x, items[-1], items[1], len(items), list(table), len(table)
            if how == 1:
                items.insert(0, 9)
                table["a"] = 5
                return x + 1, items[0], list(table.items()), "a" in table
            iterator = iter(items)
            items.append(4)
            del table["b"]
            return x + 2, list(iterator), items == [1], table

        f = compile(fn)
        return [call(f, X, how) for how in (0, 1, 2, 0, 1)], items, table

    check(use)


def test_the_class_of_tensors_is_a_key():
    def use(compile):
        handlers = {torch.Tensor: torch.sin, int: abs}
        f = compile(lambda x: handlers[type(x)](x))
        return [f(X) for _ in range(2)]

    STATISTICS.clear()
    check(use)
    assert not STATISTICS.reasons


class Scores(dict):
    """A dict whose own `get` is not the one that `base` gives."""

    def get(self, key):
        return 100

    def base(self):
        return super().get


@pytest.mark.parametrize("methods", [
    ("xa".index, "xxa".index, ["a"].count, ["a", "a"].count, ("a",).count, ("a", "a").count),
    ({"a": 4}.get, {"a": 5}.get, {"a": 5}.__getitem__, Scores(a=3).get, Scores(a=3).base(), Scores(a=9).base()),
    ({"a"}.__contains__, {"b"}.__contains__, collections.Counter("aa").get, [].index, [1].index, b"a".index),
], ids=["texts", "tables", "sets"])  # fmt: skip
def test_bound_methods_as_arguments_are_those_of_their_objects(methods):
    def use(compile):
        f = compile(lambda x, method: x + method("a"))
        return [call(f, X, method) for method in methods]

    check(use)


def test_bound_methods_change_and_compare_as_their_objects_do():
    def use(compile):
        first, second = [], [1]

        def fn(x, add, rows):
            before = len(rows)
            add(x + 1)
            return x * len(rows), before, add == rows.append, add != rows.append, add is rows.append, x.sin == x.sin

        f = compile(fn)
        found = [f(X, add, rows) for add in (first.append, second.append, first.extend) for rows in (first, second)]
        g = compile(lambda method: method())
        return found, [g(method) for method in (X.sin, X.cos, (X + 1).cos)], first, second

    STATISTICS.clear()
    check(use)
    assert not any("graph break" in why for why in STATISTICS.reasons)


def test_messages_appear_as_soon_as_the_logger_shows_them():
    """And looking at a level while tracing leaves nothing in the logger's cache, which only calls fill."""
    def use(compile):
        logger, shown = logging.Logger("of a program", logging.WARNING), []
        logger.addFilter(lambda record: shown.append(record.getMessage()))
        told = []

        def fn(x):
            logger.debug("size %d", len(x))
            told.append(logger.isEnabledFor(logging.INFO))
            return x + 1

        def failing(x):
            y = x + torch.ones(5)
            logger.error("unreached")
            return y

        f = compile(fn)
        results = [call(compile(failing), X)[:2], logging.ERROR in logger._cache, f(X)]
        for level in (logging.DEBUG, logging.ERROR, logging.INFO):
            logger.setLevel(level)
            logger._cache.clear()  # a logger that no manager knows
            results.append(f(X))
        logger._cache.clear()
        logger.disabled = True
        return results, f(X), shown, told

    check(use)


LAYER = torch.nn.Linear(3, 2)


@pytest.mark.parametrize("owner, name, function", [
    (math, "floor", lambda x: x * math.floor(2.5)),
    (F, "linear", LAYER),
    (F, "scaled_dot_product_attention", lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None])),
    (torch.nn.functional, "relu", lambda x: torch.nn.functional.relu(x)),
    (operator, "add", lambda x: operator.add(x, x)),
])  # fmt: skip
def test_a_function_of_a_library_that_is_replaced_between_calls_is_called(monkeypatch, owner, name, function):
    fast = ptdebug.compile(function)
    torch.testing.assert_close(fast(X), function(X))
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, lambda *_: 7 * X)
        torch.testing.assert_close(fast(X), function(X))
    torch.testing.assert_close(fast(X), function(X))
