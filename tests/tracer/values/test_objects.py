"""Instances, classes, properties, operators of the program's own, enums and modules against eager."""
from __future__ import annotations

import dataclasses
import enum
from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from ptdebug.tracer.frames.dispatch import optimize
from ptdebug.tracer.fx.backend_call import CompileOptions
from torch import nn

X = torch.arange(6.0).reshape(2, 3)


class Color(enum.Enum):
    RED = 1
    BLUE = 2

    def mixed(self):
        return self.value * 10


class Base:
    scale = 2
    registry: dict[str, Any] = {}

    def __init__(self, weight, name="base"):
        self.weight = weight
        self.name = name

    def __call__(self, x):
        return self.apply(x) * self.scale

    def apply(self, x):
        return x * self.weight

    @property
    def label(self):
        return f"{self.name}!"

    @label.setter
    def label(self, value):
        self.name = value

    @classmethod
    def make(cls, weight):
        return cls(weight, cls.__name__)

    @staticmethod
    def helper(x):
        return x + 1


class Child(Base):
    def __init__(self, weight, name="child"):
        super().__init__(weight, name)
        self.extra = 1

    def apply(self, x):
        return super().apply(x) + self.extra

    def __getattr__(self, name):
        if name.startswith("dyn_"):
            return name[4:]
        raise AttributeError(name)


class Vector:
    def __init__(self, items):
        self.items = items

    def __add__(self, other):
        return Vector([a + b for a, b in zip(self.items, other.items)])

    def __rmul__(self, factor):
        return Vector([factor * a for a in self.items])

    def __iadd__(self, other):
        self.items = [a + other for a in self.items]
        return self

    def __eq__(self, other):
        return isinstance(other, Vector) and len(self.items) == len(other.items)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]

    def __setitem__(self, index, value):
        self.items[index] = value

    def __contains__(self, item):
        return item == 7

    def __iter__(self):
        return iter(self.items)

    def __neg__(self):
        return Vector([-a for a in self.items])

    __hash__ = None


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n


@dataclasses.dataclass
class Output(OrderedDict):
    loss: Any = None
    logits: Any = None

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                self[field.name] = value

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def to_tuple(self):
        return tuple(self[k] for k in self.keys())


class Registry(dict):
    def __missing__(self, key):
        return key


def made_in_the_trace(x):
    c = Child.make(3)
    c.label = "renamed"
    return c(x), c.label, c.dyn_abc, c.helper(x), isinstance(c, Base), type(c).__name__, hasattr(c, "nope"), c.__dict__


def operators(x):
    v = Vector([x, x + 1]) + Vector([x, x])
    v = 2 * v
    v += 1
    v[0] = x
    return v, len(v), v[1], 7 in v, 8 in v, list(v), -v, v == Vector([1, 2]), v != Vector([1]), bool(v)


def iterators_of_classes(x):
    return list(Countdown(3)), [i * x for i in Countdown(2)], next(Countdown(1)), dict(zip(Countdown(2), "ab"))


def outputs(x):
    out = Output(logits=x * 2)
    out["extra"] = x
    return out, out.logits, out["logits"], out.to_tuple(), list(out), out.get("loss"), "loss" in out, out.loss


def enums(x):
    return Color.RED, Color["BLUE"], Color(2).name, Color.RED.mixed(), [c.value for c in Color], Color.RED is Color(1)


def attributes(x):
    s = SimpleNamespace(a=1, b=x)
    s.c = s.a + 1
    name = "d"
    setattr(s, name, 4)
    del s.a
    return s, getattr(s, name), hasattr(s, "a"), vars(s)["c"]


def classes(x):
    class Local(Base):
        def apply(self, x):
            return x

    return Local(1)(x)


