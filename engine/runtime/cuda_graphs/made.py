"""One capture, ready to be replayed: copies what moves in, runs, and hands out results that lie in its memory."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..runtime import STANDARD
from .facts import GraphFacts
from .policy import Capture, Result
from .statistics import Statistics

_reinterpret = STANDARD["reinterpret"]
_use_count: Any = torch._C._storage_Use_Count
_address = torch.Tensor.data_ptr
_all_at: Any = getattr(torch._C, "_tensors_data_ptrs_at_indices_equal", None)
"""Compares addresses in C++, where torch was built with CUDA."""


class NotReplayable(Exception):
    """A capture has results that a replay could not make."""


@dataclass(frozen=True)
class Copied:
    """Memory for the input at `position`, with its strides. `size` leaves out the repetitions of a broadcast input."""

    position: int
    memory: torch.Tensor
    size: tuple[int, ...]
    name: str
    bytes: int

    @classmethod
    def of(cls, position: int, tensor: torch.Tensor, name: str, device: torch.device) -> Copied:
        """Memory for a tensor like this one on `device`."""
        size = tuple([1 if stride == 0 else size for size, stride in zip(tensor.shape, tensor.stride())])
        with torch.inference_mode(False):
            memory = torch.empty_strided(size, tensor.stride(), dtype=tensor.dtype, device=device)
            filled = memory.copy_(tensor.detach().as_strided(size, tensor.stride()))
        return cls(position, filled, size, name, filled.numel() * filled.itemsize)

    def as_input(self, tensor: torch.Tensor) -> torch.Tensor:
        """The memory with the sizes of `tensor`."""
        return self.memory.expand(tensor.shape) if self.size != tuple(tensor.shape) else self.memory

    def fill(self, tensor: torch.Tensor) -> None:
        """Copy the values of an input in."""
        if self.size != tensor.shape:
            tensor = tensor.as_strided(self.size, tensor.stride())
        self.memory.copy_(tensor, non_blocking=True)  # it may be one number on the CPU

    def write_back(self, tensor: torch.Tensor) -> None:
        """Copy what the graph has written into the program's tensor."""
        tensor.copy_(self.memory)


@dataclass(frozen=True)
class _Given:
    """A result that is no new tensor: the input at `position`, or (-1) always `value`."""

    position: int
    value: Any = None


@dataclass(frozen=True)
class _Viewed:
    """A result that is a view of an input, the one of this number."""

    number: int


@dataclass(frozen=True)
class _Window:
    """A result in memory of the capture: a window on the storage of `base`, which is number `storage`."""

    base: torch.Tensor
    size: tuple[int, ...]
    stride: tuple[int, ...]
    storage: int
    saved: bool

    def lent(self) -> torch.Tensor:
        """A new tensor in the same memory."""
        found: torch.Tensor = _reinterpret(self.base, self.size, self.stride, 0)
        return found


