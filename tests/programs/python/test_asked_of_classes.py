"""What the program's own classes and functions are asked: metaclasses about instances and subclasses, functions for
their defaults, those of iterators for the next item."""
# mypy: ignore-errors
# ruff: noqa: B006, UP006, UP007, UP045

from __future__ import annotations

import abc
import itertools
import typing

import pytest
import torch

from ..checking import Programs, call, check

program = Programs()
LOG: list[str] = []


class Asked(type):
    def __instancecheck__(cls, obj):
        LOG.append("instance")
        return getattr(obj, "quacks", False) or type.__instancecheck__(cls, obj)

    def __subclasscheck__(cls, sub):
        LOG.append("subclass")
        return hasattr(sub, "quacks")


class Duck(metaclass=Asked):
    pass


class Mallard(Duck):
    pass


class Quacker:
    quacks = True


@program
def metaclasses_about_instances_and_subclasses(compile):
    def fn(x, o):
        match o:
            case Duck():
                x = x * 2
        return x + 1, isinstance(o, Duck), isinstance(o, (int, Duck)), issubclass(type(o), (int, Duck))

    LOG.clear()
    f = compile(fn)
    return [f(torch.ones(2), o) for o in (Quacker(), Quacker(), 3, 3, Mallard(), [])], list(LOG)


@program
def abstract_classes_with_which_one_is_registered_later(compile):
    class Base(abc.ABC):  # noqa: B024
        pass

    class Plain:
        pass

    def fn(x, o):
        return x * 2 if isinstance(o, Base) else x + 5, issubclass(type(o), Base)

    f = compile(fn)
    before = f(torch.ones(2), Plain())
    Base.register(Plain)
    return before, f(torch.ones(2), Plain())


@program
def items_that_get_lost_while_they_are_searched(compile):
    class Shrinking:
        def __init__(self, items):
            self.items = items

        def __eq__(self, other):
            self.items.pop()
            return False

    def fn(x, n):
        items, other = list(range(n)), list(range(n))
        found = Shrinking(items) in items
        return x + len(items), found, call(other.index, Shrinking(other)), len(other)

    f = compile(fn)
    return [f(torch.ones(2), n) for n in (4, 5)]


@program
def functions_for_their_defaults(compile):
    def helper(v, seen=[], *, memo={}):
        seen.append(len(seen))
        memo[len(memo)] = v
        return sum(seen) + len(memo)

    def fn(x):
        y = x * helper(1) + len(helper.__defaults__[0])
        print("break")
        return y + helper(2), list(helper.__defaults__[0]), dict(helper.__kwdefaults__["memo"])

    f = compile(fn)
    return [f(torch.ones(2)) for _ in range(3)]


@program
def functions_whose_defaults_are_replaced(compile):
    def helper(a, b=2, *, c=3):
        return a * b + c

    def fn(x):
        y = helper(x)
        helper.__defaults__ = (7,)
        helper.__kwdefaults__ = {"c": 5}
        return y + helper(x), helper.__defaults__

    f = compile(fn)
    return [f(torch.ones(2)) for _ in range(2)]


@program
def a_builtin_that_a_global_hid(compile):
    names = {"print": print, "__name__": "hidden"}
    text = (
        "def fn(x, items):\n    global len\n    x = x + len(items)\n    len = lambda items: 10\n"
        "    x = x + len(items)\n    print('break')\n    x = x + len(items)\n    del len\n    return x + len(items)\n"
    )
    exec(text, names)
    f = compile(names["fn"])
    return [f(torch.ones(2), [1, 2]) for _ in range(2)]


@program
def functions_that_raise_stop_iteration(compile):
    def ending(n):
        if n > 2:
            raise StopIteration(n)
        return n

    def one():
        yield 1
        raise StopIteration("in a generator")

    def fn(x, items):
        numbers = iter(items)
        found = [
            list(map(ending, items)), list(filter(ending, items)), list(itertools.takewhile(ending, items)),
            list(iter(lambda: ending(next(numbers)), 9)), list(itertools.accumulate(items, lambda a, b: ending(b))),
        ]  # fmt: skip
        try:
            list(one())
        except RuntimeError as error:
            x = x + len(error.__cause__.args)
            found.append((str(error), type(error.__cause__), error.__context__ is error.__cause__))
        return x + len(found[0]), found

    f = compile(fn)
    return [f(torch.ones(2), [1, 2, 3, 1]) for _ in range(2)]


@program
def types_that_are_written_in_the_function(compile):
    """As annotations of inner functions are."""

    def fn(x, text):
        made = typing.Tuple[float, float], typing.Optional[int], typing.Union[int, None], typing.Callable[..., int]
        more = typing.Dict[str, torch.Tensor], typing.Literal["a"], typing.Sequence[int] is typing.Sequence[int]
        asked = isinstance(text, typing.Hashable), isinstance((), (typing.Tuple, int)), typing.get_origin(made[0])
        return x * len(made), made, more, asked, typing.OrderedDict

    def refused(x):
        return x * 2, typing.Optional[1, 2]

    return compile(fn, fullgraph=True)(torch.ones(2), "a"), call(compile(refused), torch.ones(2))


class Lazily:
    """What it stands for is made when it is asked anything, its class included."""

    def __init__(self, make):
        self.__dict__["make"] = make

    def made(self):
        if "held" not in self.__dict__:
            LOG.append("made")
            self.__dict__["held"] = self.__dict__["make"]()
        return self.__dict__["held"]

    @property
    def __class__(self):
        return type(self.made())

    def __getattr__(self, name):
        return getattr(self.made(), name)


class Watching:
    def __init__(self, x):
        self.x = x

    def __getattribute__(self, name):
        LOG.append(name)
        return object.__getattribute__(self, name)


@program
def objects_that_are_asked_for_their_class_by_the_program_alone(compile):
    def passed_on(x, proxy):
        y = x + 1
        print("break")
        return y, [proxy]

    def used(x, proxy):
        return x + proxy.x, isinstance(proxy, Quacker), type(proxy) is Lazily

    LOG.clear()
    results = []
    for fn in (passed_on, used):
        f = compile(fn)
        for proxy in (Lazily(Quacker), Watching(torch.ones(2)), Lazily(lambda: Watching(torch.zeros(2)))):
            results.append(call(lambda f, proxy: f(torch.ones(2), proxy)[0], f, proxy))
            results.append(list(LOG))
    return results


@program
def metaclasses_that_tell_and_refuse(compile):
    class Telling(type):
        def __getattr__(cls, name):
            LOG.append(name)
            return len(LOG)

        def __setattr__(cls, name, value):
            super().__setattr__("_" + name, value)

    class Told(metaclass=Telling):
        pass

    def fn(x):
        Told.size = x
        return x + Told.count, Told._size

    LOG.clear()
    f = compile(fn)
    return [f(torch.ones(2)) for _ in range(3)], list(LOG)


@program
def functions_of_a_property(compile):
    class Held:
        @property
        def size(self):
            return 3

    def fn(x):
        return x + Held.size.fget(None), Held.size.fget.__name__

    return compile(fn)(torch.ones(2))


@pytest.mark.parametrize("name", program)
def test_what_the_program_defines_is_asked_as_in_eager(name: str) -> None:
    check(program[name])
