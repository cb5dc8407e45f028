"""Sets and frozen sets: keys as in dicts, in insertion order."""
from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.source import Source
from ..core.base import Value
from ..core.constant import SnapshotIterator, attribute_of_builtin, constant, same_kinds
from ..core.iteration import each
from ..core.keys import HashedKey, checked_key, has_hashed, objects_of
from ..core.late import late
from ..core.operators import operator_method
from ..core.registry import FRESH, builds, from_python, is_stable
from ..python.operand_errors import call_method_with
from .dict_views import DictView
from .mappings import DictValue, fill_late, raise_key_error
from .sequences import TupleValue

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator


class SetValue(Value):
    """A set or frozenset: `items` maps keys (see `Value.key`) to Values. `ordered` is a set of the keys that was built
    in the same way: the order of a set depends on its history."""

    __slots__ = ("items", "kind", "ordered", "shared")

    def __init__(self, kind: type = set, source: Source | None = None) -> None:
        super().__init__(source)
        self.kind = kind
        self.items: dict[Any, Value] = {}
        self.ordered: Any = kind()
        self.shared = False  # whether `ordered` is the user's set

    def filled(self, tx: Translator, items: Iterable[Value]) -> SetValue:
        """This set with `items` added, one by one."""
        if self.kind is frozenset:
            for item in items:
                self.items.setdefault(checked_key(tx, item), item)
            self.ordered = frozenset(list(self.items))
            return self
        for item in items:
            key = checked_key(tx, item)
            self.items.setdefault(key, item)
            self.changing().add(key)
        return self.late(tx)

    def late(self, tx: Translator) -> SetValue:
        """This set, filled by the side effects where user code defines how its items are found."""
        if self.kind is set and self.filled_late():
            fill_late(tx, self, set)
        return self

    def filled_late(self) -> bool:
        """Whether items are found by a user-defined `__hash__`, so that they are added when the objects have their
        attributes."""
        return has_hashed(self.items)

    def late_items(self) -> tuple[list[Value], None]:
        """The items, for such a set."""
        return list(self.items.values()), None

    def _order_is_known(self) -> bool:
        return not any(True for key in self.items for _ in objects_of(key))

    def chosen(self, tx: Translator, ordered: Any) -> SetValue:
        """This set once its items are decided, in the order of `ordered`. Of two equal objects it has the one that
        Python kept: unless the constants are the same, which one is unknown."""
        for key in ordered:
            if type(key) in _ALIKE and repr(key) != repr(self.items[key].as_constant()):
                self.items[key] = from_python(tx, key)
        self.ordered = ordered
        return self.late(tx)

    def changing(self) -> Any:
        """`ordered`, to be changed."""
        if self.shared:
            self.ordered, self.shared = self.ordered.copy(), False
        return self.ordered

    def made_from(self, tx: Translator, other: Value) -> SetValue:
        """This set, empty so far, with the items of `other`: set(other)."""
        if not isinstance(other, (SetValue, DictValue)):
            return self.filled(tx, each(tx, other))
        keys = other.iterate(tx) if isinstance(other, DictValue) else other.items.values()
        self.items = {key.key(): key for key in keys}
        self.ordered = self.kind(keys_of(other))
        return self.late(tx)

    def python_type(self) -> type:
        """set or frozenset."""
        return self.kind

    def is_constant(self) -> bool:
        """For a frozenset of constants."""
        return self.kind is frozenset and all(item.is_constant() for item in self.items.values())

    def as_constant(self) -> Any:
        """The set as it is now."""
        if not all(item.is_constant() for item in self.items.values()):
            raise Unsupported(Reason.NOT_A_CONSTANT, self)
        return self.ordered

    def key(self) -> Any:
        """Frozen sets are equal when their items are."""
        return frozenset(self.items) if self.kind is frozenset else self

    def truth(self, tx: Translator) -> bool:
        """Whether there are items."""
        return bool(self.items)

    def length(self, tx: Translator) -> Value:
        """The number of items."""
        return constant(len(self.items))

    def contains(self, tx: Translator, item: Value) -> bool:
        """Whether `item` is in the set."""
        return _sought(tx, item) in self.items

    def iterate(self, tx: Translator) -> Sequence[Value]:
        """The items, in the order of the real set where Python's order can be known."""
        if len(self.items) > 1:
            if not self._order_is_known():
                raise Unsupported(Reason.ITERATE, self, detail=": its order is not known")
            return [self.items[key] for key in self.ordered]
        return list(self.items.values())

    def iter(self, tx: Translator) -> Value:
        """An iterator over the items, which fails when a set changes its size."""
        return SetIterator(self, self.iterate(tx))

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """Set algebra and comparison."""
        if isinstance(left, DictView) or isinstance(right, DictView):
            of_views: Value | None = late.with_views(tx, function, left, right)
            return of_views
        if not (isinstance(left, SetValue) and isinstance(right, SetValue)):
            return None
        if function in COMPARISONS:
            return constant(function(left.items.keys(), right.items.keys()))
        plain = IN_PLACE.get(function)
        if plain is not None and left.kind is set:
            tx.effects.mutated(left)
            left.items = combined(plain, left.items, right.items)
            return left.chosen(tx, function(left.changing(), right.ordered))
        function = plain or function
        if function not in ALGEBRA:
            return None
        result = SetValue(left.kind)
        result.items = combined(function, left.items, right.items)
        return result.chosen(tx, function(left.ordered, right.ordered))

    def getattr(self, tx: Translator, name: str) -> Value:
        """Methods."""
        found = attribute_of_builtin(tx, self, self.kind, name)
        if found is not None:
            return found
        return tx.raise_observed(AttributeError, f"'{self.kind.__name__}' object has no attribute '{name}'")

    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """A method from the tables."""
        if name in _BY_OPERATOR:
            return self._combined_with(tx, name, args)
        if name == "__init__" and self.kind is frozenset:
            return constant(None)
        if name in _MUTATING and self.kind is set:
            tx.effects.mutated(self)
            return call_method_with(_MUTATING[name], name, tx, self, args, kwargs) or constant(None)
        method = _METHODS.get(name)
        if method is None:
            return operator_method(tx, self, name, args)
        result: Value = call_method_with(method, name, tx, self, args, kwargs)
        return result

    def _combined_with(self, tx: Translator, name: str, args: Sequence[Value]) -> Value:
        """union, update, intersection, ... with any number of iterables."""
        if name in _ONE_BY_ONE:
            return _ONE_BY_ONE[name](self, tx, args)
        in_place = name.endswith("update")
        if in_place:
            tx.effects.mutated(self)
        function = _BY_OPERATOR[name]
        result = self if in_place else SetValue(self.kind)
        items, given = self.items, []
        for arg in args:
            other = arg if isinstance(arg, SetValue) else SetValue().made_from(tx, arg)
            items = combined(IN_PLACE.get(function, function), items, other.items)
            given.append(keys_of(arg) if isinstance(arg, (SetValue, DictValue)) else list(other.items))
        real = getattr(self.changing() if in_place else self.ordered, name)(*given)
        result.items = items if args else dict(items)
        result.chosen(tx, self.ordered if in_place else real)
        return constant(None) if in_place else result

    def _updated(self, tx: Translator, args: Sequence[Value]) -> Value:
        tx.effects.mutated(self)
        for arg in args:
            if isinstance(arg, (SetValue, DictValue)):
                for item in arg.items.values() if isinstance(arg, SetValue) else arg.iterate(tx):
                    self.items.setdefault(checked_key(tx, item), item)
                self.changing().update(keys_of(arg))
            else:
                self.filled(tx, each(tx, arg))  # one by one: the set may be read meanwhile
        return constant(None)

    def _reduced(self, tx: Translator, args: Sequence[Value]) -> Value:
        tx.effects.mutated(self)
        for arg in args:
            if isinstance(arg, (SetValue, DictValue)):
                gone = arg.items if isinstance(arg, SetValue) else [key.key() for key in arg.iterate(tx)]
                self.items = {key: item for key, item in self.items.items() if key not in gone}
                self.changing().difference_update(keys_of(arg))
                continue
            for item in each(tx, arg):
                _discard(tx, self, item)
            self.changing().difference_update(())  # makes room, now and then
        return constant(None)

    def reconstruct(self, codegen: Codegen) -> None:
        """Push the items, then a set of them."""
        frozen = self.kind is frozenset
        if not self._has_order_of_items(codegen):
            self._copy_order(codegen)
            return
        if frozen and self.filled_late() and not all(item.source is not None for item in self.items.values()):
            raise Unsupported(Reason.RECONSTRUCT, self, detail=", of objects with __hash__ that were made here,")
        if frozen:
            codegen.push_null()
            codegen.const(frozenset)
        for item in self.items.values():
            codegen(item)
        codegen.build("BUILD_SET", len(self.items))
        if frozen:
            codegen.call(1)

    def _copy_order(self, codegen: Codegen) -> None:
        """Push a copy of a set of constants, where copies have its order."""
        known = self.ordered.copy()
        copied = set(known)
        if codegen.effects.refills(self):
            copied = set()
            copied.update(set(known))
        if not all(item.is_constant() for item in self.items.values()) or list(copied) != list(self.ordered):
            raise Unsupported(Reason.RECONSTRUCT, self, detail=", whose order comes of how it was made,")
        for item in self.items.values():
            codegen.effects.refuse_local_class(item.as_constant())
        codegen.push_null()
        codegen.const(self.kind)
        codegen.const(known)
        codegen.call(1)

    def _has_order_of_items(self, codegen: Codegen) -> bool:
        """Whether a set that is rebuilt from the items, or cleared and refilled with them, has the order of this
        one."""
        if not self._order_is_known():
            return True
        made: set[Any] = set()
        for key in self.items:
            made.add(key)
        fresh: Any = frozenset(made) if self.kind is frozenset else made
        if codegen.effects.refills(self) and not self.filled_late():
            fresh = set()
            fresh.update(made)
        return list(fresh) == list(self.ordered)

    def describe(self) -> str:
        """The type and the number of items."""
        return f"a {self.kind.__name__} of {len(self.items)}"


