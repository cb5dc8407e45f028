"""itertools that split the items of one iterable, or select some: tee, compress, batched."""
from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..core.base import Value
from ..core.handlers import handles
from .iterators import SteppedIterator, get_iter
from .sequences import make_tuple
from .slices import as_index

if TYPE_CHECKING:
    from ..core.base import Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]


class TeeIterator(SteppedIterator):
    """One of the iterators of tee(iterable): they share `taken`, the items that one of them has fetched."""

    __slots__ = ("index", "taken")

    def __init__(self, source: Value, taken: list[Value], index: int) -> None:
        super().__init__(itertools._tee, [source])  # type: ignore[attr-defined]
        self.taken = taken
        self.index = index

    def next(self, tx: Translator) -> Value | None:
        """The next item, which the others then share."""
        if self.index == len(self.taken):
            item = self.sources[0].next(tx)
            if item is None:
                return None
            self.taken.append(item)
        self.index += 1
        return self.taken[self.index - 1]


class CompressIterator(SteppedIterator):
    """compress(data, selectors)."""

    __slots__ = ()

    def next(self, tx: Translator) -> Value | None:
        """The next item whose selector is true."""
        data, selectors = self.sources
        while (item := data.next(tx)) is not None and (selector := selectors.next(tx)) is not None:
            if selector.truth(tx):
                return item
        return None


class BatchIterator(SteppedIterator):
    """batched(iterable, count, strict=...) of Python 3.12 and later."""

    __slots__ = ("count", "strict")

    def __init__(self, kind: type, source: Value, count: int, strict: bool) -> None:
        super().__init__(kind, [source])
        self.count = count
        self.strict = strict

    def next(self, tx: Translator) -> Value | None:
        """The next tuple; the last may be shorter."""
        items: list[Value] = []
        while len(items) < self.count and (item := self.sources[0].next(tx)) is not None:
            items.append(item)
        if self.strict and 0 < len(items) < self.count:
            tx.raise_observed(ValueError, "batched(): incomplete batch")
        return make_tuple(tx, items) if items else None


@handles(itertools.tee)
def _tee(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    count = as_index(tx, args[1]) if len(args) > 1 else 2
    if count < 0:
        tx.raise_observed(ValueError, "n must be >= 0")
    source = get_iter(tx, args[0])
    if isinstance(source, TeeIterator):
        first = [source] if sys.version_info < (3, 14) else []  # itself, and copies of it (`tee` in itertoolsmodule.c)
        copies = [TeeIterator(source.sources[0], source.taken, source.index) for _ in range(count - len(first))]
        return make_tuple(tx, [*first, *copies][:count])
    taken: list[Value] = []
    return make_tuple(tx, [TeeIterator(source, taken, 0) for _ in range(count)])


@handles(itertools.compress)
def _compress(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("data", "selectors"), args)) | dict(kwargs)
    return CompressIterator(itertools.compress, [get_iter(tx, given["data"]), get_iter(tx, given["selectors"])])


def _batched(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("iterable", "n"), args)) | dict(kwargs)
    count = as_index(tx, given["n"])
    if count < 1:
        tx.raise_observed(ValueError, "n must be at least one")
    strict = "strict" in given and given["strict"].truth(tx)
    return BatchIterator(itertools.batched, get_iter(tx, given["iterable"]), count, strict)  # type: ignore[attr-defined]


if hasattr(itertools, "batched"):
    handles(itertools.batched)(_batched)
