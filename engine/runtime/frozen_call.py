"""The call of a graph with frozen inputs: computes the values that depend on them when they are new, and caches them.

Nothing here needs the compiler: a graph loaded from disk runs with it.
"""
from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any

import torch

Compiled = Callable[..., Sequence[Any]]

_VERSION = attrgetter("_version")


@dataclass(frozen=True)
class _Known:
    """The values for one set of tensors as they were: how often each had been written, and where it lay. `watches` end
    with the tensors and with their memory, which another may get that is given to them later (`parameter.data = ...`).
    """

    identities: tuple[int, ...]
    state: tuple[int, ...]
    values: tuple[Any, ...]
    watches: tuple[weakref.ref[Any], ...]


class FrozenCall:
    """`call(*inputs, *fold(*frozen))`, where `fold` runs when a frozen input is another tensor, was written in a way
    that torch counts, or lies elsewhere. The values of each set of tensors are kept as long as all of them are alive:
    models that share the code do not evict each other's.
    """

    def __init__(self, call: Compiled, fold: Compiled, positions: tuple[int, ...]) -> None:
        self.call = call
        self.fold = fold
        self.count = len(positions)
        self.pick = itemgetter(*positions)
        self.latest: _Known | None = None
        self.known: dict[tuple[int, ...], _Known] = {}

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        frozen = self.pick(inputs) if self.count > 1 else (self.pick(inputs),)
        identities, found = tuple(map(id, frozen)), self.latest
        if found is None or found.identities != identities:
            found = self.known.get(identities)
        state = (*map(_VERSION, frozen), *map(torch.Tensor.data_ptr, frozen))
        if found is None or found.state != state:
            found = self._folded(frozen, identities, state)
        self.latest = found
        return self.call(*inputs, *found.values)

    def _folded(self, frozen: tuple[Any, ...], identities: tuple[int, ...], state: tuple[int, ...]) -> _Known:
        owner = weakref.ref(self)

        def forget(_: object) -> None:
            self = owner()
            if self is not None:
                dropped = self.known.pop(identities, None)
                if dropped is self.latest:
                    self.latest = None

        values = tuple(self.fold(*frozen))
        watched = (*frozen, *[tensor.untyped_storage() for tensor in frozen])
        found = _Known(identities, state, values, tuple(weakref.ref(each, forget) for each in watched))
        self.known[identities] = found
        return found
