"""What represents Values as keys of dicts and items of sets: objects by identity or by their class's own hash, others
by equality."""
from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..containers.sequences import TupleValue
from .attributes import is_python_method, method_of, special
from .base import Value
from .late import late
from .operators import equal, note_identity_comparison
from .registry import from_python, is_stable

if TYPE_CHECKING:
    from .base import Translator

_IMMUTABLE = 1 << 8
"""Py_TPFLAGS_IMMUTABLETYPE: no class that a `class` statement makes has it."""


class HashedKey:
    """An object with a user-defined `__hash__`, with its result: found by this number, then by `__eq__` with another
    key."""

    __slots__ = ("number", "trace", "value")

    def __init__(self, tx: Translator, value: Value, number: int) -> None:
        self.trace = tx.trace
        self.value = value
        self.number = number

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        if isinstance(other, HashedKey) and other.value is self.value:
            return True
        tx = self.trace.active
        assert tx is not None
        # Python calls it once, a dict of the trace perhaps more often
        with tx.effects.sealed(f"__eq__ of {self.value.describe()}, a key,"):
            return equal(tx, self.value, _value_of(tx, other))


def _value_of(tx: Translator, key: Any) -> Value:
    if isinstance(key, HashedKey):
        return key.value
    if isinstance(key, tuple):
        return late.make_tuple(tx, [_value_of(tx, part) for part in key])
    return key if isinstance(key, Value) else from_python(tx, key)


def call_user_hash(tx: Translator, value: Value) -> None:
    """Call the user-defined `__hash__` of the objects in `value`; `key` then has the results."""
    if value.has_user_hash(tx):
        number = hash_of(tx, value)
        before = getattr(value, "hashed", None)
        if before is not None and before.number != number:
            raise Unsupported(
                Reason.UNSUPPORTED_BUILTIN, hash, detail=f"of {value.describe()}, which is another than before,"
            )
        if before is None:
            value.hashed = HashedKey(tx, value, number)  # type: ignore[attr-defined]
    elif isinstance(value, TupleValue):
        for item in value.items:
            call_user_hash(tx, item)


def hash_of(tx: Translator, value: Value) -> int:
    """hash(value). Raises Unsupported where it is known only at run time."""
    check_hash(tx, value)
    cls = value.python_type()
    found = special(tx, cls, "__hash__")
    if value.has_user_hash(tx) and is_python_method(found):
        number = method_of(tx, cls, "__hash__", found).call(tx, [value], {}).as_constant()
        if not isinstance(number, int):
            tx.raise_observed(TypeError, "__hash__ method should return an integer")
        fits = -(sys.maxsize + 1) <= number <= sys.maxsize
        return -2 if number == -1 else int(number) if fits else hash(number)
    storage = getattr(value, "storage", None)  # a subclass of tuple
    if isinstance(value, TupleValue):  # perhaps with its own `__eq__`
        key: Any = tuple(checked_key(tx, item) for item in value.items)
    else:
        key = checked_key(tx, value if storage is None else storage)
    if any(objects_of(key)):
        raise Unsupported(Reason.UNSUPPORTED_BUILTIN, hash, given=(value,))
    return hash(key)


def checked_key(tx: Translator, key: Value) -> Any:
    """What represents `key` in the dict; TypeError in traced code when it is unhashable."""
    check_hash(tx, key)
    call_user_hash(tx, key)
    found = key.key()
    objects = list(objects_of(found))
    note_identity_comparison(tx, *objects)
    for cls in {value.python_type() for value in objects}:
        special(tx, cls, "__hash__")
        special(tx, cls, "__eq__")
    _guard_identities(tx, key, found)
    return found


def check_hash(tx: Translator, value: Value) -> None:
    """TypeError in traced code when the value is unhashable, with CPython's name of the type."""
    if not value.is_hashable():
        cls = value.without_hash()
        written_in_c = cls.__flags__ & _IMMUTABLE and cls.__module__ != "builtins"
        name = f"{cls.__module__}.{cls.__name__}" if written_in_c else cls.__name__
        tx.raise_observed(TypeError, f"unhashable type: '{name}'")


def _guard_identities(tx: Translator, key: Value, found: Any) -> None:
    """Functions are keys by identity, but otherwise guarded by their code; a NaN is a key by identity, but otherwise
    guarded by value."""
    by_identity = isinstance(found, FunctionType) or (isinstance(found, float) and found != found)
    if by_identity and key.source is not None and not is_stable(key.source):
        tx.guards.add(key.source, "ID_MATCH", found)
    elif isinstance(key, TupleValue) and isinstance(found, tuple):
        for item, part in zip(key.items, found):
            _guard_identities(tx, item, part)


def is_plain(key: Any) -> bool:
    """Whether a key is a constant that contains no object of the trace."""
    if isinstance(key, (tuple, frozenset)):
        return all(map(is_plain, key))
    return not isinstance(key, (Value, HashedKey))


def has_hashed(keys: Iterable[Any]) -> bool:
    """Whether a user-defined class decides how one of the keys, or a part of it, is found."""
    return any(
        isinstance(key, HashedKey) or (isinstance(key, (tuple, frozenset)) and has_hashed(key)) for key in keys
    )


def objects_of(key: Any) -> Iterator[Value]:
    """The objects by which a key, or a part of it, is found."""
    if isinstance(key, Value):
        yield key
    elif isinstance(key, (tuple, frozenset)):
        for part in key:
            yield from objects_of(part)
