"""itertools that combine items: those that fetch an item when one is requested, and arrangements of all items."""
from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..core.base import Value
from ..core.constant import SnapshotIterator, constant
from ..core.handlers import handles
from ..core.operators import apply, equal
from .iterators import SteppedIterator, get_iter
from .sequences import make_tuple

if TYPE_CHECKING:
    from ..core.base import Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]


class AccumulateIterator(SteppedIterator):
    """accumulate(iterable, function, initial=...). `total` is None before the first item."""

    __slots__ = ("function", "initial", "total")

    def __init__(self, source: Value, function: Value | None, initial: Value | None) -> None:
        super().__init__(itertools.accumulate, [source])
        self.function = function
        self.initial = initial
        self.total: Value | None = None

    def next(self, tx: Translator) -> Value | None:
        """The total with one more item."""
        if self.initial is not None:
            self.total, self.initial = self.initial, None
            return self.total
        item = self.sources[0].next(tx)
        if item is None:
            return None
        if self.total is None:
            self.total = item
        elif self.function is None:
            self.total = apply(tx, operator.add, self.total, item)
        else:
            self.total = self.function.call(tx, [self.total, item], {})
        return self.total


class PairwiseIterator(SteppedIterator):
    """pairwise(iterable): each item with the previous one, `last`."""

    __slots__ = ("last",)

    def __init__(self, source: Value) -> None:
        super().__init__(itertools.pairwise, [source])
        self.last: Value | None = None

    def next(self, tx: Translator) -> Value | None:
        """The last item and the next one."""
        before = self.last if self.last is not None else self.sources[0].next(tx)
        self.last = item = self.sources[0].next(tx) if before is not None else None
        return make_tuple(tx, [before, item]) if before is not None and item is not None else None


class ZipLongestIterator(SteppedIterator):
    """zip_longest(*iterables, fillvalue=...): `ended` are the indices of the exhausted ones."""

    __slots__ = ("ended", "fill")

    def __init__(self, sources: Args, fill: Value) -> None:
        super().__init__(itertools.zip_longest, sources)
        self.fill = fill
        self.ended: set[int] = set()

    def next(self, tx: Translator) -> Value | None:
        """An item of each, until the last of them has ended."""
        items = []
        for number, source in enumerate(self.sources):
            item = source.next(tx) if number not in self.ended else None
            if item is None:
                self.ended.add(number)
                if len(self.ended) == len(self.sources):
                    return None
                item = self.fill
            items.append(item)
        return make_tuple(tx, items) if items else None


@handles(itertools.accumulate)
def _accumulate(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    given = dict(zip(("iterable", "func"), args)) | dict(kwargs)
    plain = {name: None if _is_none(value) else value for name, value in given.items()}
    return AccumulateIterator(get_iter(tx, given["iterable"]), plain.get("func"), plain.get("initial"))


def _is_none(value: Value) -> bool:
    return value.is_constant() and value.as_constant() is None


@handles(itertools.pairwise)
def _pairwise(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return PairwiseIterator(get_iter(tx, args[0]))


@handles(itertools.zip_longest)
def _zip_longest(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return ZipLongestIterator([get_iter(tx, arg) for arg in args], kwargs.get("fillvalue", constant(None)))


def _arranging(function: Callable[..., object]) -> None:
    """product, permutations, combinations: Python fetches all items first, whatever they are."""

    @handles(function)
    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        many = function is itertools.product
        pools = [list(arg.iterate(tx)) for arg in (args if many else args[:1])]
        rest = [] if many else [arg.as_constant() for arg in args[1:]]
        numbers = {name: value.as_constant() for name, value in kwargs.items()}
        try:
            rows: itertools.product[tuple[Value, ...]] = function(*pools, *rest, **numbers)  # type: ignore[assignment]
        except (TypeError, ValueError) as error:
            raise Unsupported(Reason.RAISES, detail=f"{type(error).__name__}: {error}") from error
        return SnapshotIterator([make_tuple(tx, row) for row in rows], kind=type(rows))


for _arrange in (
    itertools.product, itertools.permutations, itertools.combinations, itertools.combinations_with_replacement,
):  # fmt: skip
    _arranging(_arrange)


class GroupIterator(SteppedIterator):
    """groupby(iterable, key): `ahead` is the item that was fetched but not given to a group yet, with its key."""

    __slots__ = ("ahead", "ahead_key", "current", "function", "group")

    def __init__(self, source: Value, function: Value | None) -> None:
        super().__init__(itertools.groupby, [source])
        self.function = function
        self.ahead: Value | None = None
        self.ahead_key: Value | None = None
        self.group: Value | None = None  # the key of the last group
        self.current: OneGroup | None = None

    def step(self, tx: Translator) -> bool:
        """Fetch one item; whether there was one."""
        item = self.sources[0].next(tx)
        if item is None:
            return False
        key = self.function.call(tx, [item], {}) if self.function is not None else item
        self.ahead, self.ahead_key = item, key
        return True

    def next(self, tx: Translator) -> Value | None:
        """The next key with its group; the rest of the previous group is dropped."""
        self.current = None
        while self.ahead_key is None or (self.group is not None and equal(tx, self.group, self.ahead_key)):
            if not self.step(tx):
                return None
        self.group = self.ahead_key
        self.current = OneGroup(self, self.group)
        return make_tuple(tx, [self.group, self.current])


class OneGroup(SteppedIterator):
    """The items of one group: none once the groupby has moved on."""

    __slots__ = ("group",)

    def __init__(self, groups: GroupIterator, key: Value) -> None:
        super().__init__(itertools._grouper, [groups])  # type: ignore[attr-defined]
        self.group = key

    def next(self, tx: Translator) -> Value | None:
        """The next item with this key."""
        groups = self.sources[0]
        assert isinstance(groups, GroupIterator)
        if groups.current is not self or (groups.ahead is None and not groups.step(tx)):
            return None
        if groups.ahead_key is None or not equal(tx, self.group, groups.ahead_key):
            return None
        item, groups.ahead, groups.ahead_key = groups.ahead, None, None
        return item


@handles(itertools.groupby)
def _groupby(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    key = args[1] if len(args) > 1 else kwargs.get("key")
    return GroupIterator(get_iter(tx, args[0]), None if key is None or _is_none(key) else key)
