"""Dicts, ordered and default ones.

The items of a real dict are read, and guarded, one by one when traced code reads them; its keys only when traced code
iterates or counts.
"""
from __future__ import annotations

import operator
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.display_names import display_name
from ...sources.source import AttrSource, ItemSource, Source
from ..core.base import Value
from ..core.constant import attribute_of_builtin, constant, fold, same_kinds
from ..core.finalizers import refuse_visible_deaths
from ..core.iteration import each
from ..core.keys import checked_key, has_hashed, is_plain
from ..core.late import late
from ..core.operators import equal
from ..core.registry import build, from_python, is_stable
from ..python.operand_errors import call_method_with

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator

DICT_TYPES = (dict, OrderedDict, defaultdict)


class DictValue(Value):
    """A dict. `items` maps keys (see `Value.key`) to Values; None for what is in `real` and was not read yet."""

    __slots__ = ("changes", "default_factory", "items", "key_values", "keys_guarded", "kind", "real", "stored",
                 "texts_guarded")

    def __init__(self, kind: type = dict, source: Source | None = None) -> None:
        super().__init__(source)
        self.kind = kind
        self.items: dict[Any, Value | None] = {}
        self.key_values: dict[Any, Value] = {}
        self.real: Any = None
        self.keys_guarded = True
        self.texts_guarded = False
        self.stored: dict[Any, None] = {}  # keys that traced code assigned
        self.default_factory: Value | None = None
        self.changes = 0  # how often a key was added, removed or moved

    def python_type(self) -> type:
        """dict, OrderedDict or defaultdict."""
        return self.kind

    def is_constant(self) -> bool:
        """Never: it may change."""
        return False

    def as_constant(self) -> dict[Any, Any]:
        """A dict of the current items, for functions that only read it."""
        if self.real is not None or not all(map(is_plain, self.items)):
            raise Unsupported(Reason.NOT_A_CONSTANT, self)
        items = {key: value.as_constant() for key, value in self.items.items()}  # type: ignore[union-attr]
        if self.kind is defaultdict:
            factory = self.default_factory
            return defaultdict(factory.as_constant() if factory is not None else None, items)
        return items if self.kind is dict else self.kind(items)

    def as_proxy(self) -> Any:
        """A dict of what represents the items."""
        if self.real is not None or not all(map(is_plain, self.items)):
            raise Unsupported(Reason.NOT_A_CONSTANT, self)
        return {key: value.as_proxy() for key, value in self.items.items()}  # type: ignore[union-attr]

    # ---- reading ---------------------------------------------------------------------------------------------------
    def guard_keys(self, tx: Translator) -> None:
        """Traced code has seen which keys there are, and in which order."""
        if not self.keys_guarded:
            self.keys_guarded = True
            if self.source is not None and self.real is not None:
                tx.guards.add(self.source, "DICT_KEYS", list(self.real))
                if any(type(key) is not str for key in self.real):
                    kinds = same_kinds(self.real), "the types of the keys of {} are the same"
                    tx.guards.add(self.source, "LAMBDA", kinds)

    def guard_absent(self, tx: Translator, key: Any) -> None:
        """Traced code has seen that there is no such key. For a tensor, for example, a guard knows only its present
        value: that the keys are these, none of which is an object, implies that it is absent."""
        if not is_plain(key):
            self.guard_keys(tx)
        elif not self.keys_guarded and self.source is not None:
            tx.guards.add(self.source, "NOT_IN_DICT", key)

    def key_value(self, tx: Translator, key: Any) -> Value:
        """The Value of a key."""
        value = self.key_values.get(key)
        if value is None:
            if type(key) is str and self.real is not None and not _is_names(self.source):
                self._guard_texts(tx)
            value = self.key_values[key] = key if isinstance(key, Value) else from_python(tx, key)
        return value

    def _guard_texts(self, tx: Translator) -> None:
        """A string enum member is another key than the string that it equals; guards of keys compare them. Where there
        are keys of other types, the guards of all keys check the types."""
        if not self.texts_guarded:
            self.texts_guarded = True
            if _TEXT.issuperset(map(type, self.real)):
                tx.guards.add(self.source, "LAMBDA", _PLAIN_TEXTS)
            else:
                self.guard_keys(tx)

    def find(self, tx: Translator, key: Value) -> Value | None:
        """The value at `key`, or None when there is none."""
        real_key = checked_key(tx, key)
        if real_key not in self.items:
            self.guard_absent(tx, real_key)
            return None
        return self.read(tx, real_key)

    def read(self, tx: Translator, key: Any) -> Value:
        """The value at a key that exists."""
        value = self.items[key]
        if value is None:
            if not is_plain(key):
                raise Unsupported(Reason.SUBSCRIPT, self, detail="by an object that equals the key")
            real: Any = dict.__getitem__(self.real, key)
            source = self._item_source(tx, key)
            value = build(tx, real, source) if source is not None else from_python(tx, real)
            self.items[key] = value
        return value

    def _item_source(self, tx: Translator, key: Any) -> Source | None:
        """The source of the item; None where the class defines its own `__getitem__` (but a class that also keeps items
        as attributes, as transformers' outputs do, has it there)."""
        if self.source is None or type(self.real).__getitem__ in _PLAIN_GETITEMS:
            return ItemSource(self.source, key) if self.source is not None else None
        mirrored = getattr(self.real, "__dict__", {})
        if isinstance(key, str) and mirrored.get(key) is dict.__getitem__(self.real, key):
            return AttrSource(self.source, key)
        if not is_stable(self.source):
            item = dict.__getitem__(self.real, key)
            if not isinstance(item, (type, tuple, str, int, FunctionType)):
                raise Unsupported(Reason.SUBSCRIPT, self, detail=", whose class overrides __getitem__")
            unchanged = (lambda owner: dict.get(owner, key) is item, f"dict.get({{}}, {key!r}) is unchanged")
            tx.guards.add(self.source, "LAMBDA", unchanged)
        return None

    def pairs(self, tx: Translator) -> list[tuple[Value, Value]]:
        """All keys and values."""
        self.guard_keys(tx)
        return [(self.key_value(tx, key), self.read(tx, key)) for key in list(self.items)]

    def truth(self, tx: Translator) -> bool:
        """Whether there are items."""
        return bool(self.length(tx).as_constant())

    def length(self, tx: Translator) -> Value:
        """The number of items."""
        if self.stored:
            self.guard_keys(tx)
        if not self.keys_guarded and self.source is not None:
            tx.guards.add(self.source, "LENGTH", len(self.real))
        return constant(len(self.items))

    def iterate(self, tx: Translator) -> Sequence[Value]:
        """The keys."""
        self.guard_keys(tx)
        return [self.key_value(tx, key) for key in self.items]

    def iter(self, tx: Translator) -> Value:
        """An iterator over the keys."""
        return late.dict_iterator(tx, self, "keys", 1)

    def reversed(self, tx: Translator) -> Value:
        """An iterator over the keys from the end."""
        return late.dict_iterator(tx, self, "keys", -1)

    def contains(self, tx: Translator, item: Value) -> bool:
        """Whether there is such a key."""
        key = checked_key(tx, item)
        if key not in self.items:
            self.guard_absent(tx, key)
            return False
        if not self.keys_guarded and self.source is not None and self.items[key] is None:
            tx.guards.add(self.source, "IN_DICT", key)
        return True

    def getitem(self, tx: Translator, key: Value) -> Value:
        """The value at a key; default_factory's where there is none."""
        value = self.find(tx, key)
        if value is not None:
            return value
        if self.default_factory is not None and not _is_none(self.default_factory):
            value = self.default_factory.call(tx, [], {})
            self.setitem(tx, key, value)
            return value
        return raise_key_error(tx, key)

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """Union and comparison."""
        if function is operator.ior and left is self and not isinstance(right, DictValue):
            self.update(tx, right)
            return self
        if not (isinstance(left, DictValue) and isinstance(right, DictValue)):
            return None
        if function is operator.ior:
            left.update(tx, right)
            return left
        if function is operator.or_:
            merged = left.copy(tx)
            if left.kind is dict:  # the other's class decides
                merged.kind, merged.default_factory = right.kind, right.default_factory
            merged.update(tx, right)
            return merged
        if function in (operator.eq, operator.ne):
            left.guard_keys(tx)
            right.guard_keys(tx)
            result = len(left.items) == len(right.items) and all(
                key in right.items and equal(tx, left.read(tx, key), right.read(tx, key)) for key in list(left.items)
            )
            if left.kind is OrderedDict and right.kind is OrderedDict:
                result = result and list(left.items) == list(right.items)
            return constant(result == (function is operator.eq))
        return None

    def changed(self, tx: Translator) -> None:
        """The items are about to change."""
        tx.effects.mutated(self)

    # ---- writing ---------------------------------------------------------------------------------------------------
    def setitem(self, tx: Translator, key: Value, value: Value) -> None:
        """Assign an item."""
        real_key = checked_key(tx, key)
        if has_hashed((real_key,)):
            self.guard_keys(tx)
            fill_late(tx, self, self.kind)
        self.stored[real_key] = None
        self.changed(tx)
        if real_key not in self.items:
            self.key_values[real_key] = key
            self.changes += 1
        refuse_visible_deaths([self.items.get(real_key)])
        self.items[real_key] = value

    def delitem(self, tx: Translator, key: Value) -> None:
        """Remove an item."""
        found = self.find(tx, key)
        if found is None:
            raise_key_error(tx, key)
        self.remove(tx, key, found)

    def remove(self, tx: Translator, key: Value, found: Value) -> None:
        """Remove the item `found`, whose key was just looked up."""
        refuse_visible_deaths([found])
        self.guard_keys(tx)
        self.changed(tx)
        self.changes += 1
        real_key = key.key()
        self.key_values.setdefault(real_key, key)
        del self.items[real_key]

    def update(self, tx: Translator, other: Value) -> None:
        """dict.update with a mapping or an iterable of pairs. OrderedDict calls `items` of any subclass of dict."""
        other_kind = other.python_type()
        if self.kind is OrderedDict and any(type(getattr(other_kind, name, None)) is FunctionType for name in _PAIRS):
            raise Unsupported(Reason.UNSUPPORTED_ARGUMENT, detail=f"OrderedDict.update of {other.describe()}")
        for key, value in pairs_of(tx, other):
            self.setitem(tx, key, value)

    def additions(self) -> Value | None:
        """What was stored in a dict whose keys traced code has not read."""
        if self.keys_guarded or not self.stored or self.filled_late():
            return None
        added = DictValue(dict)
        added.items = {key: self.items[key] for key in self.stored}
        added.key_values = self.key_values
        return added

    def removals(self) -> Sequence[Value] | None:
        """The keys that traced code removed, where it stored nothing."""
        if self.filled_late():
            return None
        removed = [key for key in self.real or () if key not in self.items]
        if self.stored or not removed or not self.key_values.keys() >= set(removed):
            return None
        return [self.key_values[key] for key in removed]

    def filled_late(self) -> bool:
        """Whether keys are found by a user-defined `__hash__`, so that they are stored when the objects have their
        attributes."""
        return has_hashed(self.items)

    def late_items(self) -> tuple[list[Value], list[Value]]:
        """Keys and values, for such a dict."""
        return [self.key_values[key] for key in self.items], [self._value(key) for key in self.items]

    def _value(self, key: Any) -> Value:
        value = self.items[key]
        if value is not None:
            return value
        return constant(self.real[key]) if self.source is None else _UnreadItem(ItemSource(self.source, key))

    def create(self, codegen: Codegen, cls: type) -> None:
        """A default dict is made with its factory."""
        if cls is defaultdict:
            codegen.push_null()
            codegen.const(defaultdict)
            codegen(self.default_factory or constant(None))
            codegen.call(1)
        else:
            super().create(codegen, cls)

    def updated(self, pairs: Iterable[tuple[str, Value]]) -> DictValue:
        """This dict, made in the trace, with items under constant keys."""
        self.items.update(pairs)
        return self

    def copy(self, tx: Translator) -> DictValue:
        """A new dict with the same items."""
        fresh = DictValue(self.kind)
        fresh.default_factory = self.default_factory
        for key, value in self.pairs(tx):
            fresh.items[key.key()] = value
            fresh.key_values[key.key()] = key
        if fresh.filled_late():
            fill_late(tx, fresh, self.kind)
        return fresh

    # ---- attributes ------------------------------------------------------------------------------------------------
    def getattr(self, tx: Translator, name: str) -> Value:
        """Methods, and default_factory."""
        if name == "default_factory" and self.default_factory is not None:
            return self.default_factory
        found = attribute_of_builtin(tx, self, self.kind, name)
        if found is not None:
            return found
        stored = tx.effects.load_attr(self, name) or self._attribute(tx, name)
        return stored or fold(tx, getattr, [constant(self.kind()), constant(name)])  # raises

    def _attribute(self, tx: Translator, name: str) -> Value | None:
        """An attribute that user code has given an OrderedDict, as `nn.Module.state_dict` does."""
        if self.kind is not OrderedDict or self.real is None:
            return None
        if self.source is None:
            raise Unsupported(Reason.ATTRIBUTE, self, name)
        attributes = vars(self.real)
        if name in attributes:
            return build(tx, attributes[name], AttrSource(self.source, name))
        tx.guards.add(self.source, "NO_ATTR", name)
        return None

    def has_attributes(self, tx: Translator) -> bool:
        """Whether it is an OrderedDict with attributes."""
        if self in tx.effects.attributes:
            return True
        if self.kind is not OrderedDict or self.real is None:
            return False
        if not vars(self.real) and self.source is not None:
            tx.guards.add(self.source, "LAMBDA", (lambda owner: not vars(owner), "vars({}) is empty"))
        return bool(vars(self.real))

    def setattr(self, tx: Translator, name: str, value: Value) -> None:
        """An attribute of an OrderedDict, which from now on is made before its items; or the factory of a default dict
        made in the trace."""
        if name == "default_factory" and self.kind is defaultdict and self.source is None and self.real is None:
            self.default_factory = value
            return
        if self.kind is not OrderedDict or hasattr(OrderedDict, name) or (self.source is None) != (self.real is None):
            super().setattr(tx, name, value)
        if self.source is None and not tx.effects.is_new(self):
            tx.effects.track_new(self, OrderedDict)
            tx.effects.mutated(self)
        tx.effects.store_attr(self, name, value)

    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """A method from the table."""
        method = METHODS.get(name)
        if method is None:
            if not hasattr(self.kind, name):
                return self.getattr(tx, name)  # raises
            raise Unsupported(Reason.UNSUPPORTED_METHOD, self, name)
        result: Value = call_method_with(method, name, tx, self, args, kwargs)
        return result

    def reconstruct(self, codegen: Codegen) -> None:
        """Push keys and values, then a dict of them."""
        if self.kind is not dict:
            codegen.push_null()
            codegen.const(self.kind)
            if self.kind is defaultdict:
                codegen(self.default_factory or constant(None))
        for key in self.items:
            shown = self.key_values.get(key)
            codegen(shown if shown is not None else key) if isinstance(shown or key, Value) else codegen.const(key)
            codegen(self._value(key))
        codegen.build("BUILD_MAP", len(self.items))
        if self.kind is not dict:
            codegen.call(2 if self.kind is defaultdict else 1)

    def describe(self) -> str:
        """The type and the number of items."""
        where = f" `{display_name(self.source)}`" if self.source is not None else ""
        return f"a {self.kind.__name__} of {len(self.items)}{where}"


