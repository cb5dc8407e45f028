"""Iterators that compute each item, and those that get items from a user's object: by a call, or by index."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..core.base import ObservedException, Value
from ..core.constant import OneByOneIterator, constant
from ..core.late import late
from ..core.operators import equal

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator


class SteppedIterator(OneByOneIterator):
    """An iterator that computes its next item from `sources`. `kind` is the type that traced code sees."""

    __slots__ = ("kind", "sources")

    def __init__(self, kind: type, sources: Sequence[Value]) -> None:
        super().__init__()
        self.kind = kind
        self.sources = list(sources)

    def python_type(self) -> type:
        """zip, enumerate, itertools.chain, ..."""
        return self.kind

    def ask(self, tx: Translator, function: Value, args: Sequence[Value]) -> Value:
        """function(*args). Raises Unsupported where it raises StopIteration, which would end the consumer's loop."""
        try:
            return function.call(tx, args, {})
        except ObservedException as raised:
            if issubclass(raised.value.python_type(), StopIteration):
                raise Unsupported(Reason.ITERATE, self, detail=", whose function raises StopIteration") from raised
            raise

    def describe(self) -> str:
        """The type."""
        kind = self.kind.__name__
        return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} iterator"


class CallIterator(SteppedIterator):
    """iter(function, sentinel)."""

    __slots__ = ("done",)

    def __init__(self, function: Value, sentinel: Value) -> None:
        super().__init__(type(iter(int, 1)), [function, sentinel])
        self.done = False

    def next(self, tx: Translator) -> Value | None:
        """The function's result, until it equals the sentinel."""
        function, sentinel = self.sources
        if self.done:
            return None
        try:
            item = function.call(tx, [], {})
        except ObservedException as raised:
            if not issubclass(raised.value.python_type(), StopIteration):
                raise
            item = sentinel
        self.done = self.done or equal(tx, sentinel, item)
        return item if not self.done else None

    def reconstruct(self, codegen: Codegen) -> None:
        """The same call, or an exhausted iterator."""
        codegen.call_const(_ended_calls if self.done else iter, [] if self.done else self.sources)


def _ended_calls() -> Iterator[Any]:
    ended = iter(int, 0)
    next(ended, None)
    return ended


class IndexIterator(SteppedIterator):
    """iter(object with `__getitem__` and no `__iter__`): `index` is of the next item, -1 at the end."""

    __slots__ = ("index",)

    def __init__(self, owner: Value) -> None:
        super().__init__(_BY_INDEX, [owner])
        self.index = 0

    def next(self, tx: Translator) -> Value | None:
        """The item at the index, until that raises IndexError."""
        if self.index < 0:
            return None
        try:
            item = self.sources[0].getitem(tx, constant(self.index))
        except ObservedException as raised:
            if not issubclass(raised.value.python_type(), (IndexError, StopIteration)):
                raise
            self.index = -1
            return None
        self.index += 1
        return item

    def reconstruct(self, codegen: Codegen) -> None:
        """The same, at the same position."""
        codegen.call_const(_by_index_at, [self.sources[0], constant(self.index)])


def _by_index_at(owner: Any, index: int) -> Any:
    iterator: Any = iter(owner if index >= 0 else _Ended())
    if index < 0:
        next(iterator, None)
    else:
        iterator.__setstate__(index)
    return iterator


class _Ended:
    def __getitem__(self, index: int) -> Any:
        raise IndexError


_BY_INDEX = type(iter(_Ended()))
late.index_iterator = IndexIterator


class ReversedIterator(SteppedIterator):
    """reversed(object with `__len__` and `__getitem__`): `index` is of the next item."""

    __slots__ = ("index",)

    def __init__(self, owner: Value, index: int) -> None:
        super().__init__(reversed, [owner])
        self.index = index

    def next(self, tx: Translator) -> Value | None:
        """The item before the last one."""
        if self.index < 0:
            return None
        index, self.index = self.index, self.index - 1
        try:
            return self.sources[0].getitem(tx, constant(index))
        except ObservedException as raised:
            self.index = -1
            if not issubclass(raised.value.python_type(), (IndexError, StopIteration)):
                raise
            return None
