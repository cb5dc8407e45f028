"""Slice objects, and positions in sequences."""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.source import AttrSource, Source
from ..core.attributes import is_python_method
from ..core.base import Value
from ..core.constant import constant, fold
from ..core.late import late
from ..core.operators import COMPARISONS, apply
from ..core.registry import FRESH, build, builds

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator


class SliceValue(Value):
    """slice(start, stop, step)."""

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[Value], source: Source | None = None) -> None:
        super().__init__(source)
        self.parts = tuple(parts)

    def python_type(self) -> type:
        """slice."""
        return slice

    def is_constant(self) -> bool:
        """When all three parts are constants."""
        return all(part.is_constant() for part in self.parts)

    def as_constant(self) -> slice:
        """The slice."""
        return slice(*[part.as_constant() for part in self.parts])

    def as_proxy(self) -> Any:
        """A slice of what represents the parts."""
        return slice(*[part.as_proxy() for part in self.parts])

    def truth(self, tx: Translator) -> bool:
        """Slices are true."""
        return True

    def getattr(self, tx: Translator, name: str) -> Value:
        """start, stop and step."""
        names = ("start", "stop", "step")
        if name in names:
            return self.parts[names.index(name)]
        return super().getattr(tx, name)

    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`indices` of a known length."""
        if name == "indices":
            return fold(tx, self.as_constant().indices, args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """Compared as the tuple of the parts."""
        if function not in COMPARISONS or not isinstance(left, SliceValue) or not isinstance(right, SliceValue):
            return None
        return apply(tx, function, *[late.make_tuple(tx, side.parts) for side in (left, right)])

    def reconstruct(self, codegen: Codegen) -> None:
        """Push the parts, then the slice."""
        codegen.call_const(slice, self.parts)

    def describe(self) -> str:
        """For messages."""
        return "a slice"


@builds(slice)
def build_slice(tx: Translator, obj: slice, source: Source | None) -> Value:
    """The parts are guarded each."""
    if source is None:
        return fresh_slice(tx, obj)
    tx.guards.add(source, "TYPE_MATCH", slice)
    return SliceValue([build(tx, getattr(obj, n), AttrSource(source, n)) for n in ("start", "stop", "step")], source)


def fresh_slice(tx: Translator, obj: slice) -> Value:
    """A slice of constants."""
    return SliceValue([constant(obj.start), constant(obj.stop), constant(obj.step)])


FRESH[slice] = fresh_slice


def position(tx: Translator, key: Value, message: str = "list indices must be integers or slices") -> int | slice:
    """`key` as an index or slice of a sequence of known items; varying numbers are specialized."""
    if isinstance(key, SliceValue):
        return slice(*[_bound(tx, part) for part in key.parts])
    kind = key.python_type()
    if issubclass(kind, int):
        return int(as_index(tx, key))
    if hasattr(kind, "__index__") and key.is_constant():
        return int(key.as_constant())
    if is_python_method(getattr(kind, "__index__", None)):
        return as_index(tx, key)
    if key.is_constant() or not hasattr(kind, "__index__"):
        tx.raise_observed(TypeError, f"{message}, not {kind.__name__}")
    raise Unsupported(Reason.SUBSCRIPT, given=(key,), detail="as the index of a sequence")


def as_index(tx: Translator, value: Value, message: str = "") -> int:
    """operator.index(value): a number that varies with the shapes is specialized."""
    kind = value.python_type()
    if not hasattr(kind, "__index__"):
        tx.raise_observed(TypeError, message or f"'{kind.__name__}' object cannot be interpreted as an integer")
    if value.is_constant():
        return operator.index(value.as_constant())
    if issubclass(kind, int):
        if not hasattr(value, "specialize"):  # an instance of a user-defined subclass
            raise Unsupported(Reason.NOT_A_CONSTANT, value)
        return int(value.specialize(tx))
    return as_index(tx, checked_index(tx, value.call_method(tx, "__index__", [], {})))


def checked_index(tx: Translator, result: Value) -> Value:
    """The result of an object's `__index__`, which must be an int."""
    kind = result.python_type()
    if not issubclass(kind, int):
        tx.raise_observed(TypeError, f"__index__ returned non-int (type {kind.__name__})")
    return result


def checked_length(tx: Translator, result: Value) -> Value:
    """The result of an object's `__len__`, which must be a non-negative int."""
    if not result.is_constant() and issubclass(result.python_type(), int):
        return result  # a size, which varies
    number = as_index(tx, result)
    if number < 0:
        tx.raise_observed(ValueError, "__len__() should return >= 0")
    return constant(number)


def sliced(tx: Translator, items: list[Value], where: slice) -> list[Value]:
    """items[where]; ValueError in traced code for a step of zero."""
    if where.step == 0:
        tx.raise_observed(ValueError, "slice step cannot be zero")
    return items[where]


def _bound(tx: Translator, part: Value) -> int | None:
    if part.is_constant() and part.as_constant() is None:
        return None
    return as_index(tx, part, "slice indices must be integers or None or have an __index__ method")
