"""copy.copy and copy.deepcopy: of containers, and of instances of plain classes as `object.__reduce_ex__` does it."""
from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..containers.deques import DequeValue
from ..containers.lists import ListValue
from ..containers.mappings import DictValue
from ..containers.sequences import TupleValue
from ..containers.sets import SetValue
from ..core.attributes import MISSING, is_python_method, lookup
from ..core.base import Value
from ..core.constant import constant
from ..core.handlers import handles
from .functions import FunctionValue
from .instances import new_object
from .objects import ObjectValue
from .symbolic_numbers import NumberValue

if TYPE_CHECKING:
    from ..core.base import Translator

_HOOKS = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")


@handles(copy.copy)
def _copy(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    value = args[0]
    if type(value) is ObjectValue and is_python_method(lookup(value.cls, "__copy__")):
        return value.call_method(tx, "__copy__", [], {})
    if isinstance(value, DictValue) and value.has_attributes(tx):
        raise Unsupported(Reason.COPIED_OBJECT, copy.copy, detail=f"of {value.describe()} with attributes")
    if isinstance(value, (ListValue, DictValue, SetValue, DequeValue)):
        return value.call_method(tx, "copy", [], {})
    if isinstance(value, FunctionValue) or (isinstance(value, TupleValue) and value.kind is tuple):
        return value
    if isinstance(value, TupleValue):
        return TupleValue(value.items, value.kind)
    if value.is_constant():
        return _constant_copy(copy.copy, value)
    return _object_copy(tx, value, {}, deep=False)


def _constant_copy(copier: Callable[[Any], Any], value: Value) -> Value:
    """The same object where Python's own copy is; a size, number or path is copied."""
    real = value.as_constant()
    try:
        copied = copier(real)
    except Exception as error:  # raised where the user calls it
        raise Unsupported(Reason.COPIED_OBJECT, copier, given=(value,)) from error
    return value if copied is real else constant(copied)


@handles(copy.deepcopy)
def _deepcopy(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    if len(args) > 1 or kwargs:
        raise Unsupported(Reason.COPIED_OBJECT, copy.deepcopy, detail="with a memo")
    return deep_copy(tx, args[0], {})


def deep_copy(tx: Translator, value: Value, memo: dict[Value, Value]) -> Value:
    """A deep copy; copies so far are in `memo`, so that one object stays one in the copy."""
    if value in memo:
        return memo[value]
    if isinstance(value, (FunctionValue, NumberValue)):
        return value
    if value.is_constant() and not isinstance(value, TupleValue):
        memo[value] = _constant_copy(copy.deepcopy, value)
        return memo[value]
    if type(value) is ObjectValue:
        return _object_copy(tx, value, memo, deep=True)
    if type(value) is ListValue:
        made = memo[value] = ListValue([], list)
        made.items.extend([deep_copy(tx, item, memo) for item in value.items])
        return made
    if type(value) is TupleValue:
        parts = [deep_copy(tx, item, memo) for item in value.items]
        same = value.kind is tuple and all(a is b for a, b in zip(parts, value.items))
        memo[value] = value if same else TupleValue(parts, value.kind)
        return memo[value]
    if isinstance(value, DictValue) and value.kind is dict:
        copied = memo[value] = DictValue(dict)
        for key, item in value.pairs(tx):
            copied.setitem(tx, deep_copy(tx, key, memo), deep_copy(tx, item, memo))
        return copied
    if isinstance(value, DictValue) and value.has_attributes(tx):
        raise Unsupported(Reason.COPIED_OBJECT, copy.deepcopy, detail=f"of {value.describe()} with attributes")
    if isinstance(value, (DictValue, SetValue)) and value.kind is not frozenset:  # copied, except {}
        if all(item.is_constant() for item in _members(tx, value)):
            memo[value] = value.call_method(tx, "copy", [], {})
            return memo[value]
    raise Unsupported(Reason.COPIED_OBJECT, copy.deepcopy, given=(value,))


def _members(tx: Translator, value: Value) -> list[Value]:
    if isinstance(value, DictValue):
        return [member for pair in value.pairs(tx) for member in pair]
    return list(value.iterate(tx))


def _object_copy(tx: Translator, value: Value, memo: dict[Value, Value], deep: bool) -> Value:
    """A new instance with the attributes of `value`, bypassing its class's `__init__` and `__setattr__`."""
    what = f"copy.{'deepcopy' if deep else 'copy'} of {value.describe()}"
    if type(value) is not ObjectValue or value.storage is not None:
        raise Unsupported(Reason.COPIED_OBJECT, detail=what)
    cls = value.cls
    if deep and lookup(cls, "__deepcopy__") is not MISSING:
        raise Unsupported(Reason.COPIED_OBJECT, detail=what)
    hooked = any(lookup(cls, name) not in (MISSING, getattr(object, name, None)) for name in _HOOKS)
    slotted = any("__slots__" in base.__dict__ for base in cls.__mro__[:-1])
    asked = lookup(cls, "__getattr__") is not MISSING  # on the object, not on its class, for some of the hooks
    if hooked or slotted or asked or lookup(cls, "__new__") is not object.__new__:
        raise Unsupported(Reason.COPIED_OBJECT, detail=what)
    attributes = value.getattr(tx, "__dict__")
    assert isinstance(attributes, DictValue)
    pairs = attributes.pairs(tx)
    if any(key.as_constant() in ("__deepcopy__", *_HOOKS) for key, _ in pairs):
        raise Unsupported(Reason.COPIED_OBJECT, detail=what)
    fresh = memo[value] = new_object(tx, cls)
    for key, item in pairs:
        tx.effects.store_attr(fresh, key.as_constant(), deep_copy(tx, item, memo) if deep else item, raw=True)
    return fresh
