"""Constants: immutable objects whose value is part of the trace, and what is computed from them alone."""
from __future__ import annotations

import enum
import operator
import typing
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from types import (
    BuiltinMethodType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

import numpy as np

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.source import Source
from .base import Value
from .late import late

if TYPE_CHECKING:
    from .base import Codegen, Translator


def of_64_bits(value: Any) -> Any:
    """`value`. Unsupported for an int of more than 64 bits, which operators refuse, or accept depending on the
    dtype."""
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise Unsupported(Reason.OPERATOR, detail="an operator to an integer of more than 64 bits")
    return value


class ConstantValue(Value):
    """An immutable object: a number, a string, None, a dtype, an enum member, ..."""

    __slots__ = ("value",)

    def __init__(self, value: Any, source: Source | None = None) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        """The type of the object."""
        return type(self.value)

    def is_constant(self) -> bool:
        """Always."""
        return True

    def as_constant(self) -> Any:
        """The object."""
        return self.value

    def as_proxy(self) -> Any:
        """The object."""
        return of_64_bits(self.value)

    def truth(self, tx: Translator) -> bool:
        """bool(object)."""
        if isinstance(self.value, enum.Enum):
            return bool(late.truth_of_member(tx, self))
        return bool(self.value)

    def iterate(self, tx: Translator) -> Sequence[Value]:
        """The items of a string, a range, a mapping proxy, ..."""
        if type(self.value) is range and (count := _length(self.value)) > MOST_LISTED:
            tx.trace.spend(count)
        try:
            items = list(self.value)
        except TypeError as error:
            tx.raise_observed(TypeError, *error.args)
        return [fold_result(tx, item) for item in items]

    def iter(self, tx: Translator) -> Value:
        """An iterator over the items."""
        return SnapshotIterator(self.iterate(tx), iter, self.value)

    def contains(self, tx: Translator, item: Value) -> bool:
        """`item in object`; an item that is not a constant is in a constant only by identity."""
        if not hasattr(self.value, "__contains__"):
            return super().contains(tx, item)
        if type(self.value) is range and not item.is_constant() and item.python_type() is int:
            return _in_range(tx, item, self.value)
        return bool(fold(tx, self.value.__contains__, [item]).as_constant())

    def length(self, tx: Translator) -> Value:
        """len(object)."""
        return fold(tx, len, [self])

    def getattr(self, tx: Translator, name: str) -> Value:
        """An attribute of the object; methods are bound to this value."""
        if isinstance(self.value, enum.Enum):
            told: Value | None = late.attribute_of_member(tx, self, name)
            if told is not None:
                return told
        try:
            found = getattr(self.value, name)
        except AttributeError as error:
            tx.raise_observed(AttributeError, *error.args)
        if isinstance(found, MethodType):
            return late.python_method(tx, self, found)
        if isinstance(found, FunctionType):  # the documentation of a property
            return late.existing(tx, found)
        if callable(found) and not isinstance(found, type):
            return BoundBuiltin(self, name)
        if isinstance(self.value, enum.Enum):
            return late.existing(tx, found)
        if _may_change(found):  # the default of a parameter
            raise Unsupported(Reason.ATTRIBUTE, self, name, detail=", which may change")
        return fold_result(tx, found)

    def call(self, tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`dict[str, int](...)` makes a dict; other constants are not called."""
        if not isinstance(self.value, (GenericAlias, _ALIAS)):
            return super().call(tx, args, kwargs)
        origin: Any = self.value.__origin__  # type: ignore[union-attr]
        made: Value = late.from_python(tx, origin).call(tx, args, kwargs)
        if made.python_type().__dictoffset__:
            made.setattr(tx, "__orig_class__", self)
        return made

    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """A method of the object, called for real when all arguments are constants."""
        method = getattr(type(self.value), name, None)
        if method is None or getattr(method, "__code__", None) is not None:
            return self.getattr(tx, name).call(tx, args, kwargs)
        if method is str.format and not all(arg.is_constant() for arg in (*args, *kwargs.values())):
            return late.format_string(tx, self.value, args, kwargs)
        if not all(arg.is_constant() for arg in args):
            args = [_materialized(tx, arg) for arg in args]
        if method is None and not hasattr(self.value, name):
            return self.getattr(tx, name)
        return fold(tx, getattr(self.value, name), args, kwargs)

    def getitem(self, tx: Translator, key: Value) -> Value:
        """object[key]."""
        return fold(tx, _getitem, [self, key])

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """`%` of a string; operators of constants are folded."""
        if function is operator.mod and left is self and type(self.value) is str and not right.is_constant():
            return late.format_percent(tx, self.value, right)
        return None

    def unary(self, tx: Translator, function: Callable[..., Any]) -> Value:
        """function(object)."""
        return fold(tx, function, [self])

    def reconstruct(self, codegen: Codegen) -> None:
        """Push the object itself."""
        codegen.const(self.value)

    def describe(self) -> str:
        """The object's repr, shortened."""
        text = repr(self.value)
        return text if len(text) < 60 else text[:57] + "..."


class BoundBuiltin(Value):
    """A method of a value that is not a Python function: `[].append`, `x.view`. Calling it calls the method."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: Value, name: str, source: Source | None = None) -> None:
        super().__init__(source)
        self.owner = owner
        self.name = name

    def python_type(self) -> type:
        """The type of builtin methods; of special ones (`[].__len__`), and of those that torch has in Python."""
        return _METHODS.get(type(_of_type(self.owner.python_type(), self.name)), BuiltinMethodType)

    def truth(self, tx: Translator) -> bool:
        """Methods are true."""
        return True

    def call(self, tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """The call of the method."""
        return self.owner.call_method(tx, self.name, args, kwargs)

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """Methods are equal when their names are and their owners are one object."""
        if function.__name__ not in ("eq", "ne") or not isinstance(left, BoundBuiltin):
            return None
        if not isinstance(right, BoundBuiltin):
            return None
        first, second = left.owner, right.owner
        if first is not second and first.is_constant() and second.is_constant():
            raise Unsupported(
                Reason.OPERATOR, detail=f"{function.__name__} to {left.describe()}: its owner may be the other's"
            )
        same = left.name == right.name and first is second
        return constant(same == (function.__name__ == "eq"))

    def getattr(self, tx: Translator, name: str) -> Value:
        """`__name__` and `__self__`."""
        if name == "__name__":
            return constant(self.name)
        if name == "__self__":
            return self.owner
        return super().getattr(tx, name)

    def reconstruct(self, codegen: Codegen) -> None:
        """Push the owner and read the method from it."""
        codegen(self.owner)
        codegen.load_attr(self.name)

    def describe(self) -> str:
        """For messages."""
        return f"the method {self.name} of {self.owner.describe()}"


_METHODS = {WrapperDescriptorType: MethodWrapperType, FunctionType: MethodType}
"""By the type of the class attribute: the type of the method that is read from an object."""

_MISSING = object()


def _of_type(kind: type, name: str) -> Any:
    """What a class or one of its bases defines under a name, unbound, ignoring its metaclass."""
    return next((base.__dict__[name] for base in kind.__mro__ if name in base.__dict__), _MISSING)


def attribute_of_builtin(tx: Translator, owner: Value, kind: type, name: str) -> Value | None:
    """An attribute that an object has from its builtin class `kind`; None where there is none."""
    if name == "__class__":
        return fold_result(tx, kind)
    found = _of_type(kind, name)
    if found is _MISSING:
        return None
    if found is None or isinstance(found, str):  # `__hash__` of unhashable types, `__doc__`
        return constant(found)
    if isinstance(found, (GetSetDescriptorType, MemberDescriptorType)):
        raise Unsupported(Reason.ATTRIBUTE, owner, name)
    return BoundBuiltin(owner, name)


class OneByOneIterator(Value):
    """An iterator whose class has `next(tx)`: the next item, None at the end."""

    __slots__ = ()

    def iter(self, tx: Translator) -> Value:
        """Itself."""
        return self

    def iterate(self, tx: Translator) -> Sequence[Value]:
        """The remaining items."""
        rest = []
        while (item := self.next(tx)) is not None:
            tx.trace.spend()
            rest.append(item)
        return rest

    def truth(self, tx: Translator) -> bool:
        """Iterators are true."""
        return True

    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`__next__` and `__iter__`."""
        if name == "__next__":
            item = self.next(tx)
            if item is None:
                tx.raise_observed(StopIteration)
            return item
        return self if name == "__iter__" else super().call_method(tx, name, args, kwargs)

    def getattr(self, tx: Translator, name: str) -> Value:
        """Its methods."""
        found = attribute_of_builtin(tx, self, self.python_type(), name)
        if found is not None:
            return found
        return tx.raise_observed(AttributeError, f"'{self.python_type().__name__}' object has no attribute '{name}'")


class SnapshotIterator(OneByOneIterator):
    """An iterator over known items: those of an immutable sequence, or of a snapshot. `made_by` and `of` are the
    function and the constant that make it, where the constant is not a tuple; `kind` is the type that traced code
    sees."""

    __slots__ = ("index", "items", "kind", "made_by", "of")

    def __init__(
        self, items: Sequence[Value], made_by: Callable[[Any], Any] | None = None, of: Any = None,
        kind: type | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.items = items
        self.index = 0
        self.made_by = made_by
        self.of = of
        self.kind = kind or (type(made_by(of)) if made_by is not None else _TUPLE_ITERATOR)

    def python_type(self) -> type:
        """The type of the iterator."""
        return self.kind

    def next(self, tx: Translator) -> Value | None:
        """The next item; None at the end."""
        if self.index >= len(self.items):
            return None
        self.index += 1
        return self.items[self.index - 1]

    def iterate(self, tx: Translator) -> Sequence[Value]:
        """The remaining items."""
        rest = self.items[self.index :]
        self.index = len(self.items)
        return rest

    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Also reports how many items are left."""
        if name == "__length_hint__":
            return constant(len(self.items) - self.index)
        return super().call_method(tx, name, args, kwargs)

    def reconstruct(self, codegen: Codegen) -> None:
        """An iterator over a tuple of the remaining items, or the original call."""
        if self.made_by is not None:
            codegen.push_function(begun)
            for part in (self.made_by, self.of, self.index):
                codegen.const(part)
            codegen.call(3)
            return
        if self.kind is not _TUPLE_ITERATOR:
            raise Unsupported(Reason.RECONSTRUCT, detail=f"a {self.kind.__name__}")
        rest = self.items[self.index :]
        codegen.push_null()
        codegen.const(iter)
        for item in rest:
            codegen(item)
        codegen.build("BUILD_TUPLE", len(rest))
        codegen.call(1)


_ALIAS = type(typing.List[int])  # noqa: UP006
"""The type of `Module[T]`, where the class is generic."""
_TUPLE_ITERATOR = type(iter(()))


def begun(made_by: Callable[[Any], Any], of: Any, index: int) -> Any:
    """An iterator that has already returned `index` items."""
    iterator = made_by(of)
    for _ in range(index):
        next(iterator)
    return iterator


def _may_change(found: Any) -> bool:
    if isinstance(found, tuple):
        return any(map(_may_change, found))
    return isinstance(found, (list, dict, set, bytearray, deque))


def constant(value: Any) -> ConstantValue:
    """The Value of an immutable object that the trace made."""
    return ConstantValue(value)


def is_none(value: Value) -> bool:
    """Whether it is known to be None."""
    return value.is_constant() and value.as_constant() is None


def same_kinds(items: Collection[Any]) -> Callable[[Collection[Any]], bool]:
    """A function that says of items that are equal to `items` one by one whether they are also indistinguishable: 1,
    True and 1.0 are equal, and so are 0.0 and -0.0, range(0, 3, 2) and range(0, 4, 2)."""
    kinds = list(map(type, items))
    if _CONTAINING.isdisjoint(kinds):
        return lambda others: list(map(type, others)) == kinds
    exact = list(map(_exact, items))
    return lambda others: list(map(_exact, others)) == exact


MOST_LISTED = 1_000_000  # numbers of a range; a list of more would take seconds, and memory
_CONTAINING = {float, complex, range, slice, tuple, frozenset}


def _exact(item: Any) -> Any:
    kind = type(item)
    if kind is tuple or kind is frozenset:
        return kind, *map(_exact, item)
    return (kind, repr(item)) if kind in _CONTAINING else kind


def _length(numbers: range) -> int:
    """len(numbers), which may be more than `len` can say."""
    return max(0, -((numbers.start - numbers.stop) // numbers.step))


def _in_range(tx: Translator, number: Value, numbers: range) -> bool:
    """Whether a range contains an int that is not known, by comparisons that are guarded."""
    def holds(function: Callable[..., Any], left: Value, right: int) -> bool:
        answer = late.apply_numbers(tx, function, [left, constant(right)])
        return bool(answer.truth(tx))

    if not numbers or not holds(operator.ge, number, min(numbers[0], numbers[-1])):
        return False
    if not holds(operator.le, number, max(numbers[0], numbers[-1])):
        return False
    if abs(numbers.step) == 1:
        return True
    steps = late.apply_numbers(tx, operator.sub, [number, constant(numbers.start)])
    steps = late.apply_numbers(tx, operator.mod, [steps, constant(abs(numbers.step))])
    return holds(operator.eq, steps, 0)


def fold_result(tx: Translator, result: Any) -> Value:
    """The Value of what Python computed from constants."""
    return late.from_python(tx, result)


def fold(
    tx: Translator, function: Callable[..., Any], args: Sequence[Value], kwargs: Mapping[str, Value] | None = None
) -> Value:
    """function(*args, **kwargs) called for real on constants; what it raises is raised in traced code.

    Raises Unsupported when an argument is not a constant, and where NumPy would warn: eager then does.
    """
    real_args = [arg.as_constant() for arg in args]
    real_kwargs = {name: value.as_constant() for name, value in kwargs.items()} if kwargs else {}
    try:
        if any(isinstance(arg, np.generic) for arg in real_args):
            with np.errstate(all="raise"):
                result = function(*real_args, **real_kwargs)
        else:
            result = function(*real_args, **real_kwargs)
    except Exception as error:
        if isinstance(error, FloatingPointError):
            name = getattr(function, "__name__", repr(function))
            raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail=f"{name} of NumPy scalars: {error}") from error
        if type(type(error).__init__) is FunctionType:  # its arguments are not those of its constructor
            raise Unsupported(Reason.RAISES, detail=f"{type(error).__qualname__}: {error}") from error
        tx.raise_observed(type(error), *_plain(error.args))
    if result is NotImplemented:
        raise Unsupported(Reason.OPERATOR, function)
    if hasattr(type(result), "__next__"):  # each call makes a new one
        return SnapshotIterator([fold_result(tx, item) for item in result], kind=type(result))
    return fold_result(tx, result)


def _plain(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(arg if isinstance(arg, (str, bytes, int, float, type(None))) else repr(arg) for arg in args)


def _getitem(container: Any, key: Any) -> Any:
    return container[key]


def _materialized(tx: Translator, value: Value) -> Value:
    """An iterator argument (`", ".join(str(d) for d in shape)`) as a constant tuple."""
    if value.is_constant() or not hasattr(value.python_type(), "__next__"):
        return value
    return constant(tuple(item.as_constant() for item in value.iterate(tx)))