_PLAIN_GETITEMS = tuple(kind.__getitem__ for kind in DICT_TYPES)


METHODS: dict[str, Callable[..., Value]] = {}
"""Methods by name, `method(tx, dict, *args, **kwargs)`; `dict_methods.py` has them."""


class _UnreadItem(Value):
    """An item that only codegen uses, to load it from its source."""

    __slots__ = ()


def pairs_of(tx: Translator, other: Value) -> Iterator[tuple[Value, Value]]:
    """The pairs that `dict(other)` would have, one at a time."""
    storage = getattr(other, "storage", other)
    if isinstance(storage, DictValue) and not _has_own_pairs(other.python_type()):
        yield from storage.pairs(tx)
        return
    if hasattr(other.python_type(), "keys"):
        for key in each(tx, other.call_method(tx, "keys", [], {})):
            yield key, other.getitem(tx, key)
        return
    for number, item in enumerate(each(tx, other)):
        start = "dictionary update sequence element"
        if not hasattr(item.python_type(), "__iter__"):
            if not hasattr(item.python_type(), "__getitem__"):
                tx.raise_observed(TypeError, f"cannot convert {start} #{number} to a sequence")
            raise Unsupported(Reason.ITERATE, item)
        pair = list(item.iterate(tx))
        if len(pair) != 2:
            tx.raise_observed(ValueError, f"{start} #{number} has length {len(pair)}; 2 is required")
        yield pair[0], pair[1]


