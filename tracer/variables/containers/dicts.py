"""Dicts that exist, and those that the trace makes of keys and values."""
from __future__ import annotations

import enum
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.source import AttrSource, ItemSource, KeySource, Source
from ..core.base import Value
from ..core.keys import call_user_hash, checked_key
from ..core.late import late
from ..core.operators import note_identity_comparison
from ..core.registry import CONSTANT_TYPES, FRESH, build, builds, from_python
from .mappings import DICT_TYPES, DictValue, fill_late

if TYPE_CHECKING:
    from ..core.base import Translator


_ABSENT = object()


@builds(dict, defaultdict)
def build_dict(tx: Translator, obj: dict[Any, Any], source: Source | None) -> Value:
    """A dict whose items are built when they are read. Subclasses are objects of their class."""
    if type(obj) not in DICT_TYPES:
        return late.build_object(tx, obj, source)
    if "__builtins__" in obj and "__name__" in obj:  # the trace has what functions and modules store there by name
        raise Unsupported(Reason.GLOBAL_STATE, detail=f"the globals of {obj['__name__']} as a dict")
    if id(obj) in tx.effects.own_dicts:
        raise Unsupported(Reason.ATTRIBUTE, detail="the __dict__ of an object whose attributes have changed")
    value = DictValue(type(obj), source)
    if source is not None:
        tx.guards.add(source, "TYPE_MATCH", type(obj))
    fill_from_real(tx, value, obj)
    if isinstance(obj, defaultdict):
        factory = obj.default_factory
        where = AttrSource(source, "default_factory") if source is not None else None
        value.default_factory = build(tx, factory, where) if where is not None else from_python(tx, factory)
    return value


def fill_from_real(tx: Translator, value: DictValue, obj: Mapping[Any, Any]) -> None:
    """Give `value` the items of the real dict `obj`, unread."""
    value.real = obj
    value.keys_guarded = value.source is None
    if all(type(key) is str or _is_simple_key(key) for key in obj):
        value.items = obj.copy() if type(obj) is dict else dict.fromkeys(obj)  # a copy iterates as the dict does
        value.items.update(dict.fromkeys(obj))
        return
    if value.source is None:
        raise Unsupported(Reason.UNKNOWN_TYPE, detail="a dict with objects as keys")
    value.keys_guarded = True
    tx.guards.add(value.source, "LENGTH", len(obj))
    for i, (key, item) in enumerate(obj.items()):
        key_value = build(tx, key, KeySource(value.source, i))
        note_identity_comparison(tx, key_value)
        with tx.effects.sealed(f"__hash__ of {key_value.describe()}, a key,"):  # not called at this point
            call_user_hash(tx, key_value)
        if key_value.has_user_hash(tx) and dict(obj).get(key, _ABSENT) is not item:
            raise Unsupported(Reason.UNKNOWN_TYPE, key_value, detail=", a key whose hash has changed,")
        value.key_values[key_value.key()] = key_value
        value.items[key_value.key()] = build(tx, item, ItemSource(value.source, key))


def _is_simple_key(key: Any) -> bool:
    kind = type(key)
    if kind is tuple:
        return all(_is_simple_key(item) for item in key)
    return kind in CONSTANT_TYPES or isinstance(key, (enum.Enum, type, FunctionType, BuiltinFunctionType))


def _fresh_dict(tx: Translator, obj: dict[Any, Any]) -> Value:
    value = DictValue(type(obj))
    value.items = {key: from_python(tx, item) for key, item in obj.items()}
    return value


FRESH[dict] = FRESH[OrderedDict] = _fresh_dict


def make_dict(tx: Translator, keys: Sequence[Value], values: Sequence[Value]) -> Value:
    """A dict made in the trace."""
    fresh = DictValue(dict)
    for key, value in zip(keys, values):
        fresh.key_values.setdefault(checked_key(tx, key), key)
        fresh.items[key.key()] = value
    if fresh.filled_late():
        fill_late(tx, fresh, dict)
    return fresh