def keys_of(other: SetValue | DictValue) -> Any:
    """A set or dict of the same keys: Python processes those of a plain dict all at once, not one by one."""
    return other.ordered if isinstance(other, SetValue) else kind_of_dict(other.python_type()).fromkeys(other.items)


class _OtherDict(dict[Any, Any]):
    """A dict subclass, from whose keys Python makes a set one by one."""


def kind_of_dict(cls: type) -> type[dict[Any, Any]]:
    """A dict from which sets are made as from one of class `cls`."""
    return dict if cls is dict else _OtherDict


class SetIterator(SnapshotIterator):
    """iter() of a set, in the order that it had at the start."""

    __slots__ = ("owner",)

    def __init__(self, owner: SetValue, items: Sequence[Value]) -> None:
        super().__init__(items)
        self.owner = owner

    def python_type(self) -> type:
        """set_iterator."""
        return type(iter(set()))

    def next(self, tx: Translator) -> Value | None:
        """The next item; None at the end, for good."""
        if self.index <= len(self.items) != len(self.owner.items):
            tx.raise_observed(RuntimeError, "Set changed size during iteration")
        item = super().next(tx)
        if item is None:
            self.index = len(self.items) + 1
        return item

    def reconstruct(self, codegen: Codegen) -> None:
        """An iterator over the same set where that exists, so that it fails when the set changes later."""
        changed = codegen.effects.has_changed(self.owner)
        if self.index <= len(self.items) and (changed or len(self.items) != len(self.owner.items)):
            raise Unsupported(Reason.RECONSTRUCT, detail="an iterator over a set that changed")
        if self.owner.source is None or self.index > len(self.items):
            super().reconstruct(codegen)
        else:
            codegen.call_const(_iterator_at, [self.owner, constant(self.index)])


