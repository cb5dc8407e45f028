"""What the program reads of a class, and somebody changes between two calls: of classes that no module has under their
name, through the type of an instance, class methods and super()."""
# mypy: ignore-errors

from __future__ import annotations

import enum
import functools
import types

import pytest
import torch

from ..checking import Programs, call, check, check_engine

program = Programs()
X = torch.ones(2)

READERS = {
    "type": lambda a, below: lambda x: x * type(a).scale,
    "__class__": lambda a, below: lambda x: x * a.__class__.scale,
    "a class method": lambda a, below: lambda x: x * a.read(),
    "a class method of the type": lambda a, below: lambda x: x * type(a).read(),
    "a new instance": lambda a, below: lambda x: x * type(a)().scale,
    "getattr": lambda a, below: lambda x: x * getattr(type(a), "scale", 8),
    "mro()": lambda a, below: lambda x: x * type(a).mro()[0].scale,
    "__mro__": lambda a, below: lambda x: x * type(a).__mro__[1].scale,
    "__bases__": lambda a, below: lambda x: x * below.__bases__[0].scale,
    "super()": lambda a, below: lambda x: x * super(below, a).scale,
}


@pytest.mark.parametrize("how", READERS)
def test_a_number_of_a_class(how: str) -> None:
    def use(compile):
        class Above:
            scale = 1

            @classmethod
            def read(cls):
                return cls.scale

        class Below(Above):
            pass

        function = compile(READERS[how](Below(), Below))
        out = [function(X)]
        Below.scale = 2
        out.append(function(X))
        Above.scale = 3
        out.append(function(X))
        del Below.scale
        out.append(function(X))
        Above.scale = 2.5
        return [*out, function(X)]

    check(use)


class Outer:
    class Settings:
        scale = 1


@program
def class_in_a_class(compile):
    function = compile(lambda settings, x: x * type(settings).scale)
    out = [function(Outer.Settings(), X)]
    Outer.Settings.scale = 2
    out.append(function(Outer.Settings(), X))
    Outer.Settings.scale = 1
    return out


@program
def objects_of_a_class(compile):
    class Layer:
        config = types.SimpleNamespace(k=1)
        sizes = [1, 2]
        names = {"a": 1}
        weight = torch.ones(2)

        @classmethod
        def compute(cls, x):
            return x * cls.config.k + cls.sizes[0] + len(cls.sizes) + cls.names["a"] + cls.weight

        def forward(self, x):
            return type(self).compute(x)

    function = compile(Layer().forward)
    out = [function(X)]
    for change in (
        lambda: setattr(Layer.config, "k", 2), lambda: Layer.sizes.append(5), lambda: Layer.names.update(a=4),
        lambda: Layer.weight.add_(1), lambda: setattr(Layer, "weight", torch.ones(1)),
    ):  # fmt: skip
        change()
        out.append(function(X))
    return out


@program
def what_a_class_lacks_at_first(compile):
    class Layer:
        @classmethod
        def cached(cls):
            return cls.cache if hasattr(cls, "cache") else 1

        def forward(self, x):
            return x * type(self).cached() * getattr(type(self), "factor", 2)

    function = compile(Layer().forward)
    out = [function(X)]
    Layer.cache = 5
    out.append(function(X))
    Layer.factor = 7
    out.append(function(X))
    del Layer.cache
    return [*out, function(X)]


@program
def what_an_enumeration_lacks_at_first(compile):
    class Kind(enum.Enum):
        A = 1

    function = compile(lambda x: x * getattr(Kind, "factor", 2))
    out = [function(X)]
    Kind.factor = 7
    return [*out, function(X)]


@program
def what_super_lacks_at_first(compile):
    class Above:
        pass

    class Below(Above):
        def forward(self, x):
            return x * getattr(super(), "factor", 2)

    function = compile(Below().forward)
    out = [function(X)]
    Above.factor = 7
    return [*out, function(X)]


@program
def super_beside_the_instances_own(compile):
    class Above:
        scale = 1

    class Below(Above):
        scale = 2

        def forward(self, x):
            return x * self.scale + 10 * super().scale

    below = Below()
    below.scale = 7
    function = compile(below.forward)
    out = [function(X)]
    Above.scale = 3
    out.append(function(X))
    del Above.scale
    return [*out, call(function, X)]


@program
def whether_instances_can_be_called(compile):
    class Layer:
        pass

    layer = Layer()
    function = compile(lambda x: (x + 1, callable(layer)))
    out = [function(X)]
    Layer.__call__ = lambda self: 1
    out.append(function(X))
    del Layer.__call__
    out.append(function(X))
    return out


@program
def a_counter_of_a_class(compile):
    class Layer:
        calls = 0

        def forward(self, x):
            type(self).calls += 1
            return x * type(self).calls

    class Other(Layer):
        pass

    function = compile(lambda layer, x: layer.forward(x))
    out = [function(layer, X) for layer in (Layer(), Layer(), Other(), Layer(), Other())]
    return out, Layer.calls, Other.calls


@pytest.mark.parametrize("name", program)
def test_members_of_classes(name: str) -> None:
    check(program[name])


def test_methods_that_the_program_gives_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    def use(compile):
        factor, relu = [2], torch.Tensor.relu

        def scaled(self, by=1):
            print("scaled", by)
            return self * factor[0] * by

        weight = torch.nn.Parameter(X)
        function = compile(
            lambda x: (x.scaled(), x.twice(), weight.scaled(), weight.shown(), (x + 1).scaled(by=3).relu(),
                       [*map(torch.Tensor.scaled, [x])])
        )
        found = []
        with monkeypatch.context() as patched:
            patched.setattr(torch.Tensor, "scaled", scaled, raising=False)
            patched.setattr(torch.Tensor, "relu", lambda self: relu(self - 5) * 10)
            patched.setattr(torch.Tensor, "twice", functools.partialmethod(scaled, 2), raising=False)
            patched.setattr(torch.nn.Parameter, "shown", lambda self: self.detach() * factor[0], raising=False)
            for factor[0] in (2, 3, 4):
                found.append(function(X))
            patched.setattr(torch.Tensor, "scaled", lambda self, by=0: self - by)
            patched.setattr(torch.Tensor, "relu", lambda self: self)
            found.append(function(X))
        return [*found, call(function, X)]

    check(use)
    check_engine(use)
