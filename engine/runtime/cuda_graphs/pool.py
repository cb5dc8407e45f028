"""Memory that captures share, and whose results may be in it when a capture is replayed.

Temporaries of one capture may lie where those of another do. What a capture returns is kept as long as the capture is,
so no later capture gets that memory; but it may have been an earlier capture's temporary. So before a replay nobody may
hold results of a later capture, or of this one.
"""
from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from itertools import count
from typing import Any

import torch

from .policy import Policy, Result

_use_count: Any = torch._C._storage_Use_Count
_address = torch.Tensor.data_ptr


class Results:
    """The memory that the results of one capture lie in, and who holds it. `tensors` are those that the capture made;
    they are kept here, so that the use counts of their storages exceed the `baseline` only while somebody else holds
    them. `order` is that of the captures."""

    def __init__(self, tensors: Sequence[torch.Tensor], order: int) -> None:
        self.tensors, self.order = tuple(tensors), order
        self.is_lent = False
        self.policy: weakref.ref[Policy] | None = None
        bases: dict[int, torch.Tensor] = {}
        for tensor in tensors:
            bases.setdefault(tensor.untyped_storage()._cdata, tensor)
        self._numbers = {storage: number for number, storage in enumerate(bases)}
        self._state = [(storage, _use_count(storage), base, _address(base)) for storage, base in bases.items()]

    def number(self, tensor: torch.Tensor) -> int:
        """Which of the storages a tensor lies in."""
        return self._numbers[tensor.untyped_storage()._cdata]

    def described(self, saved: Sequence[torch.Tensor]) -> tuple[Result, ...]:
        """The storages, for a policy; those of `saved` are for the backward."""
        for_backward = {self.number(tensor) for tensor in saved}
        return tuple(Result(base.untyped_storage().nbytes(), number in for_backward)
                     for number, (_, _, base, _) in enumerate(self._state))

    def in_use(self) -> list[int]:
        """The storages that somebody holds, or has given other memory (`resize_`)."""
        return [number for number, (storage, baseline, base, address) in enumerate(self._state)
                if _use_count(storage) > baseline or _address(base) != address]

    def is_free(self) -> bool:
        """Whether nobody holds one."""
        for storage, baseline, base, address in self._state:
            if _use_count(storage) > baseline or _address(base) != address:
                return False
        return True

    def held(self) -> list[int]:
        """The storages that somebody holds where they are."""
        return [number for number, (storage, baseline, base, address) in enumerate(self._state)
                if _use_count(storage) > baseline and _address(base) == address]


class Pool:
    """The memory of the captures for one stream. `lock` is held by what replays or captures."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._order = count()
        self._lent: list[Results] = []

    def results(self, tensors: Sequence[torch.Tensor]) -> Results:
        """The results of a new capture, the latest."""
        held = [each for each in self._lent if each.held()]
        for each in self._lent:
            each.is_lent = each in held
        self._lent = held
        return Results(tensors, next(self._order))

    def lend(self, results: Results) -> None:
        """Somebody gets results: they are watched, also when their capture is there no more."""
        if not results.is_lent:
            results.is_lent = True
            self._lent.append(results)

    def is_clear(self, order: int) -> bool:
        """Whether nobody holds results of later captures than the one of this `order`. Those that are held are cloned
        from now on."""
        later = [results for results in self._lent if results.order > order]
        if not later:
            return True
        held = [(results, numbers) for results in later if (numbers := results.held())]
        for results in later:
            results.is_lent = False
        self._lent = [results for results in self._lent if results.is_lent]
        for results, numbers in held:
            self.lend(results)
            policy = results.policy() if results.policy is not None else None
            if policy is not None:
                policy.clone(numbers)
        return not held
