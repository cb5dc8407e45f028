"""Iterators that step others: enumerate, zip, map, filter, reversed, and itertools."""
from __future__ import annotations

import builtins
import enum
import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...breaks.reasons import Reason
from ...breaks.unsupported import Unsupported
from ..core.attributes import can_be_called
from ..core.base import ObservedException, Value
from ..core.constant import SnapshotIterator, constant, is_none
from ..core.handlers import handles
from ..core.late import late
from ..core.operators import apply
from ..python.objects import ObjectValue
from .dict_views import DictView
from .mapping_proxies import MappingProxy
from .mappings import DictValue
from .object_iterators import CallIterator, ReversedIterator, SteppedIterator
from .sequences import SequenceValue, TupleValue, make_tuple
from .slices import as_index

if TYPE_CHECKING:
    from ..core.base import Codegen, Translator

Args = Sequence[Value]
Kwargs = Mapping[str, Value]


def get_iter(tx: Translator, value: Value) -> Value:
    """iter(value). A value that has `next` is its own iterator."""
    if type(value).next is not Value.next and not isinstance(value, ObjectValue):
        return value
    return value.iter(tx)


def _next_of_object(tx: Translator, value: ObjectValue) -> Value | None:
    method = value.method(tx, "__next__")
    if method is None:
        raise Unsupported(Reason.ITERATE, value)
    try:
        return method.call(tx, [], {})
    except ObservedException as raised:
        if not issubclass(raised.value.python_type(), StopIteration):
            raise
        return None


late.next_of = _next_of_object


class ZipIterator(SteppedIterator):
    """zip(*iterables, strict=...)."""

    __slots__ = ("strict",)

    def __init__(self, sources: Sequence[Value], strict: bool) -> None:
        super().__init__(zip, sources)
        self.strict = strict

    def next(self, tx: Translator) -> Value | None:
        """One item of each."""
        items = []
        for i, source in enumerate(self.sources):
            item = source.next(tx)
            if item is None:
                if self.strict:
                    self._check_strict(tx, i)
                return None
            items.append(item)
        return make_tuple(tx, items) if items else None

    def _check_strict(self, tx: Translator, ended: int) -> None:
        shorter = ended if ended else next((i for i, s in enumerate(self.sources[1:], 1) if s.next(tx) is not None), 0)
        if shorter:
            before = "argument 1" if shorter == 1 else f"arguments 1-{shorter}"
            what = "shorter" if ended else "longer"
            tx.raise_observed(ValueError, f"zip() argument {shorter + 1} is {what} than {before}")

    def reconstruct(self, codegen: Codegen) -> None:
        """zip of the iterators."""
        codegen.push_null()
        codegen.const(zip)
        for source in self.sources:
            codegen(source)
        codegen.const(self.strict)
        codegen.call(len(self.sources) + 1, ("strict",))


class EnumerateIterator(SteppedIterator):
    """enumerate(iterable, start)."""

    __slots__ = ("count",)

    def __init__(self, source: Value, count: int) -> None:
        super().__init__(enumerate, [source])
        self.count = count

    def next(self, tx: Translator) -> Value | None:
        """(index, item)."""
        item = self.sources[0].next(tx)
        if item is None:
            return None
        self.count += 1
        return make_tuple(tx, [constant(self.count - 1), item])

    def reconstruct(self, codegen: Codegen) -> None:
        """enumerate of the iterator, from here on."""
        codegen.call_const(enumerate, [self.sources[0], constant(self.count)])


class MapIterator(SteppedIterator):
    """map(function, *iterables); starmap for one iterable of argument tuples."""

    __slots__ = ("function",)

    def __init__(self, kind: type, function: Value, sources: Sequence[Value]) -> None:
        super().__init__(kind, sources)
        self.function = function

    def next(self, tx: Translator) -> Value | None:
        """The function on one item of each."""
        items = []
        for source in self.sources:
            item = source.next(tx)
            if item is None:
                return None
            items.append(item)
        args = items[0].iterate(tx) if self.kind is itertools.starmap else items
        return self.ask(tx, self.function, args)

    def reconstruct(self, codegen: Codegen) -> None:
        """map of the iterators."""
        codegen.call_const(self.kind, [self.function, *self.sources])


