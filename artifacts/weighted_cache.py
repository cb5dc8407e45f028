"""A cache that forgets what was used longest ago when what it holds weighs too much."""
from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class WeightedCache(Generic[K, V]):
    """Values with weights, up to `limit` in all; the last value stays, whatever it weighs."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._total = 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def __getitem__(self, key: K) -> V:
        self._values.move_to_end(key)
        return self._values[key][0]

    def put(self, key: K, value: V, weight: int) -> None:
        """Keep a value, and forget others."""
        if key in self._values:
            self._total -= self._values.pop(key)[1]
        self._values[key] = (value, weight)
        self._total += weight
        while self._total > self._limit and len(self._values) > 1:
            _, (_, forgotten) = self._values.popitem(last=False)
            self._total -= forgotten

    def clear(self) -> None:
        """Forget everything."""
        self._values.clear()
        self._total = 0