class Tagging(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.tag = cls.__name__
        return made


class Tagged(metaclass=Tagging):
    def __init__(self, value):
        self.value = value


class Numbers(list):
    def total(self):
        return sum(self)


class Doubling:
    def __get__(self, owner, cls):
        return 5 if owner is None else owner.kept * 2

    def __set__(self, owner, value):
        owner.kept = value


class Slotted:
    __slots__ = ("a", "b")
    doubled = Doubling()

    def __init__(self, a):
        self.a = a


class Described:
    doubled = Doubling()

    def __init__(self):
        self.doubled = 4


def unusual_classes(x):
    numbers = Numbers([1, 2])
    numbers.append(3)
    slotted = Slotted(x)
    return Tagged(3).tag, numbers.total(), numbers, slotted.a + 1, hasattr(slotted, "b"), Described().doubled


@pytest.mark.parametrize(
    "function", [unusual_classes, made_in_the_trace, operators, iterators_of_classes, outputs, enums, attributes]
)  # fmt: skip
def test_as_in_eager(check, function):
    check(lambda x: (x + 1, function(x)), X)


def test_class_statement_is_left_to_eager(check):
    check(lambda x: (x + 1, classes(x)), X, graphs=None)


def test_object_argument(check):
    def use(x, thing):
        thing.count = getattr(thing, "count", 0) + 1
        thing.label = "new"
        return thing(x), thing.label, thing.weight

    check(use, X, Child(3))


def test_attributes_are_guarded():
    def use(x, thing):
        return thing(x)

    fast = optimize(use, CompileOptions(lambda captured, context: captured.module.forward))
    thing = Child(3)
    for weight, extra in ((3, 1), (4, 1), (4, 2), (3, 1)):
        thing.weight, thing.extra = weight, extra
        assert torch.equal(fast(X, thing), thing(X))
    assert torch.equal(fast(X, Base(5)), Base(5)(X))


def test_instance_attribute_that_appears_hides_the_class():
    def use(x, thing):
        return x * thing.scale

    fast = optimize(use, CompileOptions(lambda captured, context: captured.module.forward))
    thing = Base(1)
    assert torch.equal(fast(X, thing), X * 2)
    thing.scale = 5
    assert torch.equal(fast(X, thing), X * 5)


def test_missing_attribute_that_appears():
    def use(x, thing):
        return x + 1 if hasattr(thing, "flag") else x - 1 + getattr(thing, "other", 0)

    fast = optimize(use, CompileOptions(lambda captured, context: captured.module.forward))
    thing = Base(1)
    assert torch.equal(fast(X, thing), X - 1)
    thing.other = 3
    assert torch.equal(fast(X, thing), X + 2)
    thing.flag = True
    assert torch.equal(fast(X, thing), X + 1)


class Block(nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
        self.named = nn.ModuleDict({"a": nn.Linear(width, width), "b": nn.Identity()})
        self.norm = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(0.5)
        self.scale = nn.Parameter(torch.ones(width))
        self.register_buffer("offset", torch.zeros(width))
        self.act = nn.GELU()
        self.calls = 0

    def forward(self, x, *, twice: bool = False):
        self.calls += 1
        for i, layer in enumerate(self.layers[:2]):
            x = layer(x) + i
        for name, layer in self.named.items():
            x = layer(x) if name in self.named else x
        x = self.drop(self.norm(x)) * self.scale + self.offset + len(self.layers)
        self.offset = x.detach().mean(0)
        return self.act(x * 2 if twice else x), self.training


@pytest.mark.parametrize("training", [False, True])
def test_modules(check, training):
    torch.manual_seed(0)
    block = Block().train(training)
    block.drop.p = 0.0

    def run(x, module):
        return module(x, twice=True)

    with torch.no_grad():
        check(run, X, block)


def test_training_flag_and_parameters_are_guarded():
    block = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()
    fast = optimize(lambda x: block(x), CompileOptions(lambda captured, context: captured.module.forward))
    with torch.no_grad():
        assert torch.equal(fast(X), block(X))
        block[0].weight = nn.Parameter(torch.ones(3, 3))
        assert torch.equal(fast(X), block(X))
        block[0] = nn.ReLU()
        assert torch.equal(fast(X), block(X))
        before = block[1].num_batches_tracked.clone()
        block.train()
        fast(X)
        assert block[1].num_batches_tracked == before + 1


def test_hooks_run():
    block = nn.Linear(3, 3)
    fast = optimize(lambda x: block(x), CompileOptions(lambda captured, context: captured.module.forward))
    with torch.no_grad():
        plain = fast(X)
        handle = block.register_forward_hook(lambda module, args, result: result * 2)
        pre = block.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
        assert torch.equal(fast(X), block(X))
        handle.remove()
        pre.remove()
        assert torch.equal(fast(X), plain)


def test_forward_replaced_on_the_instance():
    block = nn.Linear(3, 3)
    fast = optimize(lambda x: block(x), CompileOptions(lambda captured, context: captured.module.forward))
    with torch.no_grad():
        assert torch.equal(fast(X), block(X))
        block.forward = lambda x: x * 3
        assert torch.equal(fast(X), X * 3)


class Scaled:
    scale = 2

    def __init__(self, n):
        self.n = n


class ScaledMore(Scaled):
    def both(self):
        return self.scale + super().scale


def test_an_attribute_of_a_class_is_what_was_stored_there(check):
    def run(x):
        before = Scaled.scale, ScaledMore.scale
        Scaled.scale += 1
        made = ScaledMore(1)
        seen = [made.scale, ScaledMore.scale, type(made).scale, made.both()]
        made.scale = 11
        seen += [made.scale, Scaled(1).scale]
        Scaled.scale = before[0]
        return x * seen[0], seen

    check(run, X)
