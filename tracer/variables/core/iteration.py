"""The items of an iterable, one by one."""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .base import Value

if TYPE_CHECKING:
    from .base import Translator


def each(tx: Translator, value: Value, hint: bool = False) -> Iterator[Value]:
    """The items of iter(value), one at a time: code that runs between two of them sees the effects of the first. With
    `hint`, Python reads the length hint."""
    own = type(value)
    if own.iter is Value.iter and own.next is Value.next:
        yield from value.iterate(tx)
        return
    iterator = value.iter(tx) if own.iter is not Value.iter else value
    if hint:
        value.hint(tx)
    while (item := iterator.next(tx)) is not None:
        tx.trace.spend()
        yield item


def collected(tx: Translator, value: Value) -> list[Value]:
    """The items of list(value)."""
    return list(value.iterate(tx) if type(value).hint is Value.hint else each(tx, value, hint=True))
