"""What stands for Values as keys of dicts and items of sets: objects by identity, others by equality."""
from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ..containers.sequences import TupleValue
from .attributes import special
from .base import Value
from .operators import tell_apart
from .registry import is_stable

if TYPE_CHECKING:
    from .base import Translator

_IMMUTABLE = 1 << 8
"""Py_TPFLAGS_IMMUTABLETYPE: no class that a `class` statement makes has it."""


def checked_key(tx: Translator, key: Value) -> Any:
    """What stands for `key` in the dict; TypeError in the program when its type has no hash."""
    check_hash(tx, key)
    found = key.key()
    objects = list(objects_of(found))
    tell_apart(tx, *objects)
    for cls in {value.python_type() for value in objects}:
        special(tx, cls, "__hash__")
        special(tx, cls, "__eq__")
    _guard_identities(tx, key, found)
    return found


def check_hash(tx: Translator, value: Value) -> None:
    """TypeError in the program when the value has no hash, with the name that the type has in C."""
    if not value.is_hashable():
        cls = value.without_hash()
        written_in_c = cls.__flags__ & _IMMUTABLE and cls.__module__ != "builtins"
        name = f"{cls.__module__}.{cls.__name__}" if written_in_c else cls.__name__
        tx.raise_observed(TypeError, f"unhashable type: '{name}'")


def _guard_identities(tx: Translator, key: Value, found: Any) -> None:
    """Functions are keys by identity, and else guarded by what they do; a NaN is, and else guarded as a number."""
    by_identity = isinstance(found, FunctionType) or (isinstance(found, float) and found != found)
    if by_identity and key.source is not None and not is_stable(key.source):
        tx.guards.add(key.source, "ID_MATCH", found)
    elif isinstance(key, TupleValue):
        for item, part in zip(key.items, found):
            _guard_identities(tx, item, part)


def objects_of(key: Any) -> Iterator[Value]:
    """The objects that a key, or a part of it, is found by."""
    if isinstance(key, Value):
        yield key
    elif isinstance(key, (tuple, frozenset)):
        for part in key:
            yield from objects_of(part)
