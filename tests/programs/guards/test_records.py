"""Programs about dataclasses, named tuples and enums, and copies of them."""
# ruff: noqa: E741 - programs as people write them

from __future__ import annotations

import copy
import dataclasses
import enum
import typing

import pytest
import torch

from ..checking import Programs, call, check

program = Programs()


@dataclasses.dataclass
class Out:
    a: torch.Tensor
    b: torch.Tensor | None = None
    tags: list = dataclasses.field(default_factory=list)

    @property
    def total(self):
        return self.a.sum()

    def __post_init__(self):
        self.extra = len(self.tags)


class Pt(typing.NamedTuple):
    x: torch.Tensor
    y: int = 3

    def norm(self):
        return self.x.norm()


@program
def dataclass_nt(compile):
    def fn(x, o):
        p = Pt(x + 1)
        q = p._replace(y=7)
        o.a = o.a + 1
        o.tags.append("seen")
        r = dataclasses.replace(o, b=x)
        return (
            Out(x * 2, tags=["q", str(p.y)]),
            p,
            q.norm(),
            q._asdict(),
            o,
            r,
            r.total,
            r == r,
            dataclasses.asdict(Out(x)),
            p._fields,
        )

    f = compile(fn)
    o = Out(torch.ones(3))
    x = torch.randn(3)
    return [call(f, x, o) for _ in range(3)], o


class Color(enum.Enum):
    RED = 1
    BLUE = 2

    @property
    def w(self):
        return self.value * 2


class Flag(enum.IntEnum):
    A = 1
    B = 2


@program
def enums(compile):
    def fn(x, c, fl):
        y = x * c.value + c.w
        if c is Color.RED:
            y = y + 1
        if fl == Flag.B:
            y = y - 5
        return (
            y,
            c.name,
            Color["BLUE"],
            Color(1),
            fl + 1,
            {Color.RED: "r"}.get(c),
            [e.name for e in Color],
            c == Color.BLUE,
            f"{c}",
            isinstance(fl, int),
        )

    f = compile(fn)
    return [f(torch.ones(2), c, fl) for c in Color for fl in Flag]


class Task(str, enum.Enum):  # noqa: UP042
    """Members are texts, whose own special methods are not the class's; libraries compare them without case."""

    BINARY = "binary"
    MULTI = "multi"

    def __eq__(self, other):
        return self.value == (other.value if isinstance(other, enum.Enum) else str(other).lower())

    def __hash__(self):
        return hash(self.value)

    @classmethod
    def from_str(cls, text):
        for name in cls.__members__:
            if name.lower() == text.lower():
                return cls[name]
        raise ValueError(f"no {text}")


@program
def enums_of_texts(compile):
    def fn(x, text):
        task = Task(Task.from_str(text))
        y = x * 2 if task == Task.BINARY else x + len(Task)
        return y, task, Task["MULTI"], task in Task, [*reversed(Task)], {task: 1}.get("multi"), task == "MULTI"

    f = compile(fn, fullgraph=True)
    return f(torch.ones(2), "Binary"), f(torch.ones(2), "multi"), call(compile(fn), torch.ones(2), "other")


@program
def copies(compile):
    def fn(x, d):
        a = copy.copy(d)
        b = copy.deepcopy({"k": [1, 2]})
        a["z"] = x
        l = [1, 2, 3]
        l2 = l[:]
        l2[1:2] = [9, 9]
        del l[0]
        l += (4,)
        t = (1,) + (2,)
        s = {1, 2} | {3}
        fs = frozenset([1])
        l.sort(reverse=True)
        return (
            a,
            b,
            l,
            l2,
            t,
            s & {1, 3},
            fs,
            l.index(4),
            l.count(2),
            t * 2,
            {**d, "q": 1},
            dict(zip("ab", [1, 2])),
            list({"x": 1}.items()),
            [i for i in range(10) if i % 2][::-1],
            {k: v for k, v in d.items() if k != "x"},
            x + sum(l),
            any(v is x for v in a.values()),
            [[0] * 2 for _ in range(2)],
            d.get("no"),
            max(d, default=0),
            list(reversed(d)),
            d == {},
            a | {"w": 1},
        )

    f = compile(fn)
    return [f(torch.ones(2), {"x": 1, "y": 2}) for _ in range(2)]


@pytest.mark.parametrize("name", program)
def test_a_program_with_records_is_the_program(name):
    check(program[name])