def _iterator_at(items: Set[Any], index: int) -> Iterator[Any]:
    iterator = iter(items)
    for _ in range(index):
        next(iterator)
    return iterator


COMPARISONS = frozenset((operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge))

ALGEBRA = frozenset((operator.or_, operator.and_, operator.sub, operator.xor))

_ALIKE = frozenset((bool, int, float, complex))
"""Types whose values may equal one of another type: 1, True and 1.0 are one item of a set."""

_ONE_BY_ONE = {"update": SetValue._updated, "difference_update": SetValue._reduced}

IN_PLACE = {
    operator.ior: operator.or_, operator.iand: operator.and_, operator.isub: operator.sub, operator.ixor: operator.xor,
}  # fmt: skip

_BY_OPERATOR = {
    "union": operator.or_, "intersection": operator.and_, "difference": operator.sub,
    "symmetric_difference": operator.xor, "update": operator.ior, "intersection_update": operator.iand,
    "difference_update": operator.isub, "symmetric_difference_update": operator.ixor,
}  # fmt: skip


def combined(
    function: Callable[..., Any], left: Mapping[Any, Value], right: Mapping[Any, Value]
) -> dict[Any, Value]:
    """The items of both, of whose keys `function` selects those that stay."""
    keys = function(left.keys(), right.keys())
    both = {**right, **left}
    return {key: both[key] for key in (*left, *right) if key in keys}


def _add(tx: Translator, self: SetValue, item: Value) -> None:
    self.filled(tx, [item])


def _sought(tx: Translator, item: Value) -> Any:
    """The key to look up: that of a set is the frozen set of its items."""
    items = getattr(item, "storage", item)
    if isinstance(items, SetValue) and (item is items or not item.is_hashable()):
        return frozenset(items.items)
    return checked_key(tx, item)


def _remove(tx: Translator, self: SetValue, item: Value) -> None:
    key = _sought(tx, item)
    if self.items.pop(key, None) is None:
        raise_key_error(tx, item)
    self.changing().discard(key)


def _discard(tx: Translator, self: SetValue, item: Value) -> None:
    key = _sought(tx, item)
    self.items.pop(key, None)
    self.changing().discard(key)


