"""The protocol of the values that a traced frame works with.

A `Value` stands for one Python object while the frame is interpreted: a constant, a list, a module, a tensor that is a
node of the graph. Operations on it either give another Value or raise `Unsupported`, which becomes a graph break; they
never guess. `tx` is the running `interpreter.Interpreter`; through it values reach the graph (`tx.graph`), guards
(`tx.guards`), and side effects (`tx.effects`).
"""
from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

from ..sources import Source
from ..wording import in_words

if TYPE_CHECKING:
    from ..codegen import Codegen
    from ..interpreter import Interpreter


class Unsupported(Exception):
    """The tracer cannot follow: becomes a graph break. `code` names an entry of `breaks.BREAKS`."""

    def __init__(self, code: str, detail: str = "", **context: Any) -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code
        self.detail = detail
        self.context = context


class ObservedException(Exception):
    """The traced program raised an exception that it may catch itself; `value` is the exception's Value."""

    def __init__(self, value: Value) -> None:
        super().__init__(value)
        self.value = value
        self.context: dict[str, Any] = {}  # where it was raised, as in Unsupported


SERIALS = itertools.count()
"""Values are numbered in the order in which they are made."""


class Value:
    """One object of the traced program. `source` says where to load it from, None for what the trace created.

    Identity: two Values are the same object exactly when they are the same Python object here (sources that are equal
    are mapped to one Value by `build.py`), so `is` in the program is `is` here.
    """

    __slots__ = ("serial", "source")

    identified = True
    """Whether two of these that are not one Value are two objects."""

    resumable = False
    """For context managers: `reconstruct` pushes a fresh one equal to this, so a break inside its block is possible."""

    handles_exceptions = True
    """For context managers: whether `__exit__` may swallow one, or do something else about it."""

    def __init__(self, source: Source | None = None) -> None:
        self.source = source
        self.serial = next(SERIALS)

    def python_type(self) -> type:
        """The type the program would see."""
        raise Unsupported("unknown-type", type(self).__name__)

    def is_constant(self) -> bool:
        """Whether `as_constant` gives the object itself."""
        return False

    def as_constant(self) -> Any:
        """The Python object itself: numbers, strings, None, dtypes, tuples of such, ..."""
        raise Unsupported("not-a-constant", self.describe())

    def as_proxy(self) -> Any:
        """What stands for this value in an argument list of an FX node: a Proxy, a constant, a tree of them."""
        return self.as_constant()

    def truth(self, tx: Interpreter) -> bool:
        """bool(value), where it does not depend on a tensor's data."""
        return bool(self.as_constant())

    def iterate(self, tx: Interpreter) -> Sequence[Value]:
        """All items of iter(value); for what is finite and has no side effect when iterated."""
        raise Unsupported("iterate", self.describe())

    def next(self, tx: Interpreter) -> Value | None:
        """next(value) of an iterator; None when it is exhausted."""
        raise Unsupported("iterate", self.describe())

    def hint(self, tx: Interpreter) -> None:
        """What the program sees of `operator.length_hint(value)`, which list, tuple and `*` ask for."""

    def iter(self, tx: Interpreter) -> Value:
        """iter(value)."""
        raise Unsupported("iterate", self.describe())

    def binary(self, tx: Interpreter, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """function(left, right) for a binary function of the `operator` module, one of whose operands this is.

        None where this operand's type does not know the other: Python's NotImplemented.
        """
        return None

    def unary(self, tx: Interpreter, function: Callable[..., Any]) -> Value:
        """function(value) for a unary function of the `operator` module."""
        raise Unsupported("operator", f"{function.__name__} to {self.describe()}")

    def contains(self, tx: Interpreter, item: Value) -> bool:
        """`item in value`."""
        raise Unsupported("operator", f"`in` to {self.describe()}")

    def length(self, tx: Interpreter) -> Value:
        """len(value)."""
        raise Unsupported("call", f"len() of {self.describe()}")

    def is_hashable(self) -> bool:
        """Whether hash(value) is no TypeError."""
        return self.python_type().__hash__ is not None

    def without_hash(self) -> type:
        """The type that the TypeError of hash(value) names."""
        return self.python_type()

    def key(self) -> Any:
        """What stands for this object as a key of a dict or item of a set: the constant itself, or this value. Raises
        Unsupported where others may equal it."""
        if self.is_constant():
            return self.as_constant()
        if self.python_type().__hash__ is not object.__hash__:
            raise Unsupported("call", f"hash() of {self.describe()}")
        return self

    def call(self, tx: Interpreter, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """value(*args, **kwargs)."""
        raise Unsupported("call", self.describe())

    def call_method(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """value.name(*args, **kwargs); by default the call of the attribute."""
        return self.getattr(tx, name).call(tx, args, kwargs)

    def getattr(self, tx: Interpreter, name: str) -> Value:
        """value.name; raises ObservedException(AttributeError) as the program would see it."""
        raise Unsupported("attribute", f"{self.describe()}.{name}")

    def setattr(self, tx: Interpreter, name: str, value: Value) -> None:
        """value.name = value, kept as a side effect until the graph has run."""
        raise Unsupported("set-attribute", f"{self.describe()}.{name}")

    def getitem(self, tx: Interpreter, key: Value) -> Value:
        """value[key]."""
        raise Unsupported("subscript", self.describe())

    def setitem(self, tx: Interpreter, key: Value, value: Value) -> None:
        """value[key] = value."""
        raise Unsupported("set-item", self.describe())

    def delitem(self, tx: Interpreter, key: Value) -> None:
        """del value[key]."""
        raise Unsupported("del", f"an item of {self.describe()}")

    def delattr(self, tx: Interpreter, name: str) -> None:
        """del value.name."""
        raise Unsupported("del", f"{self.describe()}.{name}")

    def base_method(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """The method of a builtin base class, past any override."""
        raise Unsupported("call", f"{name} of {self.describe()}")

    def additions(self) -> Value | None:
        """For a container that exists: what was put into it, where nothing else of it changed and it was not read."""
        return None

    def removals(self) -> Sequence[Value] | None:
        """For a dict that exists: the keys that were removed, where nothing else of it changed."""
        return None

    def reconstruct(self, codegen: Codegen) -> None:
        """Emit bytecode that pushes this object; only called for values without a source to load from."""
        raise Unsupported("reconstruct", self.describe())

    def create(self, codegen: Codegen, cls: type) -> None:
        """Emit bytecode that pushes a new object, still empty, for one that the trace made: an instance of `cls`."""
        codegen.push_function(builtin_new(cls))
        codegen.const(cls)
        codegen.call(1)

    def describe(self) -> str:
        """A few words for messages to the user: "a list of 3", "the module `self.layers`"."""
        where = f" `{in_words(self.source)}`" if self.source is not None else ""
        kind = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(self).__name__.strip("_").removesuffix("Value")).lower()
        return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}{where}"

    def __repr__(self) -> str:
        return f"<{self.describe()}>"


def builtin_new(cls: type) -> Any:
    """The `__new__` that makes an instance in memory: past those that classes written in Python define."""
    found = (base.__dict__.get("__new__") for base in cls.__mro__)
    return next(new for new in found if isinstance(new, BuiltinFunctionType))


def each(tx: Interpreter, value: Value, hint: bool = False) -> Iterator[Value]:
    """The items of iter(value), each when it is asked for: what runs between two of them sees what the first did.
    With `hint`, Python asks how many they may be."""
    own = type(value)
    if own.iter is Value.iter and own.next is Value.next:
        yield from value.iterate(tx)
        return
    iterator = value.iter(tx) if own.iter is not Value.iter else value
    if hint:
        value.hint(tx)
    while (item := iterator.next(tx)) is not None:
        tx.trace.spend()
        yield item


def collected(tx: Interpreter, value: Value) -> list[Value]:
    """The items of list(value)."""
    return list(value.iterate(tx) if type(value).hint is Value.hint else each(tx, value, hint=True))


def with_arguments(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """function(*args, **kwargs). Raises Unsupported where these do not fit its parameters: eager raises TypeError."""
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            raise Unsupported("raises", f"TypeError: {error}") from error
        raise


class Null(Value):
    """The NULL that CPython pushes below a callable; never an object of the program."""

    __slots__ = ()

    def describe(self) -> str:
        """For messages."""
        return "NULL"


NULL = Null()
