"""collections.deque: a list with a left end and, optionally, a maximal length."""
from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ...sources.source import Source
from ..core.base import Value, with_arguments
from ..core.constant import constant, fold
from ..core.iteration import each
from ..core.operators import equal
from ..core.registry import builds
from .lists import ListValue
from .sequence_iterators import SequenceIterator
from .sequences import read_items
from .slices import as_index

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator


class DequeValue(ListValue):
    """A collections.deque. `changes` counts what invalidates iterators over it: items added or removed."""

    __slots__ = ("changes", "maxlen")

    def __init__(self, items: Sequence[Value], maxlen: int | None = None, source: Source | None = None) -> None:
        super().__init__(items, deque, source)
        self.maxlen = maxlen
        self.changes = 0
        self.trim()

    def as_constant(self) -> Any:
        """A deque of the current items, for functions that only read it."""
        return deque(super().as_constant(), self.maxlen)

    def trim(self, left: bool = False) -> None:
        """Drop the items over `maxlen`: at the right end after an append at the left, else at the left."""
        if self.maxlen is not None and len(self.items) > self.maxlen:
            self.items[:] = self.items[: self.maxlen] if left else self.items[len(self.items) - self.maxlen :]

    def like(self, items: Sequence[Value]) -> Value:
        """A new deque."""
        return DequeValue(items, self.maxlen)

    def iter(self, tx: Translator) -> Value:
        """An iterator that fails when the deque changes."""
        return DequeIterator(self)

    def reversed(self, tx: Translator) -> Value:
        """The same, from the end."""
        return DequeIterator(self, -1)

    def getattr(self, tx: Translator, name: str) -> Value:
        """maxlen, and methods."""
        if name == "maxlen":
            return constant(self.maxlen)
        if not any(name in base.__dict__ for base in deque.__mro__):  # a metaclass has more
            return fold(tx, getattr, [constant(deque()), constant(name)])  # raises
        return super().getattr(tx, name)

    def getitem(self, tx: Translator, key: Value) -> Value:
        """One item: deques have no slices."""
        self._one(tx, key)
        return super().getitem(tx, key)

    def setitem(self, tx: Translator, key: Value, value: Value) -> None:
        """Assign one item."""
        self._one(tx, key)
        super().setitem(tx, key, value)

    def delitem(self, tx: Translator, key: Value) -> None:
        """Remove one item."""
        self._one(tx, key)
        super().delitem(tx, key)
        self.changes += 1

    def _one(self, tx: Translator, key: Value) -> None:
        """Check that `key` is the index of an item."""
        kind = key.python_type()
        if not hasattr(kind, "__index__"):
            tx.raise_observed(TypeError, f"sequence index must be integer, not '{kind.__name__}'")
        where = as_index(tx, key)
        if not -len(self.items) <= where < len(self.items):
            tx.raise_observed(IndexError, "deque index out of range")

    def binary(self, tx: Translator, function: Callable[..., Any], left: Value, right: Value) -> Value | None:
        """As lists."""
        result = super().binary(tx, function, left, right)
        if left is self and function is operator.imul:
            self.changes += 1
            self.trim()
        return result

    def call_method(self, tx: Translator, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """A method of deques, else as lists."""
        method = _METHODS.get(name)
        if method is None:
            return super().call_method(tx, name, args, kwargs)
        tx.effects.mutated(self)
        result = with_arguments(method, tx, self, *args, **kwargs)
        return result if result is not None else constant(None)

    def reconstruct(self, codegen: Codegen) -> None:
        """deque([...], maxlen)."""
        codegen.push_null()
        codegen.const(deque)
        super().reconstruct(codegen)
        codegen.const(self.maxlen)
        codegen.call(2)


class DequeIterator(SequenceIterator):
    """As for other sequences, but nothing may be added or removed meanwhile."""

    __slots__ = ("changes",)

    def __init__(self, sequence: DequeValue, step: int = 1) -> None:
        super().__init__(sequence, step)
        self.changes = sequence.changes

    def _changed(self) -> bool:
        return self.sequence.changes != self.changes  # type: ignore[attr-defined]

    def next(self, tx: Translator) -> Value | None:
        """The next item."""
        if self._changed():
            tx.raise_observed(RuntimeError, "deque mutated during iteration")
        return super().next(tx)

    def parts(self) -> tuple[Callable[..., Any], list[Value]]:
        """As for other sequences."""
        if self._changed():
            raise Unsupported(Reason.RECONSTRUCT, detail="an iterator over a deque that changed")
        return super().parts()


# ---- methods that change a deque -------------------------------------------------------------------------------------
def _append(tx: Translator, self: DequeValue, item: Value) -> None:
    self.items.append(item)
    self.trim()
    self.changes += 1


def _appendleft(tx: Translator, self: DequeValue, item: Value) -> None:
    self.items.insert(0, item)
    self.trim(left=True)
    self.changes += 1


def _each_of(one: Callable[[Translator, DequeValue, Value], None]) -> Callable[..., None]:
    """The method that calls `one` for each item of its argument."""

    def method(tx: Translator, self: DequeValue, items: Value) -> None:
        for item in list(self.items) if items is self else each(tx, items):
            one(tx, self, item)

    return method


def _init(tx: Translator, self: DequeValue, items: Value | None = None, maxlen: Value | None = None) -> None:
    _clear(tx, self)
    self.maxlen = maxlen.as_constant() if maxlen is not None else None
    if items is not None:
        _each_of(_append)(tx, self, items)


def _pop(tx: Translator, self: DequeValue) -> Value:
    return _taken(tx, self, -1)


def _popleft(tx: Translator, self: DequeValue) -> Value:
    return _taken(tx, self, 0)


def _taken(tx: Translator, self: DequeValue, index: int) -> Value:
    if not self.items:
        tx.raise_observed(IndexError, "pop from an empty deque")
    self.changes += 1
    return self.items.pop(index)


def _insert(tx: Translator, self: DequeValue, index: Value, item: Value) -> None:
    if self.maxlen is not None and len(self.items) >= self.maxlen:
        tx.raise_observed(IndexError, "deque already at its maximum size")
    self.items.insert(as_index(tx, index), item)
    self.changes += 1


def _remove(tx: Translator, self: DequeValue, item: Value) -> None:
    for i, own in enumerate(self.items):
        if equal(tx, own, item):
            del self.items[i]
            self.changes += 1
            return
    tx.raise_observed(ValueError, f"{item.as_constant()!r} is not in deque")


def _rotate(tx: Translator, self: DequeValue, count: Value | None = None) -> None:
    items = deque(self.items)
    items.rotate(as_index(tx, count) if count is not None else 1)
    self.items[:] = items
    self.changes += len(items) > 1


def _clear(tx: Translator, self: DequeValue) -> None:
    self.changes += bool(self.items)
    self.items.clear()


def _iadd(tx: Translator, self: DequeValue, items: Value) -> Value:
    _each_of(_append)(tx, self, items)
    return self


_METHODS: dict[str, Callable[..., Value | None]] = {
    "__init__": _init,
    "__iadd__": _iadd,
    "append": _append,
    "appendleft": _appendleft,
    "extend": _each_of(_append),
    "extendleft": _each_of(_appendleft),
    "insert": _insert,
    "pop": _pop,
    "popleft": _popleft,
    "remove": _remove,
    "rotate": _rotate,
    "clear": _clear,
}


@builds(deque)
def build_deque(tx: Translator, obj: deque[Any], source: Source | None) -> Value:
    """A deque."""
    if source is None or type(obj) is not deque:
        raise Unsupported(Reason.UNKNOWN_TYPE, type(obj))
    return DequeValue(read_items(tx, obj, source), obj.maxlen, source)
