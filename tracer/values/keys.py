"""What stands for Values as keys of dicts and items of sets: objects by identity, others by equality."""
from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any

from .attributes import special
from .base import Value
from .operators import tell_apart
from .registry import is_stable
from .sequences import TupleValue

if TYPE_CHECKING:
    from ..interpreter import Interpreter


def checked_key(tx: Interpreter, key: Value) -> Any:
    """What stands for `key` in the dict; TypeError in the program when its type has no hash."""
    if not key.is_hashable():
        tx.raise_observed(TypeError, f"unhashable type: '{_without_hash(key).__name__}'")
    found = key.key()
    objects = list(objects_of(found))
    tell_apart(tx, *objects)
    for cls in {value.python_type() for value in objects}:
        special(tx, cls, "__hash__")
        special(tx, cls, "__eq__")
    _guard_functions(tx, key, found)
    return found


def _guard_functions(tx: Interpreter, key: Value, found: Any) -> None:
    """Functions are keys by identity, and else guarded by what they do."""
    if isinstance(found, FunctionType) and key.source is not None and not is_stable(key.source):
        tx.guards.add(key.source, "ID_MATCH", found)
    elif isinstance(key, TupleValue):
        for item, part in zip(key.items, found):
            _guard_functions(tx, item, part)


def objects_of(key: Any) -> Iterator[Value]:
    """The objects that a key, or a part of it, is found by."""
    if isinstance(key, Value):
        yield key
    elif isinstance(key, (tuple, frozenset)):
        for part in key:
            yield from objects_of(part)


def _without_hash(key: Value) -> type:
    """The type that has no hash: that of `key`, or of the first such item of a tuple."""
    items = key.items if isinstance(key, TupleValue) else ()
    inner = next((item for item in items if not item.is_hashable()), None)
    return _without_hash(inner) if inner is not None else key.python_type()