class FilterIterator(SteppedIterator):
    """filter, filterfalse, takewhile and dropwhile: items for which the function's truth value is `wanted`."""

    __slots__ = ("done", "function")

    def __init__(self, kind: type, function: Value, source: Value) -> None:
        super().__init__(kind, [source])
        self.function = function
        self.done = False

    def next(self, tx: Translator) -> Value | None:
        """The next item that passes."""
        while not (self.done and self.kind is itertools.takewhile):
            item = self.sources[0].next(tx)
            if item is None:
                return None
            if self.kind is itertools.dropwhile and self.done:
                return item
            passes = self._passes(tx, item)
            if self.kind is itertools.takewhile:
                self.done = not passes
            elif self.kind is itertools.dropwhile:
                self.done = passes = not passes
            elif self.kind is itertools.filterfalse:
                passes = not passes
            if passes:
                return item
        return None

    def _passes(self, tx: Translator, item: Value) -> bool:
        if self.function.is_constant() and self.function.as_constant() is None:
            return item.truth(tx)
        return self.ask(tx, self.function, [item]).truth(tx)

    def reconstruct(self, codegen: Codegen) -> None:
        """The same filter on the iterator."""
        if not self.done:
            codegen.call_const(self.kind, [self.function, *self.sources])
        elif self.kind is itertools.takewhile:
            codegen.call_const(_ended_takewhile, [])
        else:
            codegen.call_const(_passed_dropwhile, self.sources)


def _ended_takewhile() -> Iterator[Any]:
    return itertools.takewhile(bool, ())


def _passed_dropwhile(source: Iterator[Any]) -> Iterator[Any]:
    return itertools.dropwhile(lambda item: False, source)


class ChainIterator(SteppedIterator):
    """chain: `sources` holds one iterator over the iterables, `current` the one being read."""

    __slots__ = ("current",)

    def __init__(self, iterables: Value) -> None:
        super().__init__(itertools.chain, [iterables])
        self.current: Value | None = None

    def next(self, tx: Translator) -> Value | None:
        """The next item of the current iterable, or of those after it."""
        while True:
            if self.current is None:
                iterable = self.sources[0].next(tx)
                if iterable is None:
                    return None
                self.current = get_iter(tx, iterable)
            item = self.current.next(tx)
            if item is not None:
                return item
            self.current = None

    def reconstruct(self, codegen: Codegen) -> None:
        """chain of the remaining iterables."""
        codegen.call_const(_rest_of_chain, self.sources if self.current is None else [*self.sources, self.current])


def _rest_of_chain(iterables: Iterator[Any], *current: Iterator[Any]) -> Iterator[Any]:
    return itertools.chain.from_iterable(itertools.chain(current, iterables) if current else iterables)


class CountIterator(SteppedIterator):
    """count(start, step) and repeat(item, times)."""

    __slots__ = ("left", "value")

    def __init__(self, kind: type, value: Value, step: Value | None, left: int | None) -> None:
        super().__init__(kind, [step] if step is not None else [])
        self.value = value
        self.left = left

    def next(self, tx: Translator) -> Value | None:
        """The next number, or the item again."""
        if self.left is not None:
            if self.left <= 0:
                return None
            self.left -= 1
        item = self.value
        if self.sources:
            self.value = apply(tx, operator.add, item, self.sources[0])
        return item

    def iterate(self, tx: Translator) -> Sequence[Value]:
        """All items; infinite ones are left to eager."""
        if self.left is None:
            raise Unsupported(Reason.ITERATE, self)
        return super().iterate(tx)

    def reconstruct(self, codegen: Codegen) -> None:
        """From here on."""
        more = self.sources or ([] if self.left is None else [constant(self.left)])
        codegen.call_const(self.kind, [self.value, *more])


