"""What sequences have in common, and tuples, including named tuples and torch.Size."""
from __future__ import annotations

import itertools
import operator
from collections import deque, namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.display_names import display_name
from ...sources.source import AttrSource, ItemSource, Source
from ..core.attributes import MISSING, bind, is_python_method, lookup, method_of, type_source
from ..core.base import Value
from ..core.constant import BoundBuiltin, attribute_of_builtin, constant
from ..core.late import late
from ..core.operators import REFLECTED, UNARY, apply, equal, operator_method
from ..core.registry import FRESH, build, builds, from_python
from ..python.operand_errors import call_method_with
from .slices import as_index, position, sliced

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator


class SequenceValue(Value):
    """A sequence whose items are known. `kind` is its exact type."""

    __slots__ = ("items", "kind")

    def __init__(self, items: Sequence[Value], kind: type, source: Source | None = None) -> None:
        super().__init__(source)
        self.items: list[Value] = list(items)
        self.kind = kind

    def python_type(self) -> type:
        """The exact type."""
        return self.kind

    def as_proxy(self) -> Any:
        """The items, in a list or a tuple."""
        items = [item.as_proxy() for item in self.items]
        return items if issubclass(self.kind, (list, deque)) else tuple(items)

    def truth(self, tx: Translator) -> bool:
        """Whether there are items."""
        return bool(self.items)

    def iterate(self, tx: Translator) -> Sequence[Value]:
        """The items."""
        return list(self.items)

    def iter(self, tx: Translator) -> Value:
        """An iterator that sees later changes of a list."""
        return late.sequence_iterator(self, 1)

    def reversed(self, tx: Translator) -> Value:
        """An iterator from the end, that also sees later changes."""
        return late.sequence_iterator(self, -1)

    def length(self, tx: Translator) -> Value:
        """The number of items."""
        return constant(len(self.items))

    def contains(self, tx: Translator, item: Value) -> bool:
        """Whether an item is or equals `item`."""
        return any(equal(tx, own, item) for own in self.items)

    def like(self, items: Sequence[Value]) -> Value:
        """A new sequence of the builtin type that slices and sums of this one have."""
        raise NotImplementedError

    def getitem(self, tx: Translator, key: Value) -> Value:
        """One item, or a new sequence for a slice."""
        where = position(tx, key, f"{self.kind.__name__} indices must be integers or slices")
        if isinstance(where, slice):
            items = sliced(tx, self.items, where)
            return self._again(items) if where.step in (None, 1) else self.like(items)
        if not -len(self.items) <= where < len(self.items):
            tx.raise_observed(IndexError, f"{self.kind.__name__} index out of range")
        return self.items[where]

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """Concatenation, repetition and comparison."""
        if function in (operator.add, operator.iadd):
            if isinstance(left, SequenceValue) and isinstance(right, SequenceValue) and left.base is right.base:
                return right if right.kind is tuple and not left.items else left._again(left.items + right.items)
        elif function in (operator.mul, operator.imul):
            number = right if left is self else left
            if issubclass(number.python_type(), int):
                times = as_index(tx, number)
                tx.trace.spend(max(0, len(self.items) * times))
                return self._again(self.items * times)
        elif function in _COMPARISONS and isinstance(left, SequenceValue) and isinstance(right, SequenceValue):
            return self._compare(tx, function, left, right) if left.base is right.base else None
        return None

    def _again(self, items: list[Value]) -> Value:
        """A new sequence of these items; a tuple that would be equal to this one is this one."""
        return self if self.kind is tuple and len(items) == len(self.items) else self.like(items)

    @property
    def base(self) -> type:
        """The builtin type: list, tuple or deque."""
        return next(kind for kind in (list, tuple, deque) if issubclass(self.kind, kind))

    def _compare(self, tx: Translator, function: Any, left: SequenceValue, right: SequenceValue) -> Value:
        by_length = self.base is not tuple and function in (operator.eq, operator.ne)
        if by_length and len(left.items) != len(right.items):  # no item of a list or deque is compared for it
            return constant(function is operator.ne)
        i = 0
        while i < min(len(left.items), len(right.items)):  # an `__eq__` may change them
            a, b = left.items[i], right.items[i]
            try:
                is_equal = equal(tx, a, b)
            except Unsupported:
                rest = list(zip(left.items, right.items))[i + 1 :]
                plain = all(item.is_constant() for pair in rest for item in pair)  # comparing them is not observable
                if function is not operator.eq or len(left.items) != len(right.items) or not plain:
                    raise
                return self._equal_by_data(tx, a, b, rest)
            if i >= min(len(left.items), len(right.items)):
                break
            i += 1
            if not is_equal:
                if function in (operator.eq, operator.ne):
                    return constant(function is operator.ne)
                return apply(tx, function, a, b)
        return constant(function(len(left.items), len(right.items)))

    def _equal_by_data(self, tx: Translator, a: Value, b: Value, rest: Sequence[tuple[Value, Value]]) -> Value:
        """Whether two lists are equal where comparing `a` and `b` is data-dependent, and `rest` comes after them."""
        answer = apply(tx, operator.eq, a, b)
        if getattr(answer, "fake", None) is not None and answer.fake.numel() != 1:  # type: ignore[attr-defined]
            raise Unsupported(Reason.OPERATOR_ERROR, detail="bool() of a tensor of many values")
        if not all(equal(tx, *pair) for pair in rest):
            return constant(False)
        return answer.call_method(tx, "item", [], {}) if issubclass(answer.python_type(), torch.Tensor) else answer

    def getattr(self, tx: Translator, name: str) -> Value:
        """Methods."""
        found = attribute_of_builtin(tx, self, self.kind, name)
        if found is not None:
            return found
        return tx.raise_observed(AttributeError, f"'{self.kind.__name__}' object has no attribute '{name}'")

    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """A method from the table."""
        if not hasattr(self.base, name):
            tx.raise_observed(AttributeError, f"'{self.kind.__name__}' object has no attribute '{name}'")
        method = _METHODS.get(name)
        if method is not None:
            result: Value = call_method_with(method, name, tx, self, args, kwargs)
            return result
        return operator_method(tx, self, name, args)

    def describe(self) -> str:
        """The type and the number of items."""
        where = f" `{display_name(self.source)}`" if self.source is not None else ""
        return f"a {self.kind.__name__} of {len(self.items)}{where}"