_PAIRS = ("keys", "__getitem__")
"""Methods that give a mapping's pairs."""


def _has_own_pairs(cls: type) -> bool:
    """Whether Python calls `keys` and `__getitem__` of a subclass of dict: where it defines its own iteration."""
    plain = getattr(cls, "__iter__", None) is dict.__iter__
    return not plain and any(type(getattr(cls, name)) is FunctionType for name in ("__iter__", "keys", "__getitem__"))


def _is_none(value: Value) -> bool:
    return value.is_constant() and value.as_constant() is None


_TEXT: frozenset[type] = frozenset((str,))
_PLAIN_TEXTS = (lambda mapping: _TEXT.issuperset(map(type, mapping)), "the keys of {} are plain strings")


def _is_names(source: Source | None) -> bool:
    """Whether the keys of a dict with a source are attribute names, so strings."""
    return source is None or (isinstance(source, AttrSource) and source.name in _NAMES)


_NAMES = ("__dict__", "_modules", "_parameters", "_buffers")


def fill_late(tx: Translator, container: Value, cls: type) -> None:
    """Have `container` filled by the side effects, once all objects have their attributes, which a user-defined
    `__hash__` of the keys may read."""
    if container.source is None and not tx.effects.is_new(container):
        tx.effects.track_new(container, cls)
    tx.effects.mutated(container)


def raise_key_error(tx: Translator, key: Value) -> NoReturn:
    """KeyError of `key` in traced code."""
    tx.raise_value(late.make_exception(tx, KeyError, [key]))