class CycleIterator(SteppedIterator):
    """cycle(iterable): the items once, then repeatedly from those that were seen."""

    __slots__ = ("index", "seen")

    def __init__(self, source: Value) -> None:
        super().__init__(itertools.cycle, [source])
        self.seen: list[Value] = []
        self.index = 0

    def next(self, tx: Translator) -> Value | None:
        """The next item; None only when there are none at all."""
        item = self.sources[0].next(tx)
        if item is not None:
            self.seen.append(item)
            return item
        if not self.seen:
            return None
        self.index += 1
        return self.seen[(self.index - 1) % len(self.seen)]

    def iterate(self, tx: Translator) -> Sequence[Value]:
        """Endless."""
        raise Unsupported(Reason.ITERATE, self)

    def reconstruct(self, codegen: Codegen) -> None:
        """A cycle of the remaining items, then the seen ones."""
        place = self.index % len(self.seen) if self.seen else 0
        seen = TupleValue([*self.seen[place:], *self.seen[:place]], tuple)
        codegen.call_const(_rest_of_cycle, [*self.sources, seen])


def _rest_of_cycle(source: Iterator[Any], seen: tuple[Any, ...]) -> Iterator[Any]:
    return itertools.cycle(itertools.chain(source, seen) if seen else source)


class IsliceIterator(SteppedIterator):
    """islice(iterable, start, stop, step): the items at `wanted`, `wanted + step`, ... before `stop`."""

    __slots__ = ("position", "step", "stop", "wanted")

    def __init__(self, source: Value, start: int, stop: int | None, step: int) -> None:
        super().__init__(itertools.islice, [source])
        self.position = 0
        self.wanted = start
        self.stop = stop
        self.step = step

    def next(self, tx: Translator) -> Value | None:
        """The next wanted item; those before it are fetched and dropped."""
        while self.stop is None or self.position < self.stop:
            item = self.sources[0].next(tx)
            if item is None:
                break
            self.position += 1
            if self.position - 1 == self.wanted:
                self.wanted += self.step
                return item
        return None

    def reconstruct(self, codegen: Codegen) -> None:
        """islice of the rest."""
        stop = None if self.stop is None else self.stop - self.position
        parts = [constant(self.wanted - self.position), constant(stop), constant(self.step)]
        codegen.call_const(itertools.islice, [self.sources[0], *parts])


# ---- handlers ------------------------------------------------------------------------------------------------------
def _iterators(tx: Translator, values: Args) -> list[Value]:
    return [get_iter(tx, value) for value in values]


