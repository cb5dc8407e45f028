"""Sets and frozen sets: keys as in dicts, in insertion order."""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..sources import Source
from .base import Unsupported, Value, each
from .constant import REGISTRY, BoundBuiltin, ItemsIterator, constant
from .mappings import checked_key
from .registry import FRESH, builds, from_python

if TYPE_CHECKING:
    from ..codegen import Codegen
    from ..interpreter import Interpreter


class SetValue(Value):
    """A set or frozenset: `items` maps keys (see `Value.key`) to Values."""

    __slots__ = ("items", "kind")

    def __init__(self, kind: type = set, source: Source | None = None) -> None:
        super().__init__(source)
        self.kind = kind
        self.items: dict[Any, Value] = {}

    def filled(self, tx: Interpreter, items: Iterable[Value]) -> SetValue:
        """This set with `items` added."""
        for item in items:
            self.items.setdefault(checked_key(tx, item), item)
        return self

    def python_type(self) -> type:
        """set or frozenset."""
        return self.kind

    def is_constant(self) -> bool:
        """For a frozenset of constants."""
        return self.kind is frozenset and all(item.is_constant() for item in self.items.values())

    def as_constant(self) -> Any:
        """The set as it is now."""
        return self.kind(item.as_constant() for item in self.items.values())

    def key(self) -> Any:
        """Frozen sets are equal when their items are."""
        return frozenset(self.items) if self.kind is frozenset else self

    def truth(self, tx: Interpreter) -> bool:
        """Whether there are items."""
        return bool(self.items)

    def length(self, tx: Interpreter) -> Value:
        """The number of items."""
        return constant(len(self.items))

    def contains(self, tx: Interpreter, item: Value) -> bool:
        """Whether `item` is in the set."""
        return checked_key(tx, item) in self.items

    def iterate(self, tx: Interpreter) -> Sequence[Value]:
        """The items, in the order of the real set where Python's order can be known."""
        if len(self.items) > 1:
            if not all(item.is_constant() for item in self.items.values()):
                raise Unsupported("iterate", f"{self.describe()}: its order is not known")
            return [self.items[key] for key in self._python_order()]
        return list(self.items.values())

    def _python_order(self) -> list[Any]:
        """The order in which CPython iterates over a set with this history (insertions only)."""
        return list(self.kind(self.items))

    def iter(self, tx: Interpreter) -> Value:
        """An iterator over the items, which fails when a set changes its size."""
        return SetIterator(self, self.iterate(tx))

    def binary(self, tx: Interpreter, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """Set algebra and comparison."""
        right = REGISTRY["as_set"](tx, right)
        left = REGISTRY["as_set"](tx, left)
        if not (isinstance(left, SetValue) and isinstance(right, SetValue)):
            return None
        if function in _COMPARISONS:
            return constant(function(left.items.keys(), right.items.keys()))
        plain = _IN_PLACE.get(function)
        if plain is not None and left.kind is set:
            tx.effects.mutated(left)
            left.items = _combined(plain, left, right)
            return left
        if function not in _ALGEBRA:
            return None
        result = SetValue(left.kind)
        result.items = _combined(function, left, right)
        return result

    def getattr(self, tx: Interpreter, name: str) -> Value:
        """Methods."""
        if hasattr(self.kind, name):
            return BoundBuiltin(self, name)
        return tx.raise_observed(AttributeError, f"'{self.kind.__name__}' object has no attribute '{name}'")

    def call_method(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """A method from the tables."""
        if name in _BY_OPERATOR:
            result: Value = self
            for arg in args or [SetValue()]:
                if name == "update" and not isinstance(arg, SetValue):
                    tx.effects.mutated(self)
                    self.filled(tx, each(tx, arg))  # one by one: the set may be looked at meanwhile
                    continue
                other = arg if isinstance(arg, SetValue) else SetValue().filled(tx, each(tx, arg))
                result = self.binary(tx, _BY_OPERATOR[name], result, other)  # type: ignore[assignment]
            return result if not name.endswith("update") else constant(None)
        if name in _MUTATING and self.kind is set:
            tx.effects.mutated(self)
            return _MUTATING[name](tx, self, *args) or constant(None)
        method = _METHODS.get(name)
        if method is None:
            raise Unsupported("call", f"{self.describe()}.{name}")
        return method(tx, self, *args)

    def reconstruct(self, codegen: Codegen) -> None:
        """Push the items, then a set of them."""
        frozen = self.kind is frozenset
        if frozen:
            codegen.push_null()
            codegen.const(frozenset)
        for item in self.items.values():
            codegen(item)
        codegen.build("BUILD_SET", len(self.items))
        if frozen:
            codegen.call(1)

    def describe(self) -> str:
        """The type and the number of items."""
        return f"a {self.kind.__name__} of {len(self.items)}"


class SetIterator(ItemsIterator):
    """iter() of a set, in the order that it had at the start."""

    __slots__ = ("owner",)

    def __init__(self, owner: SetValue, items: Sequence[Value]) -> None:
        super().__init__(items)
        self.owner = owner

    def python_type(self) -> type:
        """set_iterator."""
        return type(iter(set()))

    def next(self, tx: Interpreter) -> Value | None:
        """The next item; None at the end, for good."""
        if self.index <= len(self.items) != len(self.owner.items):
            tx.raise_observed(RuntimeError, "Set changed size during iteration")
        item = super().next(tx)
        if item is None:
            self.index = len(self.items) + 1
        return item


_COMPARISONS = frozenset((operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge))

_ALGEBRA = frozenset((operator.or_, operator.and_, operator.sub, operator.xor))

_IN_PLACE = {
    operator.ior: operator.or_, operator.iand: operator.and_, operator.isub: operator.sub, operator.ixor: operator.xor,
}  # fmt: skip

_BY_OPERATOR = {
    "union": operator.or_, "intersection": operator.and_, "difference": operator.sub,
    "symmetric_difference": operator.xor, "update": operator.ior, "intersection_update": operator.iand,
    "difference_update": operator.isub, "symmetric_difference_update": operator.ixor,
}  # fmt: skip


def _combined(function: Callable[..., Any], left: SetValue, right: SetValue) -> dict[Any, Value]:
    keys = function(left.items.keys(), right.items.keys())
    both = {**right.items, **left.items}
    ordered = [key for key in (*left.items, *right.items) if key in keys]
    return {key: both[key] for key in ordered}


def _add(tx: Interpreter, self: SetValue, item: Value) -> None:
    self.filled(tx, [item])


def _remove(tx: Interpreter, self: SetValue, item: Value) -> None:
    if self.items.pop(checked_key(tx, item), None) is None:
        tx.raise_observed(KeyError, item.as_constant())


def _discard(tx: Interpreter, self: SetValue, item: Value) -> None:
    self.items.pop(checked_key(tx, item), None)


def _pop(tx: Interpreter, self: SetValue) -> Value:
    if not self.items:
        tx.raise_observed(KeyError, "pop from an empty set")
    if len(self.items) > 1:
        raise Unsupported("call", "set.pop: which item is not known")
    return self.items.popitem()[1]


def _init(tx: Interpreter, self: SetValue, items: Value | None = None) -> None:
    self.items.clear()
    self.filled(tx, items.iterate(tx) if items is not None else [])


_MUTATING: dict[str, Callable[..., Value | None]] = {
    "__init__": _init,
    "add": _add,
    "remove": _remove,
    "discard": _discard,
    "pop": _pop,
    "clear": lambda tx, self: self.items.clear(),
}


def _copy(tx: Interpreter, self: SetValue) -> Value:
    return SetValue(self.kind).filled(tx, self.items.values())


def _related(function: Callable[..., Any]) -> Callable[..., Value]:
    def method(tx: Interpreter, self: SetValue, other: Value) -> Value:
        others = SetValue().filled(tx, other.iterate(tx))
        return constant(function(self.items.keys(), others.items.keys()))

    return method


_METHODS: dict[str, Callable[..., Value]] = {
    "copy": _copy,
    "issubset": _related(operator.le),
    "issuperset": _related(operator.ge),
    "isdisjoint": _related(lambda a, b: a.isdisjoint(b)),
    "__contains__": lambda tx, self, item: constant(self.contains(tx, item)),
    "__len__": lambda tx, self: self.length(tx),
    "__iter__": lambda tx, self: self.iter(tx),
}


@builds(set, frozenset)
def build_set(tx: Interpreter, obj: Any, source: Source | None) -> Value:
    """A real set of constants, classes or functions, guarded by equality."""
    if type(obj) not in (set, frozenset):
        return REGISTRY["object"](tx, obj, source)
    value = SetValue(type(obj), source)
    value.filled(tx, [from_python(tx, item) for item in obj])
    if source is not None:
        tx.guards.add(source, "TYPE_MATCH", type(obj))
        expected = frozenset(obj)
        tx.guards.add(source, "LAMBDA", (expected.__eq__, f"{{}} == {set(obj)!r}"))
    return value


FRESH[set] = FRESH[frozenset] = lambda tx, obj: build_set(tx, obj, None)


def make_set(tx: Interpreter, items: Sequence[Value]) -> Value:
    """A set made in the trace."""
    return SetValue(set).filled(tx, items)


def _as_set(tx: Interpreter, value: Value) -> Value:
    """A view of a dict's keys or pairs as a set; other values as they are."""
    what = getattr(value, "what", "values")
    return SetValue().filled(tx, value.iterate(tx)) if what in ("keys", "items") else value


REGISTRY["as_set"] = _as_set
