"""collections.deque: a list with a left end and, maybe, a greatest length."""
from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..sources import Source
from .base import Unsupported, Value
from .constant import constant
from .registry import builds
from .sequences import ListValue, read_items
from .slices import as_index

if TYPE_CHECKING:
    from ..codegen import Codegen
    from ..interpreter import Interpreter


class DequeValue(ListValue):
    """A collections.deque."""

    __slots__ = ("maxlen",)

    def __init__(self, items: Sequence[Value], maxlen: int | None = None, source: Source | None = None) -> None:
        super().__init__(items, deque, source)
        self.maxlen = maxlen
        self.trim()

    def trim(self, left: bool = False) -> None:
        """Drop what is over `maxlen`: at the right end after an append at the left, else at the left."""
        if self.maxlen is not None and len(self.items) > self.maxlen:
            self.items[:] = self.items[: self.maxlen] if left else self.items[len(self.items) - self.maxlen :]

    def like(self, items: Sequence[Value]) -> Value:
        """A new deque."""
        return DequeValue(items, self.maxlen)

    def getattr(self, tx: Interpreter, name: str) -> Value:
        """maxlen, and methods."""
        return constant(self.maxlen) if name == "maxlen" else super().getattr(tx, name)

    def call_method(self, tx: Interpreter, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """As lists, and the left end."""
        if name == "popleft":
            if not self.items:
                tx.raise_observed(IndexError, "pop from an empty deque")
            tx.effects.mutated(self)
            return self.items.pop(0)
        if name in ("appendleft", "extendleft"):
            tx.effects.mutated(self)
            for item in args if name == "appendleft" else args[0].iterate(tx):
                self.items.insert(0, item)
                self.trim(left=True)
            return constant(None)
        if name == "rotate":
            tx.effects.mutated(self)
            items = deque(self.items)
            items.rotate(as_index(tx, args[0]) if args else 1)
            self.items[:] = items
            return constant(None)
        result = super().call_method(tx, name, args, kwargs)
        self.trim()
        return result

    def reconstruct(self, codegen: Codegen) -> None:
        """deque([...], maxlen)."""
        codegen.push_null()
        codegen.const(deque)
        super().reconstruct(codegen)
        codegen.const(self.maxlen)
        codegen.call(2)


@builds(deque)
def build_deque(tx: Interpreter, obj: deque[Any], source: Source | None) -> Value:
    """A deque."""
    if source is None or type(obj) is not deque:
        raise Unsupported("unknown-type", type(obj).__qualname__)
    return DequeValue(read_items(tx, obj, source), obj.maxlen, source)
