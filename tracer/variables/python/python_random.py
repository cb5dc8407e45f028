"""Python's random numbers as values: generators of `random`, and their results.

`tracer/effects/random_inputs.py` says when they are sampled. Arithmetic on a random float is done in Python before the
graph runs (`floats.py`); a random int is an unbacked symbol of the graph, like the result of `.item()`. `_METHODS` has
the result type of each method of random.Random; a method that is not there, or with other arguments, breaks the graph.
"""
from __future__ import annotations

import operator
import random
from collections.abc import Callable, Mapping, Sequence
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any, NoReturn

import torch
import torch.fx

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.computed import ComputedSource, ConstantSource
from ...sources.display_names import display_name
from ...sources.roots import ModuleGlobalSource
from ...sources.source import AttrSource, ItemSource, Source
from ..containers.lists import ListValue
from ..containers.sequences import SequenceValue
from ..core.base import Value
from ..core.constant import BoundBuiltin, constant
from ..core.handlers import handles
from ..core.late import late
from ..core.registry import build, builds
from .builtin_functions import BOUND
from .floats import FloatValue, compute
from .instances import build_object
from .symbolic_numbers import NumberValue

if TYPE_CHECKING:
    from ..core.base import Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]


# ---- numbers ---------------------------------------------------------------------------------------------------------
class RandomFloat(FloatValue):
    """A random float, or one computed from a random number; `number` is an example."""

    __slots__ = ()

    is_random = True

    def _placeholder(self) -> torch.fx.Node:
        graph, source = self.trace.graph, self.source
        assert source is not None
        return graph.inputs.get(source) or graph.add_placeholder(source, graph.shapes.random_symbol(float))

    def specialize(self, tx: Translator) -> float:
        """Raises Unsupported: it has no fixed value."""
        _refuse(self.describe())


class RandomInt(NumberValue):
    """A random int, or one computed from a random float; `number` is an example."""

    __slots__ = ("number", "trace")

    is_random = True

    def __init__(self, tx: Translator, number: int, source: Source, bounds: tuple[int, int] | None = None) -> None:
        super().__init__(tx.graph.shapes.random_symbol(int, bounds), make_node=self._placeholder, source=source)
        self.number = number
        self.trace = tx.trace

    def _placeholder(self) -> torch.fx.Node:
        graph, source = self.trace.graph, self.source
        assert source is not None
        return graph.inputs.get(source) or graph.add_placeholder(source, self.symbol)

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """Symbolic with ints; operations that give a float are computed in Python."""
        other = right if left is self else left
        kind = other.python_type() if isinstance(other, NumberValue) or other.is_constant() else None
        if kind is float or (kind is int and function in (operator.truediv, operator.itruediv)):
            return compute(tx, function, [left, right])
        return super().binary(tx, function, left, right)

    def math(self, tx: Translator, function: Callable[..., Any]) -> Value:
        """Computed in Python."""
        return compute(tx, function, [self])

    def rounded(self, tx: Translator, digits: Value | None) -> Value:
        """round(number[, digits])."""
        return compute(tx, round, [self] if digits is None else [self, digits])

    def specialize(self, tx: Translator) -> int:
        """Raises Unsupported: it has no fixed value."""
        _refuse(self.describe())


def _refuse(what: str) -> NoReturn:
    raise Unsupported(Reason.RANDOM_VALUE, detail=what)


def _number(
    tx: Translator, kind: type, example: Any, source: Source, bounds: tuple[int, int] | None = None
) -> Value:
    """The number at `source`, which has type `kind` at each call."""
    if kind is int and type(example) is int:
        return RandomInt(tx, example, source, bounds)
    if kind is float and type(example) is float:
        return RandomFloat(tx, example, source)
    _refuse(display_name(source))


