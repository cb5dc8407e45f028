"""Functions of the standard library that are written in C, as equivalent Python: heapq, bisect, Counter's helper.

They follow Lib/heapq.py and Lib/bisect.py of CPython, which define the order in which items are compared.
"""
from __future__ import annotations

import _collections
import _heapq
import bisect
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.base import Value
from ..core.handlers import handles
from .functions import make_existing

if TYPE_CHECKING:
    from ..core.base import Translator


# ---- heapq -----------------------------------------------------------------------------------------------------------
def _down(heap: list[Any], start: int, place: int) -> None:
    """Move the item at `place` towards the root, past larger parents, no further than `start`."""
    item = heap[place]
    while place > start:
        parent = (place - 1) >> 1
        if not item < heap[parent]:
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = item


def _up(heap: list[Any], place: int) -> None:
    """Move the smaller child up until a leaf is reached, then the item from there to its position."""
    end, start, item = len(heap), place, heap[place]
    child = 2 * place + 1
    while child < end:
        right = child + 1
        if right < end and not heap[child] < heap[right]:
            child = right
        heap[place] = heap[child]
        place = child
        child = 2 * place + 1
    heap[place] = item
    _down(heap, start, place)


def _heappush(heap: list[Any], item: Any) -> None:
    heap.append(item)
    _down(heap, 0, len(heap) - 1)


def _heappop(heap: list[Any]) -> Any:
    if not heap:
        raise IndexError("index out of range")
    last = heap.pop()
    if not heap:
        return last
    first = heap[0]
    heap[0] = last
    _up(heap, 0)
    return first


def _heapreplace(heap: list[Any], item: Any) -> Any:
    if not heap:
        raise IndexError("index out of range")
    first = heap[0]
    heap[0] = item
    _up(heap, 0)
    return first


def _heappushpop(heap: list[Any], item: Any) -> Any:
    if heap and heap[0] < item:
        first = heap[0]
        heap[0] = item
        _up(heap, 0)
        return first
    return item


def _heapify(heap: list[Any]) -> None:
    for place in reversed(range(len(heap) // 2)):
        _up(heap, place)


# ---- bisect ----------------------------------------------------------------------------------------------------------
def _bisect_right(a: Sequence[Any], x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> int:
    if lo < 0:
        raise ValueError("lo must be non-negative")
    if hi is None:
        hi = len(a)
    while lo < hi:
        middle = (lo + hi) // 2
        if x < (a[middle] if key is None else key(a[middle])):
            hi = middle
        else:
            lo = middle + 1
    return lo


def _bisect_left(a: Sequence[Any], x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> int:
    if lo < 0:
        raise ValueError("lo must be non-negative")
    if hi is None:
        hi = len(a)
    while lo < hi:
        middle = (lo + hi) // 2
        if (a[middle] if key is None else key(a[middle])) < x:
            lo = middle + 1
        else:
            hi = middle
    return lo


def _insort_right(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> None:
    a.insert(_bisect_right(a, x if key is None else key(x), lo, hi, key=key), x)


def _insort_left(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Any = None) -> None:
    a.insert(_bisect_left(a, x if key is None else key(x), lo, hi, key=key), x)


# ---- collections -----------------------------------------------------------------------------------------------------
def _count_elements(mapping: MutableMapping[Any, int], iterable: Iterable[Any]) -> None:
    for item in iterable:
        mapping[item] = mapping.get(item, 0) + 1


_FORMS: dict[Callable[..., Any], Any] = {
    _heapq.heappush: _heappush, _heapq.heappop: _heappop, _heapq.heapreplace: _heapreplace,
    _heapq.heappushpop: _heappushpop, _heapq.heapify: _heapify, bisect.bisect_left: _bisect_left,
    bisect.bisect_right: _bisect_right, bisect.insort_left: _insort_left, bisect.insort_right: _insort_right,
    _collections._count_elements: _count_elements,
    **{form: form for form in (_up, _down, _bisect_left, _bisect_right)},  # the others call it
}  # fmt: skip


def _as_python(function: Callable[..., Any], form: Any) -> None:
    @handles(function)
    def handler(tx: Translator, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        return tx.inline(make_existing(tx, form), args, kwargs)


for _function, _form in _FORMS.items():
    _as_python(_function, _form)
