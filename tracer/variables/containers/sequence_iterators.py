"""iter() and reversed() of sequences: they read by index when an item is requested, so they see changes made
meanwhile."""
from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..core.base import Value
from ..core.constant import OneByOneIterator, constant
from ..core.late import late
from .sequences import SequenceValue

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator


class SequenceIterator(OneByOneIterator):
    """iter(sequence), or reversed(sequence) where `step` is -1. `index` is of the next item; negative at the end."""

    __slots__ = ("index", "sequence", "step")

    def __init__(self, sequence: SequenceValue, step: int = 1) -> None:
        super().__init__()
        self.sequence = sequence
        self.step = step
        self.index = 0 if step > 0 else len(sequence.items) - 1

    def python_type(self) -> type:
        """The type of iterators over such a sequence."""
        return type(iter(self.sequence.base()) if self.step > 0 else reversed(self.sequence.base()))

    def next(self, tx: Translator) -> Value | None:
        """The next item; None at the end, for good."""
        index = self.index
        if index < 0 or index >= len(self.sequence.items):
            self.index = -1
            return None
        self.index += self.step
        return self.sequence.items[index]

    def parts(self) -> tuple[Callable[..., Any], list[Value]]:
        """The call that makes an iterator over the same sequence at the same position: function and arguments, the
        sequence first."""
        if self.index > len(self.sequence.items) - (self.step < 0):
            raise Unsupported(Reason.RECONSTRUCT, detail="an iterator over a list that became shorter")
        return iterator_at, [self.sequence, constant(self.index), constant(self.step)]

    def reconstruct(self, codegen: Codegen) -> None:
        """That call, once the sequence has its items."""
        at_start = self.index == 0 and self.step > 0
        if codegen.effects.refills(self.sequence) and not (at_start and self.sequence.base is list):
            raise Unsupported(Reason.RECONSTRUCT, detail="an iterator over a list or deque that changed")
        codegen.call_const(*self.parts())


def iterator_at(sequence: Any, index: int, step: int) -> Any:
    """iter(sequence) (reversed for a `step` of -1) whose next item is number `index`; exhausted for -1."""
    iterator = iter(sequence) if step > 0 else reversed(sequence)
    if index < 0:
        for _ in iterator:
            pass
    elif isinstance(sequence, deque):
        for _ in range(index if step > 0 else len(sequence) - 1 - index):
            next(iterator)
    else:
        iterator.__setstate__(index)
    return iterator


late.sequence_iterator = SequenceIterator