def _pop(tx: Translator, self: SetValue) -> Value:
    if not self.items:
        tx.raise_observed(KeyError, "pop from an empty set")
    if len(self.items) > 1 and (self.source is not None or not self._order_is_known()):
        raise Unsupported(
            Reason.UNSUPPORTED_ARGUMENT, set, "pop", detail=", whose item is not known"
        )  # where Python begins to look, none can see
    if not self._order_is_known():
        self.changing().pop()
        return self.items.popitem()[1]
    return self.items.pop(self.changing().pop())


def _clear(tx: Translator, self: SetValue) -> None:
    self.items.clear()
    self.changing().clear()


def _init(tx: Translator, self: SetValue, items: Value | None = None) -> None:
    _clear(tx, self)
    if items is not None:
        self._updated(tx, [items])


_MUTATING: dict[str, Callable[..., Value | None]] = {
    "__init__": _init,
    "add": _add,
    "remove": _remove,
    "discard": _discard,
    "pop": _pop,
    "clear": _clear,
}


def _copy(tx: Translator, self: SetValue) -> Value:
    return SetValue(self.kind).made_from(tx, self)


def _is_subset(tx: Translator, self: SetValue, other: Value) -> Value:
    others = other if isinstance(other, SetValue) else SetValue().filled(tx, each(tx, other))
    return constant(self.items.keys() <= others.items.keys())


def _is_superset(tx: Translator, self: SetValue, other: Value) -> Value:
    if isinstance(other, SetValue):
        return constant(self.items.keys() >= other.items.keys())
    return constant(all(checked_key(tx, item) in self.items for item in each(tx, other)))


def _is_disjoint(tx: Translator, self: SetValue, other: Value) -> Value:
    if isinstance(other, SetValue):
        return constant(self.items.keys().isdisjoint(other.items.keys()))
    return constant(not any(checked_key(tx, item) in self.items for item in each(tx, other)))


_METHODS: dict[str, Callable[..., Value]] = {
    "copy": _copy,
    "issubset": _is_subset,
    "issuperset": _is_superset,
    "isdisjoint": _is_disjoint,
    "__contains__": lambda tx, self, item: constant(self.contains(tx, item)),
    "__len__": lambda tx, self: self.length(tx),
    "__iter__": lambda tx, self: self.iter(tx),
}


@builds(set, frozenset)
def build_set(tx: Translator, obj: Any, source: Source | None) -> Value:
    """A real set of constants, classes or functions, guarded by its items; constants also by the order, which sets made
    from it inherit."""
    if type(obj) not in (set, frozenset):
        return late.build_object(tx, obj, source)
    return items_of_set(tx, obj, type(obj), source)


def items_of_set(tx: Translator, obj: Any, kind: type, source: Source | None) -> SetValue:
    """The items of a real set or frozenset, or of an instance of a subclass, as one of `kind`."""
    value = SetValue(kind, source)
    items = [from_python(tx, item) for item in obj]
    for item, real in zip(items, obj):
        _guard_held(tx, item, real)
    with tx.effects.sealed("__hash__ of what is in a set"):  # not called at this point
        SetValue(frozenset).filled(tx, items)
    keys = [checked_key(tx, item) for item in items]
    value.items, value.ordered = dict(zip(keys, items)), value.kind(keys)
    same: Callable[[Any], bool] = frozenset(obj).__eq__
    if all(item.is_constant() for item in value.items.values()):
        value.ordered, value.shared = obj, kind is set
        order, same_types = list(obj), same_kinds(obj)
        same = lambda real: list(real) == order and same_types(real)
    elif value.filled_late():
        held = list(obj)
        ordered = [key.value for key in value.ordered if isinstance(key, HashedKey)]
        if len(ordered) != len(held) or any(getattr(o, "real", None) is not h for o, h in zip(ordered, held)):
            raise Unsupported(Reason.UNKNOWN_TYPE, value, detail=", whose order comes of how it was made")
        same = lambda real: len(real) == len(held) and all(map(operator.is_, real, held))
    if source is not None:
        tx.guards.add(source, "TYPE_MATCH", type(obj))
        tx.guards.add(source, "LAMBDA", (same, f"{{}} == {set(obj)!r}"))
    return value


def _guard_held(tx: Translator, item: Value, real: Any) -> None:
    """Guard that a set has these very objects: what traced code has read elsewhere is one of them."""
    if isinstance(item, TupleValue):
        for part, held in zip(item.items, real):
            _guard_held(tx, part, held)
    elif item.source is not None and not is_stable(item.source):
        tx.guards.add(item.source, "ID_MATCH", real)


FRESH[set] = FRESH[frozenset] = lambda tx, obj: build_set(tx, obj, None)


def make_set(tx: Translator, items: Sequence[Value]) -> Value:
    """A set made in the trace."""
    return SetValue(set).filled(tx, items)