class Made:
    """A capture: `replay()` launches it. `outputs` are what the wrapper returned for `inputs` while it was captured."""

    def __init__(
        self, facts: GraphFacts, copied: Sequence[Copied], inputs: Sequence[Any], outputs: Sequence[Any],
        replay: Callable[[], None], statistics: Statistics, views: Callable[..., Sequence[Any]] | None = None,
    ) -> None:
        self.facts, self.copied, self.statistics, self._views = facts, copied, statistics, views
        self.fixed: tuple[list[int], list[int]] = ([], [])  # positions of inputs, and their addresses
        self._replay = replay
        self._storages: list[int] = []
        self._bases: list[torch.Tensor] = []  # one in each
        self._one_of: dict[int, int] = {}  # storage -> how many results lie in it
        self._makers: list[_Given | _Viewed | _Window] = []
        known: dict[int, int] = {}
        self._order: list[int] = []
        for number, value in enumerate(outputs):
            if id(value) not in known or not isinstance(value, torch.Tensor):
                known[id(value)] = len(self._makers)
                self._makers.append(self._maker(number, value, inputs))
            self._order.append(known[id(value)])
        self._is_plain = len(self._order) == len(self._makers)
        moving = {each.position for each in copied}
        self._written_back = [each for each in copied if each.position in facts.written]
        self._counted = [p for p in facts.counted if p not in moving]
        self._state = [(s, _use_count(s), base, _address(base)) for s, base in zip(self._storages, self._bases)]

    def _maker(self, number: int, value: Any, inputs: Sequence[Any]) -> _Given | _Viewed | _Window:
        if not isinstance(value, torch.Tensor):
            return _Given(-1, value)
        if number in self.facts.views and self._views is not None:
            return _Viewed(self.facts.views.index(number))
        position = next((p for p in self.facts.tensors if inputs[p] is value), None)
        if position is not None:
            return _Given(position)
        storage = value.untyped_storage()._cdata
        if any(inputs[p] is not None and inputs[p].untyped_storage()._cdata == storage for p in self.facts.tensors):
            raise NotReplayable("a result is a view of an input")
        if value.is_conj() or value.is_neg() or value.layout is not torch.strided:
            raise NotReplayable("a result is lazily conjugated or negated, or not strided")
        if storage not in self._storages:
            self._storages.append(storage)
            self._bases.append(value)
        place = self._storages.index(storage)
        self._one_of[place] = self._one_of.get(place, 0) + 1
        return _Window(value, tuple(value.shape), value.stride(), place, number in self.facts.saved)

    def as_capture(self, fixed: dict[int, int], copied: frozenset[int]) -> Capture:
        """What the policy is to know of it."""
        windows = [maker for maker in self._makers if isinstance(maker, _Window)]
        results = []
        for number in range(len(self._storages)):
            mine = [window for window in windows if window.storage == number]
            results.append(Result(mine[0].base.untyped_storage().nbytes(), any(window.saved for window in mine)))
        return Capture(fixed, copied, tuple(results))

    def fits(self, inputs: Sequence[Any]) -> bool:
        """Whether the inputs that it reads in place lie where they did."""
        positions, addresses = self.fixed
        if _all_at is not None:
            return bool(_all_at(inputs if type(inputs) is list else list(inputs), addresses, positions))
        return addresses == [_address(inputs[p]) for p in positions]

    def in_use(self) -> list[int]:
        """The results (by storage) that somebody holds, or has given other memory (`resize_`)."""
        return [
            number for number, (storage, baseline, base, address) in enumerate(self._state)
            if _use_count(storage) > baseline or _address(base) != address
        ]

    def is_free(self) -> bool:
        """Whether nobody holds a result."""
        for storage, baseline, base, address in self._state:
            if _use_count(storage) > baseline or _address(base) != address:
                return False
        return True

    def replay(self, inputs: Sequence[Any], cloned: set[int]) -> tuple[Any, ...]:
        """The results for new values of the inputs; those in `cloned` have memory of their own."""
        for each in self.copied:
            each.fill(inputs[each.position])
            self.statistics.copied(each.name, each.bytes)
        self._replay()
        for each in self._written_back:
            each.write_back(inputs[each.position])
            self.statistics.copied(each.name, each.bytes)
        if self._counted:
            torch._C._increment_version([inputs[p] for p in self._counted])
        self.statistics.replays += 1
        made = self._made(inputs, cloned)
        return tuple(made) if self._is_plain else tuple([made[k] for k in self._order])

    def _made(self, inputs: Sequence[Any], cloned: set[int]) -> list[Any]:
        """The results, each once."""
        copies: dict[int, torch.Tensor] = {}
        views = self._views(*inputs) if self._views is not None else ()
        made: list[Any] = []
        for maker in self._makers:
            if isinstance(maker, _Window):
                made.append(maker.lent() if maker.storage not in cloned else self._clone(maker, copies))
            elif isinstance(maker, _Viewed):
                made.append(views[maker.number])
            else:
                made.append(maker.value if maker.position < 0 else inputs[maker.position])
        return made

    def _clone(self, window: _Window, copies: dict[int, torch.Tensor]) -> torch.Tensor:
        self.statistics.cloned += 1
        base = window.base
        if self._one_of[window.storage] == 1 and base.is_contiguous() and base.storage_offset() == 0:
            return torch.empty_strided(window.size, window.stride, dtype=base.dtype, device=base.device).copy_(base)
        return _in_copy(window, copies)


def _in_copy(window: _Window, copies: dict[int, torch.Tensor]) -> torch.Tensor:
    """The same window on a copy of the whole storage, which all its windows share."""
    base = window.base
    if window.storage not in copies:
        whole = torch.empty(0, dtype=torch.uint8, device=base.device).set_(base.untyped_storage())
        copies[window.storage] = whole.clone()
    memory = copies[window.storage].untyped_storage()
    made = torch.empty(0, dtype=base.dtype, device=base.device)
    return made.set_(memory, base.storage_offset(), window.size, window.stride)
