"""The methods of dicts."""
from __future__ import annotations

import operator
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..core.base import Value
from ..core.constant import constant, is_none
from ..core.finalizers import refuse_visible_deaths
from ..core.iteration import each
from ..core.late import late
from ..core.registry import from_python
from .dict_views import DictView
from .mappings import METHODS, DictValue, raise_key_error
from .sequences import make_tuple

if TYPE_CHECKING:
    from ..core.base import Translator


def _get(tx: Translator, self: DictValue, key: Value, default: Value | None = None) -> Value:
    found = self.find(tx, key)
    return found if found is not None else default if default is not None else constant(None)


def _pop(tx: Translator, self: DictValue, key: Value, default: Value | None = None) -> Value:
    found = self.find(tx, key)
    if found is None:
        if default is None:
            raise_key_error(tx, key)
        return default
    self.remove(tx, key, found)
    return found


def _popitem(tx: Translator, self: DictValue, last: Value | None = None) -> Value:
    if last is not None and self.kind is not OrderedDict:
        tx.raise_observed(TypeError, "dict.popitem() takes no arguments (1 given)")
    pairs = self.pairs(tx)
    if not pairs:
        tx.raise_observed(KeyError, f"{'' if self.kind is OrderedDict else 'popitem(): '}dictionary is empty")
    key, value = pairs[-1 if last is None or last.truth(tx) else 0]
    self.remove(tx, key, value)
    return make_tuple(tx, [key, value])


def _setdefault(tx: Translator, self: DictValue, key: Value, default: Value | None = None) -> Value:
    found = self.find(tx, key)
    if found is None:
        found = default if default is not None else constant(None)
        self.setitem(tx, key, found)
    return found


def _update(tx: Translator, self: DictValue, /, *others: Value, **items: Value) -> Value:
    if len(others) > 1:
        tx.raise_observed(TypeError, f"update expected at most 1 argument, got {len(others)}")
    for other in others:
        self.update(tx, other)
    for name, value in items.items():
        self.setitem(tx, constant(name), value)
    return constant(None)


def _clear(tx: Translator, self: DictValue) -> Value:
    self.guard_keys(tx)
    self.changed(tx)
    self.changes += 1
    refuse_visible_deaths(self.items.values())
    self.items.clear()
    return constant(None)


def _move_to_end(tx: Translator, self: DictValue, key: Value, last: Value | None = None) -> Value:
    value = self.getitem(tx, key)
    self.guard_keys(tx)
    real_key = next(own for own in self.items if own == key.key())  # 1, where the user wrote True
    kept = self.key_value(tx, real_key)
    self.delitem(tx, kept)
    self.setitem(tx, kept, value)
    if last is not None and not last.truth(tx):
        moved = self.items.pop(real_key)
        self.items = {real_key: moved, **self.items}
    return constant(None)


def _fromkeys(tx: Translator, self: DictValue, keys: Value, value: Value | None = None) -> Value:
    fresh = DictValue(self.kind)
    for key in each(tx, keys):
        fresh.setitem(tx, key, value if value is not None else constant(None))
    return fresh


def _of_class(tx: Translator, cls: type, keys: Value, value: Value | None = None) -> Value:
    """cls.fromkeys(keys, value): a call of the class, then its items one by one."""
    made = from_python(tx, cls).call(tx, [], {})
    for key in each(tx, keys):
        made.setitem(tx, key, value if value is not None else constant(None))
    return made


late.fromkeys = _of_class


def _setitem(tx: Translator, self: DictValue, key: Value, value: Value) -> Value:
    self.setitem(tx, key, value)
    return constant(None)


def _delitem(tx: Translator, self: DictValue, key: Value) -> Value:
    self.delitem(tx, key)
    return constant(None)


def _missing(tx: Translator, self: DictValue, key: Value) -> Value:
    if self.kind is not defaultdict:
        raise Unsupported(Reason.UNSUPPORTED_METHOD, self, "__missing__")
    if self.default_factory is None or is_none(self.default_factory):
        raise_key_error(tx, key)
    value = self.default_factory.call(tx, [], {})
    self.setitem(tx, key, value)
    return value


def _or(tx: Translator, self: DictValue, other: Value) -> Value:
    """The method: for the operator, the other's class may decide."""
    if not issubclass(other.python_type(), dict):
        return constant(NotImplemented)
    merged = self.copy(tx)
    merged.update(tx, other)
    return merged


def _ior(tx: Translator, self: DictValue, other: Value) -> Value:
    self.update(tx, other)
    return self


METHODS.update({
    "keys": lambda tx, self: DictView(self, "keys"),
    "values": lambda tx, self: DictView(self, "values"),
    "items": lambda tx, self: DictView(self, "items"),
    "get": _get,
    "pop": _pop,
    "popitem": _popitem,
    "setdefault": _setdefault,
    "update": _update,
    "clear": _clear,
    "copy": lambda tx, self: self.copy(tx),
    "__copy__": lambda tx, self: self.copy(tx),
    "move_to_end": _move_to_end,
    "fromkeys": _fromkeys,
    "__init__": _update,
    "__getitem__": lambda tx, self, key: self.getitem(tx, key),
    "__setitem__": _setitem,
    "__delitem__": _delitem,
    "__contains__": lambda tx, self, key: constant(self.contains(tx, key)),
    "__missing__": _missing,
    "__len__": lambda tx, self: self.length(tx),
    "__iter__": lambda tx, self: self.iter(tx),
    "__eq__": lambda tx, self, other: self.binary(tx, operator.eq, self, other) or constant(NotImplemented),
    "__ne__": lambda tx, self, other: self.binary(tx, operator.ne, self, other) or constant(NotImplemented),
    "__or__": _or,
    "__ior__": _ior,
    "__reversed__": lambda tx, self: self.reversed(tx),
})
