"""Programs whose enumerations have state, methods and metaclasses of their own."""
# ruff: noqa: B010 - programs as people write them

from __future__ import annotations

import enum

import pytest
import torch

from ..checking import Programs, call, check, check_whole

program = Programs()
whole = Programs()


@whole
def members_with_methods_and_properties(compile):
    class Kind(enum.Enum):
        ADD = 1
        MUL = 2

        def __init__(self, number):
            self.factor = number * 10

        @property
        def doubled(self):
            return self.factor * 2

        def apply(self, x):
            return x + self.factor if self is Kind.ADD else x * self.doubled

    class Level(enum.IntEnum):
        LOW = 0
        HIGH = 3

    def fn(x, kind):
        return kind.apply(x) + Level.HIGH, Kind(2).name, [member.value for member in Kind], bool(Level.LOW)

    f = compile(fn)
    return [f(torch.ones(2), kind) for kind in (Kind.ADD, Kind.MUL, Kind.ADD)]


@program
def members_that_change(compile):
    class Kind(enum.Enum):
        A = 1

        def __init__(self, number):
            self.calls = 0

        def apply(self, x):
            return x + self.calls

    def fn(x):
        Kind.A.calls += 1
        return Kind.A.apply(x)

    f = compile(fn)
    results = [f(torch.ones(2)) for _ in range(3)]
    Kind.A.calls = 10
    results.append(f(torch.ones(2)))
    Kind.apply = lambda self, x: x * 100
    return [*results, f(torch.ones(2))]


@program
def truth_that_depends_on_state(compile):
    state = {"on": True}

    class Switch(enum.Enum):
        A = 1

        def __bool__(self):
            return state["on"]

    def fn(x):
        return x + 1 if Switch.A else x - 1

    f = compile(fn)
    results = [f(torch.ones(2))]
    state["on"] = False
    return [*results, f(torch.ones(2))]


@program
def missing_members(compile):
    class Colour(enum.Enum):
        RED = 1

        @classmethod
        def _missing_(cls, value):
            print("missing", value)
            return cls.RED if value == "red" else None

    def fn(x, value):
        return Colour(value), x + 1

    f = compile(fn)
    return [call(f, torch.ones(1), value) for value in (1, "red", "red", 5, 1)]


@program
def metaclasses_of_enumerations(compile):
    class Ignoring(enum.EnumMeta):
        def __getitem__(cls, name):
            print("asked for", name)
            return super().__getitem__(name.upper())

        def __len__(cls):
            return 10

    class Colour(enum.Enum, metaclass=Ignoring):
        RED = 1

    def fn(x):
        return Colour["red"], len(Colour), x + 1

    f = compile(fn)
    return [f(torch.ones(1)) for _ in range(2)]


@program
def flags_as_sizes(compile):
    class Part(enum.IntFlag):
        FIRST = 1
        SECOND = 2

    f = compile(lambda x, parts: x.view(parts, -1) * parts)
    return [f(torch.ones(6), parts) for parts in (Part.SECOND, Part.FIRST | Part.SECOND, Part.FIRST)]


@program
def enumerations_that_refuse(compile):
    def fn(x):
        class Local(enum.Enum):
            A = 1

        try:
            setattr(Local, "A", 3)
        except AttributeError as error:
            return str(error), x + 1

    f = compile(fn)
    return [f(torch.ones(1)) for _ in range(2)]


class Level(enum.Enum):
    LOW = 1
    HIGH = 2

    @classmethod
    def _missing_(cls, value):
        if value == "error":
            raise KeyError(value)
        return cls[value.upper()] if isinstance(value, str) and value != "none" else None


@whole
def members_that_missing_finds(compile):
    f = compile(lambda x, name: (x * Level(name).value, Level(2)))
    return [f(torch.ones(1), name) for name in ("low", "high", "low")]


@program
def members_that_missing_does_not_find(compile):
    f = compile(lambda x, name: x * Level(name).value)
    return [call(f, torch.ones(1), name) for name in ("none", "error", "medium", 7, "low")]


@pytest.mark.parametrize("name", program)
def test_a_program_with_enumerations_is_the_program(name):
    check(program[name])


@pytest.mark.parametrize("name", whole)
def test_plain_enumerations_do_not_break(name):
    check_whole(whole[name])