def _computed(tx: Translator, source: ComputedSource, example: Any) -> Value:
    """What Python computes from a random number, where the result has the same type for every value."""
    if source.function in (pow, operator.pow):
        base, exponent = source.args[:2]
        whole = isinstance(exponent, ConstantSource) and type(exponent.value) is int
        if not whole and not (isinstance(base, ConstantSource) and base.value > 0):  # it may be complex
            _refuse(display_name(source))
    return _number(tx, type(example), example, source)


late.computed_from_random = _computed


# ---- generators ------------------------------------------------------------------------------------------------------
class RandomObject(Value):
    """Any other result of a generator: its state, bytes. It can be kept, returned, and passed to a generator."""

    __slots__ = ("example",)

    def __init__(self, example: Any, source: Source) -> None:
        super().__init__(source)
        self.example = example

    def python_type(self) -> type:
        """Its type."""
        return type(self.example)

    def truth(self, tx: Translator) -> bool:
        """Not known."""
        _refuse(self.describe())

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """Not known, `==` included."""
        _refuse(self.describe())


class RandomGenerator(Value):
    """A generator: `real` where it exists, else `example` goes through the states that it will have."""

    __slots__ = ("_example", "real")

    def __init__(self, source: Source, real: random.Random | None, example: random.Random | None = None) -> None:
        super().__init__(source)
        self.real = real
        self._example = example

    def python_type(self) -> type:
        """random.Random."""
        return random.Random

    def truth(self, tx: Translator) -> bool:
        """Generators are true."""
        return True

    def example(self, tx: Translator) -> random.Random:
        """A generator to sample examples from."""
        if self._example is None:
            assert self.real is not None
            self._example = tx.trace.random_calls.copy_of(self.real)
        return self._example

    def getattr(self, tx: Translator, name: str) -> Value:
        """A method of the table."""
        if name in _METHODS:
            return BoundBuiltin(self, name)
        raise Unsupported(Reason.ATTRIBUTE, self, name)

    def call_method(self, tx: Translator, name: str, args: Args, kwargs: Kwargs) -> Value:
        """Sample."""
        if name not in _METHODS:
            raise Unsupported(Reason.PYTHON_RANDOM, random, name)
        return _METHODS[name](tx, self, name, args, kwargs)

    def describe(self) -> str:
        """For messages."""
        return "Python's random" if self.real is random._inst else "a generator of random numbers"


_GLOBAL = ModuleGlobalSource("random", "_inst")


@builds(random.Random)
def build_random(tx: Translator, obj: random.Random, source: Source | None) -> Value:
    """A generator; subclasses are not supported."""
    if type(obj) is not random.Random:
        return build_object(tx, obj, source)
    if source is None and obj is not random._inst:
        raise Unsupported(Reason.UNKNOWN_TYPE, detail="a generator of random numbers that no expression reaches")
    if source is not None:
        tx.guards.add(source, "TYPE_MATCH", random.Random)
    return RandomGenerator(source or _GLOBAL, obj)


def _bound(tx: Translator, method: Any, source: Source | None) -> Value:
    """`random.random`, and other methods written in C."""
    if source is None:
        return BoundBuiltin(build_random(tx, method.__self__, None), method.__name__)
    tx.guards.add(source, "TYPE_MATCH", BuiltinFunctionType)
    tx.guards.add(AttrSource(source, "__name__"), "EQUALS_MATCH", method.__name__)
    return BoundBuiltin(build(tx, method.__self__, AttrSource(source, "__self__")), method.__name__)


BOUND[random.Random] = _bound