@handles(builtins.iter)
def _iter(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1:
        return get_iter(tx, args[0])
    if len(args) != 2 or kwargs:
        raise Unsupported(Reason.RAISES, detail=f"TypeError: iter() with {len(args)} arguments")
    if not can_be_called(tx, args[0]):
        raise Unsupported(Reason.RAISES, detail="TypeError: iter() of what cannot be called")
    return CallIterator(*args)


@handles(builtins.next)
def _next(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    if len(args) not in (1, 2) or kwargs:
        raise Unsupported(Reason.RAISES, detail=f"TypeError: next() with {len(args)} arguments")
    item = args[0].next(tx)
    if item is not None:
        return item
    if len(args) > 1:
        return args[1]
    raise_stop = getattr(args[0], "raise_stop", None)
    return raise_stop(tx) if raise_stop is not None else tx.raise_observed(StopIteration)


@handles(enumerate)
def _enumerate(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    start = args[1] if len(args) > 1 else kwargs.get("start", constant(0))
    source = args[0] if args else kwargs.get("iterable")
    if source is None:
        raise Unsupported(Reason.RAISES, detail="TypeError: the arguments of enumerate")
    return EnumerateIterator(get_iter(tx, source), as_index(tx, start))


@handles(zip)
def _zip(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return ZipIterator(_iterators(tx, args), "strict" in kwargs and kwargs["strict"].truth(tx))


@handles(map)
def _map(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    if len(args) < 2 or kwargs:
        raise Unsupported(Reason.RAISES, detail="TypeError: the arguments of map")
    return MapIterator(map, args[0], _iterators(tx, args[1:]))


@handles(itertools.starmap)
def _starmap(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 2 or kwargs:
        raise Unsupported(Reason.RAISES, detail="TypeError: the arguments of starmap")
    return MapIterator(itertools.starmap, args[0], _iterators(tx, args[1:]))


def _filtering(kind: type) -> None:
    @handles(kind)
    def handler(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
        if len(args) != 2 or kwargs:
            raise Unsupported(Reason.RAISES, detail=f"TypeError: the arguments of {kind.__name__}")
        return FilterIterator(kind, args[0], get_iter(tx, args[1]))


for _kind in (filter, itertools.filterfalse, itertools.takewhile, itertools.dropwhile):
    _filtering(_kind)


@handles(reversed)
def _reversed(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1 or kwargs:
        raise Unsupported(Reason.RAISES, detail=f"TypeError: reversed() with {len(args)} arguments")
    value = args[0]
    if isinstance(value, ObjectValue):
        method = value.method(tx, "__reversed__")
        if method is not None:
            return method.call(tx, [], {})
        if not hasattr(value.cls, "__getitem__") or not hasattr(value.cls, "__len__"):
            raise Unsupported(Reason.UNSUPPORTED_BUILTIN, reversed, given=(value,))
        return ReversedIterator(value, as_index(tx, value.length(tx)) - 1)
    if isinstance(value, (SequenceValue, DictValue, DictView, MappingProxy)):
        return value.reversed(tx)
    if value.is_constant() and issubclass(value.python_type(), (str, bytes, range, enum.EnumMeta)):
        return SnapshotIterator(list(value.iterate(tx))[::-1], reversed, value.as_constant())
    raise Unsupported(Reason.UNSUPPORTED_BUILTIN, reversed, given=(value,))


@handles(itertools.chain)
def _chain(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return ChainIterator(SnapshotIterator(list(args)))


@handles(itertools.chain.from_iterable)
def _chain_from(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return ChainIterator(get_iter(tx, args[0]))


@handles(itertools.count)
def _count(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    start = args[0] if args else kwargs.get("start", constant(0))
    step = args[1] if len(args) > 1 else kwargs.get("step", constant(1))
    for kind in (start.python_type(), step.python_type()):  # PyNumber_Check in Objects/abstract.c
        if not issubclass(kind, complex) and not any(hasattr(kind, m) for m in ("__index__", "__int__", "__float__")):
            return tx.raise_observed(TypeError, "a number is required")
    return CountIterator(itertools.count, start, step, None)


@handles(itertools.repeat)
def _repeat(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    times = args[1] if len(args) > 1 else kwargs.get("times")
    return CountIterator(itertools.repeat, args[0], None, as_index(tx, times) if times is not None else None)


@handles(itertools.cycle)
def _cycle(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    return CycleIterator(get_iter(tx, args[0]))


@handles(itertools.islice)
def _islice(tx: Translator, args: Args, kwargs: Kwargs) -> Value:
    fit = all(is_none(b) or hasattr(b.python_type(), "__index__") for b in args[1:])
    if not fit or not 2 <= len(args) <= 4 or kwargs:
        raise Unsupported(Reason.RAISES, detail="the arguments of islice")
    bounds = [None if is_none(b) else as_index(tx, b) for b in args[1:]]
    part = slice(*bounds)
    if min(part.start or 0, part.stop or 0, 0 if part.step is None else part.step - 1) < 0:
        raise Unsupported(Reason.RAISES, detail="ValueError: a bound of islice that is negative")
    start = part.start or 0
    stop = None if part.stop is None else max(start, part.stop)  # items before the start are fetched all the same
    return IsliceIterator(get_iter(tx, args[0]), start, stop, part.step or 1)
