"""Generated programs: random statements in random blocks, with calls that break the graph anywhere.

Each program is compiled under the frame hook, run twice, and compared with eager: result, log of side effects, state of
an object, exception.
"""
from __future__ import annotations

import contextlib
import textwrap

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from ptdebug.tracer.frames.dispatch import reset

SIMPLE = [
    "x = x + 1", "y = x * y", "x, y = y, x", "items.append(x)", "box.n += 1", "box.value = y", "y = y - box.n",
    "x = x + len(items)", "x = x + note('a')", "note(f'n={box.n}')", "y = [y, x][note('') ]",
    "y = y + sum(i for i in range(3))", "x = (lambda v: v * 2)(x)", "k = x.shape[0]; x = x * k",
    "total = total + 1", "y = helper(x, y)", "y = noisy(y)", "x = x.relu()", "items = items[-2:]",
    "x = torch.stack([v * 2 for v in (x, y)]).sum(0)", "del items[:1]", "d = {'a': x}; x = d['a'] + 1",
    "bump(2)",
]  # fmt: skip
RAISING = ["raise ValueError('v')", "assert box.n > 1", "x = items[7]", "fail(KeyError)", "x = x + torch.ones(5)"]
CONDITIONS = ["box.n > 1", "x.shape[0] == 4", "x.sum() > 3", "items", "not note('')", "y.sum() < 0 or box.n == 0"]


def indent(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def block(children: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
    """Blocks around sequences of statements."""
    body = st.lists(children, min_size=1, max_size=3).map(lambda parts: [line for part in parts for line in part])
    choose = st.tuples(st.sampled_from(CONDITIONS), body, body)
    return st.one_of(
        choose.map(lambda t: [f"if {t[0]}:", *indent(t[1]), "else:", *indent(t[2])]),
        body.map(lambda b: ["for i in range(2):", *indent([*b, "x = x + i"])]),
        st.tuples(body, body).map(
            lambda t: ["try:", *indent(t[0]), "except (ValueError, KeyError) as error:", *indent(t[1])]
        ),
        st.tuples(body, body).map(lambda t: ["try:", *indent(t[0]), "finally:", *indent(t[1])]),
        body.map(lambda b: ["with torch.no_grad():", *indent(b)]),
        body.map(lambda b: ["with manager('m'):", *indent(b)]),
        body.map(lambda b: ["n = 2", "while n:", *indent(["n -= 1", *b])]),
    )


STATEMENT = st.sampled_from(SIMPLE * 4 + RAISING).map(lambda line: [line])
PROGRAM = st.lists(st.recursive(STATEMENT, block, max_leaves=8), min_size=2, max_size=5).map(
    lambda parts: [line for part in parts for line in part]
)


class Box:
    def __init__(self) -> None:
        self.n = 1
        self.value = None


def environment(log: list[str]) -> dict[str, object]:
    def note(text):
        with open("/dev/null", "w") as file:
            file.write(text)
        log.append(text)
        return len(text)

    def helper(a, b):
        return a * 2 + b

    def noisy(a):
        a = a + 1
        note("noisy")
        return a * 3

    def fail(kind):
        raise kind("failed")

    @contextlib.contextmanager
    def manager(name):
        log.append("enter " + name)
        try:
            yield name
        finally:
            log.append("leave " + name)

    return {"torch": torch, "note": note, "helper": helper, "noisy": noisy, "fail": fail, "manager": manager}


def define(lines: list[str], log: list[str]):
    source = "\n".join(
        ["def program(x, y, box, items):", "    total = 0", "    def bump(n):", "        nonlocal total",
         "        total += n", *indent(lines), "    return x, y, total, items, torch.is_grad_enabled()"]
    )  # fmt: skip
    space = environment(log)
    exec(compile(textwrap.dedent(source), "<generated>", "exec"), space)
    return space["program"]


def plain(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def outcome(function, log: list[str]):
    log.clear()
    box, items = Box(), [1]
    try:
        result = ("returns", plain(function(torch.arange(4.0), torch.ones(4), box, items)))
    except Exception as error:
        result = ("raises", type(error), str(error))
    return result, list(log), box.n, plain(box.value), plain(items), torch.is_grad_enabled()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(PROGRAM)
def test_generated_programs(compiled, caplog, lines):
    check(compiled, caplog, lines)


def check(compiled, caplog, lines):
    log: list[str] = []
    reset()
    caplog.clear()
    program = define(lines, log)
    expected = outcome(program, log)
    fast, _ = compiled(program)
    assert outcome(fast, log) == expected
    assert outcome(fast, log) == expected
    assert not [r for r in caplog.records if "internal error" in r.getMessage()], caplog.text


@pytest.mark.parametrize("lines", [
    ["with manager('m'):", "    note('in')", "    x = x + 1"],
    ["try:", "    with torch.no_grad():", "        fail(KeyError)", "except KeyError as error:", "    note('e')"],
    ["n = 2", "while n:", "    n -= 1", "    x = x + note('w')"],
    ["with torch.no_grad():", "    note('a')", "    fail(KeyError)"],
    ["with torch.no_grad():", "    if y.sum() < 0:", "        x = x + 1", "    fail(KeyError)"],
])  # fmt: skip
def test_found_before(compiled, caplog, lines):
    """Programs that once went wrong."""
    check(compiled, caplog, lines)
