"""Programs that find what they call through the classes below a base class, as libraries of many backends do, and that
read names with Python's own tables; all captured whole."""
# mypy: ignore-errors
from __future__ import annotations

import dataclasses
import functools
import gc
import keyword
import sys

import ptdebug
import pytest
import torch

from ..checking import Programs, call, check, check_whole

program = Programs()
X = torch.arange(24.0).view(2, 3, 4)


@program
def a_backend_that_is_looked_for_among_subclasses(compile):
    class Backend:
        library = "none"

        def permuted(self, x, axes):
            raise NotImplementedError

    class Arrays(Backend):
        library = "a_library_that_is_not_there"

    class Tensors(Backend):
        library = "torch"

        def fits(self, x):
            return isinstance(x, torch.Tensor)

        def permuted(self, x, axes):
            return x.permute(axes)

    class Lazy(Tensors):
        library = "another_that_is_not_there"

    def backend_of(x):
        found, classes = [], Backend.__subclasses__()
        while classes:
            cls = classes.pop()
            classes += cls.__subclasses__()
            found.append(cls)
        for cls in found:
            if cls.library in sys.modules and cls().fits(x):
                return cls(), [cls.__name__ for cls in found]
        raise RuntimeError(type(x))

    def fn(x):
        backend, names = backend_of(x)
        return backend.permuted(x, (2, 0, 1)), names

    f = compile(fn)
    before = [f(X) for _ in range(2)]

    class Later(Lazy):
        pass

    return before, f(X), Later.__name__


@program
def subclasses_that_come_and_go(compile):
    class Base:
        pass

    kept = [type(name, (Base,), {}) for name in "abc"]

    def fn(x):
        below = [Base.__subclasses__, functools.partial(type.__subclasses__, Base)]
        found = [[cls.__name__ for cls in ask()] for ask in below]
        return x + len(found[0]), found, Base.__subclasses__(), kept[0].__subclasses__()

    f = compile(fn)
    seen = [f(X)[:2] for _ in range(2)]
    del kept[1]
    gc.collect()
    seen.append(f(X)[:2])
    kept.append(type("d", (kept[0],), {}))
    return seen, f(X)[:2], f(X)[2:], call(lambda: Base.__subclasses__(1))


@program
def subclasses_as_a_metaclass_tells_them(compile):
    class Meta(type):
        def __subclasses__(cls):
            return [cls.__name__, *(below.__name__ for below in type.__subclasses__(cls))]

    class Base(metaclass=Meta):
        pass

    class Below(Base):
        def __subclasses__(self):
            return ["an instance is asked"]

    def fn(x):
        return x + 1, Base.__subclasses__(), Below().__subclasses__(), Below.__subclasses__(Below())

    f = compile(fn)
    return [f(X) for _ in range(2)]


@program
def names_that_may_be_keywords(compile):
    is_vowel = frozenset("aeiou").__contains__

    def fn(x, pattern):
        names = [name for name in pattern.split() if name.isidentifier() and not keyword.iskeyword(name)]
        return x.repeat(1, 1, len(names)), names, keyword.issoftkeyword("match"), [*map(is_vowel, "abe")]

    f = compile(fn)
    return [f(X, pattern) for pattern in ("b if h", "b if h", "for 2 w")]


@program
def a_cached_function_that_counts_with_a_set(compile):
    @dataclasses.dataclass(frozen=True)  # of an object that may change the cache could know an old result: a break
    class Pattern:
        text: str

    @functools.lru_cache(maxsize=8)
    def axes(pattern, suffix):
        seen, more = set(), {"h"}
        for name in pattern.text.split():
            seen.add(name)
            more.discard(name)
        return len(seen | {suffix}) + len(more)

    f = compile(lambda x, pattern: x * axes(pattern, "c"))
    return [f(X, Pattern(text)) for text in ("b h w b", "b h w b", "b w")]


@pytest.mark.parametrize("name", program)
def test_what_is_found_below_a_class_is_as_in_eager(name):
    check_whole(program[name])


def test_a_guard_on_subclasses_keeps_none_alive():
    class Base:
        pass

    kept = [type("Below", (Base,), {})]
    f = ptdebug.compile(lambda x: x + len(Base.__subclasses__()), backend=lambda graph, _: graph)
    assert f(torch.zeros(1)) == 1
    kept.clear()
    gc.collect()
    assert f(torch.zeros(1)) == 0


def test_classes_that_the_function_makes_are_seen_as_often_as_in_eager():
    def use(compile):
        class Base:
            pass

        def fn(x):
            class Below(Base):
                factor = 2

            return x * Below.factor, [cls.__name__ for cls in Base.__subclasses__()]

        gc.collect()
        f = compile(fn)
        return [f(X) for _ in range(3)]

    gc.disable()
    try:
        check(use)
    finally:
        gc.enable()