@handles(random.Random)
def _new(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    source, example = _draw(tx, None, random.Random, "Random", args, kwargs)
    return RandomGenerator(source, None, example)


# ---- sampling --------------------------------------------------------------------------------------------------------
def _draw(
    tx: Translator, owner: RandomGenerator | None, function: Callable[..., Any], name: str, args: Args, kwargs: Kwargs
) -> tuple[Source, Any]:
    """Record the call `function(owner, *args, **kwargs)`; returns its result's source, and an example."""
    text = f"random.{name}"
    _refuse_here(tx, text)
    given = [_argument(tx, value, text) for value in (*args, *kwargs.values())]
    examples = [example for _, example in given]
    named = dict(zip(kwargs, examples[len(args) :]))
    owners = [owner.example(tx)] if owner is not None else []
    try:
        example = function(*owners, *examples[: len(args)], **named)
    except Exception as error:  # Python raises it where the user calls it
        raise Unsupported(Reason.PYTHON_RANDOM, detail=text) from error
    where = tx.own_location()
    subject = f"{text}@{where.file.rpartition('/')[2]}:{where.line}"
    why = "it is sampled before the graph runs, in program order"
    if tx.trace.context.decide("random", subject, ("input", "break"), "input", why) == "break":
        raise Unsupported(Reason.PYTHON_RANDOM, detail=text)
    generator = owner.source if owner is not None else None
    sources = [source for source, _ in given]
    return tx.trace.random_calls.add(function, generator, sources, tuple(kwargs), text), example


def _refuse_here(tx: Translator, text: str) -> None:
    """Raises Unsupported where sampling before the graph would be too early or too often: in code that need not run
    once, and after a user-defined operator written in Python, which may sample too."""
    if len(tx.graph.scopes.open) > 1 or tx.graph.checkpoint or tx.effects.is_sealed():
        raise Unsupported(Reason.SIDE_EFFECT_IN_SUBGRAPH, detail=f"{text} changes a generator")
    if any(map(_is_of_program, tx.graph.graph.nodes)):
        raise Unsupported(Reason.PYTHON_RANDOM, detail=f"{text} after a custom operator")


def _is_of_program(node: torch.fx.Node) -> bool:
    if isinstance(node.target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(node.target).partition(".")[0] not in ("aten", "prims", "ptdebug")
    return node.op == "get_attr"


def _argument(tx: Translator, value: Value, text: str) -> tuple[Source, Any]:
    """The source of an argument before the graph runs, and an example of it."""
    if value.is_constant():
        known = value.as_constant()
        return ConstantSource(repr(known), known), known
    if isinstance(value, SequenceValue):
        items = [_argument(tx, item, text) for item in value.items]
        return ComputedSource(_tuple, tuple(s for s, _ in items)), tuple(example for _, example in items)
    if value.source is not None and isinstance(value, (FloatValue, RandomInt)):
        return value.source, value.number
    if value.source is not None and isinstance(value, RandomObject):
        return value.source, value.example
    raise Unsupported(Reason.PYTHON_RANDOM, detail=f"{text} of {value.describe()}")


def _tuple(*items: Any) -> tuple[Any, ...]:
    return items


def _kind_of(value: Value, text: str) -> type:
    """The common type of the numbers in a sequence. Raises Unsupported where there are others."""
    items = list(value.as_constant()) if value.is_constant() and isinstance(value.as_constant(), range) else None
    if items is None and not isinstance(value, SequenceValue):
        raise Unsupported(Reason.PYTHON_RANDOM, detail=f"{text} of {value.describe()}")
    kinds = {item.python_type() for item in value.items} if items is None else {int}  # type: ignore[attr-defined]
    if len(kinds) != 1 or not kinds <= {int, float}:
        raise Unsupported(Reason.PYTHON_RANDOM, detail=f"{text} of {value.describe()}")
    return kinds.pop()


def _unbound(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(random.Random, name)
    return found


def _gives(kind: type) -> Callable[..., Value]:
    """The method returns a number of that type."""

    def method(tx: Translator, owner: RandomGenerator, name: str, args: Args, kwargs: Kwargs) -> Value:
        source, example = _draw(tx, owner, _unbound(name), name, args, kwargs)
        return _number(tx, kind, example, source, _bounds(name, args, kwargs))

    return method


def _bounds(name: str, args: Args, kwargs: Kwargs) -> tuple[int, int] | None:
    """The range of a random int, inclusive."""
    if kwargs or not all(arg.is_constant() and type(arg.as_constant()) is int for arg in args):
        return None
    numbers = [arg.as_constant() for arg in args]
    if name == "randint":
        return numbers[0], numbers[1]
    if name == "randrange" and len(numbers) < 3:
        return (0, numbers[0] - 1) if len(numbers) == 1 else (numbers[0], numbers[1] - 1)
    return (0, 2 ** numbers[0] - 1) if name == "getrandbits" else None


def _choice(tx: Translator, owner: RandomGenerator, name: str, args: Args, kwargs: Kwargs) -> Value:
    """One of several numbers."""
    if not args:
        raise Unsupported(Reason.PYTHON_RANDOM, random, name, detail="by keywords")
    kind = _kind_of(args[0], "random.choice")
    source, example = _draw(tx, owner, _unbound(name), name, args, kwargs)
    return _number(tx, kind, example, source)


def _several(tx: Translator, owner: RandomGenerator, name: str, args: Args, kwargs: Kwargs) -> Value:
    """A list of some of the numbers."""
    if not args:
        raise Unsupported(Reason.PYTHON_RANDOM, random, name, detail="by keywords")
    kind = _kind_of(args[0], f"random.{name}")
    count = kwargs.get("k") or (args[1] if name == "sample" and len(args) > 1 else constant(1))
    if not count.is_constant():
        raise Unsupported(Reason.PYTHON_RANDOM, random, name, given=(count,))
    return ListValue(_items(tx, kind, *_draw(tx, owner, _unbound(name), name, args, kwargs)), list)


def _items(tx: Translator, kind: type, source: Source, examples: Sequence[Any]) -> list[Value]:
    return [_number(tx, kind, example, ItemSource(source, i)) for i, example in enumerate(examples)]


def _shuffle(tx: Translator, owner: RandomGenerator, name: str, args: Args, kwargs: Kwargs) -> Value:
    """A list of numbers, in place."""
    shuffled, *rest = args
    if type(shuffled) is not ListValue or rest or kwargs:
        raise Unsupported(Reason.PYTHON_RANDOM, random.shuffle)
    kind = _kind_of(shuffled, "random.shuffle")
    items = _items(tx, kind, *_draw(tx, owner, in_other_order, name, args, kwargs))
    tx.effects.mutated(shuffled)
    shuffled.items[:] = items
    return constant(None)


def in_other_order(generator: random.Random, items: Sequence[Any]) -> list[Any]:
    """A new list of the items in the order that `generator.shuffle` leaves."""
    made = list(items)
    generator.shuffle(made)
    return made


def _nothing(tx: Translator, owner: RandomGenerator, name: str, args: Args, kwargs: Kwargs) -> Value:
    """The method only changes the generator."""
    _draw(tx, owner, _unbound(name), name, args, kwargs)
    return constant(None)


def _object(tx: Translator, owner: RandomGenerator, name: str, args: Args, kwargs: Kwargs) -> Value:
    source, example = _draw(tx, owner, _unbound(name), name, args, kwargs)
    return RandomObject(example, source)


_METHODS: dict[str, Callable[..., Value]] = {
    **dict.fromkeys((
        "random", "uniform", "triangular", "gauss", "normalvariate", "lognormvariate", "expovariate",
        "vonmisesvariate", "gammavariate", "betavariate", "paretovariate", "weibullvariate",
    ), _gives(float)),
    **dict.fromkeys(("randint", "randrange", "getrandbits"), _gives(int)),
    "choice": _choice, "choices": _several, "sample": _several, "shuffle": _shuffle,
    "seed": _nothing, "setstate": _nothing, "getstate": _object, "randbytes": _object,
}  # fmt: skip
"""By name: `method(tx, generator, name, args, kwargs)`."""


def _method(name: str) -> None:
    @handles(getattr(random.Random, name))
    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        if not args or not isinstance(args[0], RandomGenerator):
            raise Unsupported(Reason.PYTHON_RANDOM, random, name)
        return args[0].call_method(tx, name, args[1:], kwargs)


for _name in _METHODS:
    _method(_name)
