"""Each family of instructions: eager and traced code give equal results and leave equal arguments behind."""
from __future__ import annotations

import dis
import sys

import pytest
import torch
from ptdebug.tracer.bytecode.opcode_table import HANDLERS
from ptdebug.tracer.interpreter import opcodes  # noqa: F401

X = torch.arange(6.0).reshape(2, 3)
GLOBAL_FACTOR = 3


def arithmetic(x):
    y = -x + 2 * x - x / 4 + x // 2 + x % 3 + x**2
    y += x
    y *= 2
    return y @ x.T, (x > 1) & (x < 4), ~(x == 2), +x


def constants_fold(x):
    n = 7 // 2 + (5 << 2) - (3 | 4) ^ 1
    return x + n, n > 3, n in (1, 2), n not in [1], not n, n is None, "a" + "b" * 2


def branches(x):
    if x.shape[0] == 2 and x.ndim > 1:
        x = x + 1
    elif x.shape[0] == 3 or None:
        x = x - 1
    return x if x.dim() != 5 else None


def loops(x):
    total = x
    for i in range(4):
        if i == 1:
            continue
        if i == 3:
            break
        total = total + i * x
    else:
        total = total * 100
    n = 0
    while n < 3:
        n += 1
        total = total - n
    return total, n


def unpacking(x):
    a, (b, *c), *d = 1, (2, 3, 4), 5, 6
    first, second = x
    return a, b, c, d, first + second


def displays(x):
    parts = [x, *[x + 1, x + 2]]
    mapping = {"a": x, "b": x * 2, 3: 4}
    members = {1, 2, *(2, 3)}
    return parts, mapping, members, (*parts, 1), {"k": 1, "l": 2}


def comprehensions(x):
    squares = [i * x for i in range(3) if i != 1]
    by_name = {str(i): v for i, v in enumerate(squares)}
    lazily = sum(v.sum() for v in squares)
    return squares, by_name, {i % 2 for i in range(5)}, lazily


def closures(x):
    scale = 2

    def inner(y, bias=1):
        nonlocal scale
        scale += 1
        return y * scale + bias

    first = inner(x)
    return first, inner(x, bias=5), scale


def nested_generators(x):
    def count(n):
        for i in range(n):
            got = yield i
            if got:
                yield got * 10
        return "end"

    def delegate():
        result = yield from count(3)
        yield result

    return [x + 1, *delegate()]


def sending(x):
    def echo():
        value = None
        while True:
            value = yield value

    generator = echo()
    next(generator)
    return x * generator.send(2) + generator.send(5)


def strings(x):
    name = "w"
    return f"{name}-{x.shape[0]:>4}-{name!r}", x + 1


def slices(x):
    return x[0], x[:, 1], x[..., 1:], x[0:2:1, None], [1, 2, 3, 4][1:3], x[-1, -1]


def stores(x):
    y = x.clone()
    y[0] = 5
    y[:, 1] += 1
    items = [1, 2, 3]
    items[1] = x
    del items[0]
    return y, items


def star_calls(x):
    def f(a, b=2, *rest, c, d=4, **more):
        return a + b + sum(rest) + c + d, sorted(more)

    args, kwargs = (1, 2, 3), {"c": x, "e": 1}
    return f(*args, **kwargs), f(x, c=1), f(*args, c=2, z=0)


def uses_global(x):
    return x * GLOBAL_FACTOR + len([1, 2])


def matches(x):
    found = []
    for subject in ([1, 2, 3], {"k": 1, "z": 2}, 5, "text", (1,), None):
        match subject:
            case [a, *_, c]:
                found.append((a, c))
            case {"k": value, **rest}:
                found.append((value, rest))
            case int(n) if n > 3:
                found.append(n)
            case str() as text:
                found.append(text)
            case [only]:
                found.append(only)
            case _:
                found.append("other")
    return x + 1, found


def imports(x):
    import math
    from math import pi

    import torch.nn.functional as F

    return F.relu(x) * math.sqrt(4) + pi


def chained(x):
    return x * 2 if 0 < x.shape[0] <= 2 < 3 else x


def deletes(x):
    y = x + 1
    z = y
    del y
    return z


def handled(x):
    log = []
    try:
        log.append("try")
        {}["missing"]
    except (ValueError, KeyError) as error:
        log.append(type(error).__name__)
        x = x + 1
    else:
        log.append("else")
    finally:
        log.append("finally")
    return x, log


def nested_handlers(x):
    def fail(kind):
        raise kind("no")

    total = 0
    for kind in (ValueError, TypeError, KeyError):
        try:
            try:
                fail(kind)
            except ValueError:
                total += 1
            finally:
                total += 10
        except (TypeError, KeyError):
            total += 100
    return x + total


def reraised(x):
    try:
        try:
            raise ValueError("a")
        except ValueError:
            raise
    except ValueError as error:
        return x + 1, str(error)


def asserts(x):
    assert x.shape[0] == 2, "two rows"
    return x * 2


PROGRAMS = [
    arithmetic, constants_fold, branches, loops, unpacking, displays, comprehensions, closures, nested_generators,
    sending, strings, slices, stores, star_calls, uses_global, matches, imports, chained, deletes, handled,
    nested_handlers, reraised, asserts,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_family_of_instructions(differential, program):
    traced = differential(program, X)
    assert not traced.result.breaks


def test_every_opcode_has_a_handler():
    """All but those of modules, class bodies and coroutines, and what the interpreter never meets."""
    never = {
        "CACHE", "EXTENDED_ARG", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH", "END_ASYNC_FOR", "GET_AWAITABLE",
        "SETUP_ANNOTATIONS", "STORE_NAME", "DELETE_NAME", "LOAD_NAME",
    }  # fmt: skip
    if sys.version_info[:2] == (3, 11):
        missing = {name for name in dis.opmap if name not in HANDLERS} - never
        assert not missing
