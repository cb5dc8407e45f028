"""Calls with arguments that they do not take: refused where eager refuses them, with all that was done before."""
from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import linecache
import operator
import traceback
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.tracer.frames import dispatch

LOG: list[Any] = []

EXPRESSIONS = """
itertools.count("a")
itertools.count(1, None)
itertools.count(x)
itertools.count(1.5, 2)
next([1])
iter(5)
iter(5, 1)
enumerate([1], "a")
zip(5)
list(zip([1], [1, 2], strict=True))
list(map(5, [1]))
filter(5)
itertools.starmap(len)
list(itertools.starmap(len, [1]))
itertools.repeat(1, 1.5)
itertools.islice([1], "a")
itertools.islice([1], 0, 3, 0)
itertools.islice([1])
list(itertools.chain.from_iterable([1]))
reversed({1})
sorted([3, 1], reverse="x")
sorted([3, 1], key=5)
iter()
next()
reversed()
getattr(1, 5)
getattr(x, 5)
setattr(x, 5, 1)
hasattr(1, 5)
operator.concat(1, 2)
operator.concat(x, x)
operator.concat([1], 2)
operator.concat([1], (2,))
functools.lru_cache(5)(5)
x.numpy(1)
x.numpy(force=1)
x.numpy(strict=True)
x.__len__(1)
x.__iter__(1)
x.__getitem__()
x.stride(5)
[3, 1].sort(reverse=None)
int([1])
float({})
collections.defaultdict(5)
collections.defaultdict(None, a=1)
collections.deque(maxlen=1.5)
functools.partial(5)
functools.partial(len)()
functools.reduce(operator.add, [])
operator.itemgetter(5)([1])
torch.Size("a")
torch.Size([1.5])
int.__add__("a", 1)
list.append(5, 1)
str.upper(5)
torch.Tensor.add(5, x)
torch.Tensor.relu(x, 5)
getattr(1, 5)
len(**{"a": 1})
(lambda *, a: a)(1)
x.view(3, 3)
x.__setitem__(5, x[0])
x.__setitem__((0, 0), x[0])
x.__setitem__(slice(None, None, -1), x[0])
x + "a"
[1, 2, 3][slice("a", 2)]
"""


def _functions(expression: str) -> dict[str, Any]:
    """`leaves`, which the error leaves, and `catches`; in a file of their own."""
    text = f"""
def leaves(x):
    y = x * 2
    LOG.append("before")
    r = {expression}
    LOG.append("behind")
    return y, type(r)

def catches(x):
    y = x * 2
    try:
        r = {expression}
    except Exception as error:
        LOG.append((type(error), str(error)))
        y = y + 1
    finally:
        LOG.append("finally")
    return y
"""
    name = f"/misuse/{abs(hash(expression))}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    names = {"torch": torch, "itertools": itertools, "functools": functools, "operator": operator, "LOG": LOG}
    found: dict[str, Any] = {**names, "collections": collections}
    exec(compile(text, name, "exec"), found)
    return found


def _outcome(function: Any) -> tuple[Any, ...]:
    LOG.clear()
    try:
        return str(function(torch.arange(3.0))), list(LOG)
    except Exception as error:
        lines = [frame.line for frame in traceback.extract_tb(error.__traceback__) if "/misuse/" in frame.filename]
        return type(error), str(error).split("\n")[0], lines, error.__cause__, error.__context__, list(LOG)


@pytest.mark.parametrize("expression", EXPRESSIONS.strip().splitlines())
def test_as_in_eager(expression: str) -> None:
    functions = _functions(expression)
    for name in ("leaves", "catches"):
        assert _outcome(ptdebug.compile(functions[name])) == _outcome(functions[name])


MANAGERS = """
5
None
x
[1]
lambda: 1
torch
dict
type
print
torch.no_grad
torch.autocast
contextlib.ExitStack
contextlib.contextmanager(iter)
"""


@pytest.mark.parametrize("manager", MANAGERS.strip().splitlines())
def test_with_what_is_no_context_manager(manager: str) -> None:
    text = f"""
def fn(x):
    y = x * 2
    try:
        with {manager}:
            LOG.append("inside")
    except Exception as error:
        LOG.append((type(error), str(error)))
    return y + 1
"""
    names: dict[str, Any] = {"torch": torch, "contextlib": contextlib, "LOG": LOG}
    exec(text, names)
    dispatch.reset()
    assert _outcome(ptdebug.compile(names["fn"])) == _outcome(names["fn"])
    assert not any(reason.startswith("internal error") for reason in dispatch.stats()["reasons"])


class Entered(type):
    def __enter__(cls) -> int:
        return 3

    def __exit__(cls, *_: object) -> None:
        LOG.append(cls.__name__)

    def __iter__(cls) -> Any:
        return iter([1, 2])

    def __getitem__(cls, index: int) -> int:
        return index

    def __reversed__(cls) -> Any:
        return iter([9])


class Either(metaclass=Entered):
    def __enter__(self) -> int:
        return 4

    def __exit__(self, *_: object) -> None:
        LOG.append("own")

    def __reversed__(self) -> Any:
        return iter([90])


def test_with_a_class_enters_what_its_metaclass_says() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with Either as first, Either() as second:
            return x * first + second

    assert _outcome(ptdebug.compile(program)) == _outcome(program)
    assert LOG == ["own", "Either"]


def test_reversed_asks_the_metaclass_of_a_class() -> None:
    def program(x: torch.Tensor) -> tuple[Any, ...]:
        return x + 1, list(reversed(Either)), list(reversed(Either()))  # type: ignore[call-overload]

    assert _outcome(ptdebug.compile(program)) == _outcome(program)