_COMPARISONS = frozenset((operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge))


class TupleValue(SequenceValue):
    """A tuple, torch.Size, or named tuple. `hashed` is its key (see `keys.py`) where its class defines `__hash__`."""

    __slots__ = ("hashed",)

    def is_constant(self) -> bool:
        """When all items are constants."""
        return all(item.is_constant() for item in self.items)

    def as_constant(self) -> Any:
        """The tuple."""
        return make_instance(self.kind, [item.as_constant() for item in self.items])

    def as_proxy(self) -> Any:
        """A tuple of the same type."""
        return make_instance(tuple if self.kind is torch.Size else self.kind, [item.as_proxy() for item in self.items])

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """As the class of a named tuple defines it; else as tuples."""
        names = REFLECTED.get(function) if self.kind not in (tuple, torch.Size) else None
        for name, owner, other in zip(names or (), (left, right), (right, left)):
            found = lookup(owner.kind, name) if isinstance(owner, TupleValue) else MISSING
            if is_python_method(found):
                answer = method_of(tx, owner.python_type(), name, found).call(tx, [owner, other], {})
                if not (answer.is_constant() and answer.as_constant() is NotImplemented):
                    return answer
        return super().binary(tx, function, left, right)

    def has_user_hash(self, tx: Translator) -> bool:
        """Where the class of a named tuple defines `__hash__`."""
        return self._has_user_lookup()

    def _has_user_lookup(self) -> bool:
        return self.kind is not tuple and any(is_python_method(lookup(self.kind, n)) for n in ("__hash__", "__eq__"))

    def key(self) -> Any:
        """Tuples are equal when their items are."""
        if self._has_user_lookup():
            found = getattr(self, "hashed", None)
            if found is None:
                raise Unsupported(Reason.UNSUPPORTED_BUILTIN, hash, given=(self,))
            return found
        return tuple([item.key() for item in self.items])

    def is_hashable(self) -> bool:
        """Whether all items are."""
        if is_python_method(lookup(self.kind, "__hash__")):
            return True
        return self.kind.__hash__ is not None and all(item.is_hashable() for item in self.items)

    def without_hash(self) -> type:
        """The type of the first unhashable item."""
        if self.kind.__hash__ is None:
            return self.kind
        return next(item.without_hash() for item in self.items if not item.is_hashable())

    def like(self, items: Sequence[Value]) -> Value:
        """A tuple; slices of a torch.Size are sizes."""
        return TupleValue(items, torch.Size if self.kind is torch.Size else tuple)

    def create(self, codegen: Codegen, cls: type) -> None:
        """An instance of a subclass, which has attributes: its items are there from the start."""
        codegen.push_function(tuple.__new__)
        codegen.const(cls)
        for item in self.items:
            codegen(item)
        codegen.build("BUILD_TUPLE", len(self.items))
        codegen.call(2)

    def setattr(self, tx: Translator, name: str, value: Value) -> None:
        """An attribute of a named tuple whose class has a `__dict__`."""
        plain = self.kind.__dictoffset__ and self.kind.__setattr__ is object.__setattr__
        if not plain or self.source is not None or lookup(self.kind, name) is not MISSING:
            super().setattr(tx, name, value)
        if not tx.effects.is_new(self):
            tx.effects.track_new(self, self.kind)
        tx.effects.store_attr(self, name, value)

    def getattr(self, tx: Translator, name: str) -> Value:
        """Fields of named tuples; methods."""
        stored = tx.effects.load_attr(self, name)
        if stored is not None:
            return stored
        fields = field_names(self.kind)
        if name in fields:
            return self.items[fields.index(name)]
        if self.kind not in (tuple, torch.Size) and name != "__class__":
            if name == "_fields":
                return from_python(tx, tuple(fields))
            if name not in tuple.__dict__ and name not in object.__dict__ and name not in _NAMED_METHODS:
                return self._class_attribute(tx, name)
        if self.kind is torch.Size and name == "numel":
            return BoundBuiltin(self, name)
        return super().getattr(tx, name)

    def _class_attribute(self, tx: Translator, name: str) -> Value:
        """What a subclass of a named tuple defines, bound as to any instance."""
        found = lookup(self.kind, name)
        if found is MISSING:
            tx.raise_observed(AttributeError, f"'{self.kind.__name__}' object has no attribute '{name}'")
        return bind(tx, found, name, self, self.kind, type_source(self))

    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Methods of tuples, and _replace and _asdict of named ones."""
        if name == "numel" and self.kind is torch.Size:
            result: Value = constant(1)
            for item in self.items:
                result = apply(tx, operator.mul, result, item)
            return result
        fields = field_names(self.kind)
        if fields and name == "_replace":
            if not kwargs.keys() <= set(fields) or not hasattr(self.kind, name):
                raise Unsupported(Reason.UNSUPPORTED_METHOD, self, "_replace")
            return TupleValue([kwargs.get(f, item) for f, item in zip(fields, self.items)], self.kind)
        if fields and name == "_asdict":
            return FRESH[dict](tx, {}).updated(zip(fields, self.items))  # type: ignore[attr-defined]
        if self.kind not in (tuple, torch.Size) and name not in tuple.__dict__:
            return self.getattr(tx, name).call(tx, args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    def reconstruct(self, codegen: Codegen) -> None:
        """Push the items, then the tuple."""
        if self.kind is not tuple:
            codegen.push_null()
            codegen.const(self.kind if hasattr(self.kind, "n_fields") or self.kind is torch.Size else self.kind._make)  # type: ignore[attr-defined]
        for item in self.items:
            codegen(item)
        codegen.build("BUILD_TUPLE", len(self.items))
        if self.kind is not tuple:
            codegen.call(1)


_NAMED_METHODS = ("_replace", "_asdict")


def field_names(kind: type) -> tuple[str, ...]:
    """The fields of a named tuple type or of one of torch.return_types, in order."""
    named = getattr(kind, "_fields", None)
    if named is not None:
        return tuple(named)
    if hasattr(kind, "n_sequence_fields"):
        return tuple(kind.__match_args__)  # type: ignore[attr-defined]
    return ()


def is_plain(kind: type) -> bool:
    """Whether a named tuple behaves as a plain tuple: no user-defined class replaces a method of tuple or a field."""
    if not hasattr(kind, "_fields"):
        return True
    if any(type(lookup(kind, name)) is not FIELD for name in field_names(kind)):
        return False
    methods = (lookup(kind, name) for name in _OF_TUPLES)
    return not any(is_python_method(found) and found.__module__ != namedtuple.__module__ for found in methods)


FIELD = type(namedtuple("Pair", "first second").first)  # type: ignore[attr-defined]
_OF_TUPLES = frozenset((
    *vars(tuple), *itertools.chain.from_iterable(REFLECTED.values()), *UNARY.values(), "__bool__", "__call__",
    "__str__", "__setattr__", "__delattr__", "__getattr__", "_asdict", "_replace",
)) - {"__new__", "__repr__", "__getnewargs__", "__class_getitem__"}  # fmt: skip
"""The methods that TupleValue inherits from tuples."""


def make_instance(kind: type, items: list[Any]) -> Any:
    """A tuple of type `kind`."""
    if kind is tuple:
        return tuple(items)
    return kind._make(items) if hasattr(kind, "_fields") else kind(items)  # type: ignore[attr-defined]


# ---- methods -------------------------------------------------------------------------------------------------------
def _index(tx: Translator, self: SequenceValue, item: Value, *bounds: Value) -> Value:
    first, last = ([as_index(tx, bound) for bound in bounds] + [0, len(self.items)][len(bounds) :])[:2]
    for i in range(len(self.items))[first:last]:
        if i >= len(self.items):  # an `__eq__` has made it shorter
            break
        if equal(tx, self.items[i], item):
            return constant(i)
    if self.base is tuple:
        tx.raise_observed(ValueError, "tuple.index(x): x not in tuple")
    return tx.raise_observed(ValueError, f"{item.as_constant()!r} is not in {self.base.__name__}")


def _count(tx: Translator, self: SequenceValue, item: Value) -> Value:
    return constant(sum(equal(tx, own, item) for own in self.items))


def _copy(tx: Translator, self: SequenceValue) -> Value:
    return self.like(self.items)


_METHODS: dict[str, Callable[..., Value]] = {
    "index": _index,
    "count": _count,
    "copy": _copy,
    "__copy__": _copy,
    "__len__": lambda tx, self: self.length(tx),
    "__iter__": lambda tx, self: self.iter(tx),
    "__getitem__": lambda tx, self, key: self.getitem(tx, key),
    "__contains__": lambda tx, self, item: constant(self.contains(tx, item)),
    "__reversed__": lambda tx, self: self.reversed(tx),
    "__add__": lambda tx, self, other: apply(tx, operator.add, self, other),
}


# ---- real sequences ------------------------------------------------------------------------------------------------
def read_items(tx: Translator, obj: Sequence[Any], source: Source) -> list[Value]:
    """The items of a real sequence; its type and length are guarded."""
    tx.guards.add(source, "TYPE_MATCH", type(obj))
    tx.guards.add(source, "LENGTH", len(obj))
    tx.trace.spend(len(obj))
    return [build(tx, item, ItemSource(source, i)) for i, item in enumerate(obj)]


@builds(tuple, torch.Size)
def build_tuple(tx: Translator, obj: tuple[Any, ...], source: Source | None) -> Value:
    """A tuple, named tuple or torch.Size."""
    kind = type(obj)
    if kind not in (tuple, torch.Size) and (not field_names(kind) or not is_plain(kind) or _has_attributes(obj)):
        return late.build_object(tx, obj, source)
    if kind.__dictoffset__ and source is not None:
        tx.guards.add(AttrSource(source, "__dict__"), "LENGTH", 0)
    computed = any(getattr(kind, name) is not getattr(tuple, name) for name in ("__iter__", "__len__", "__getitem__"))
    if computed and kind is not torch.Size:
        raise Unsupported(Reason.UNKNOWN_TYPE, kind)  # its class computes an item when it is read
    if source is None:
        return TupleValue([from_python(tx, item) for item in obj], kind)
    return TupleValue(read_items(tx, obj, source), kind, source)


def _has_attributes(obj: tuple[Any, ...]) -> bool:
    return type(obj).__dictoffset__ != 0 and bool(object.__getattribute__(obj, "__dict__"))


def make_tuple(tx: Translator, items: Sequence[Value]) -> Value:
    """A tuple made in the trace."""
    return TupleValue(items, tuple)


FRESH[tuple] = FRESH[torch.Size] = lambda tx, obj: build_tuple(tx, obj, None)
