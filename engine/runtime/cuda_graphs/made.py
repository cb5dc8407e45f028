"""One capture, ready to be replayed: copies what moves in, runs, and hands out results that lie in its memory."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..runtime import STANDARD
from .facts import GraphFacts
from .policy import Capture
from .pool import Pool
from .statistics import Statistics

_reinterpret = STANDARD["reinterpret"]
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
    """A result in memory of the capture, which `base` keeps."""

    base: torch.Tensor
    size: tuple[int, ...]
    stride: tuple[int, ...]
    saved: bool

    def lent(self) -> torch.Tensor:
        """A new tensor in the same memory."""
        found: torch.Tensor = _reinterpret(self.base, self.size, self.stride, 0)
        return found


class Made:
    """A capture: `replay()` launches it. `outputs` are what the wrapper returned for `inputs` while it was captured."""

    def __init__(
        self, facts: GraphFacts, copied: Sequence[Copied], inputs: Sequence[Any], outputs: Sequence[Any],
        replay: Callable[[], None], statistics: Statistics, pool: Pool,
        views: Callable[..., Sequence[Any]] | None = None,
    ) -> None:
        self.facts, self.copied, self.statistics, self._views = facts, copied, statistics, views
        self.fixed: tuple[list[int], list[int]] = ([], [])  # positions of inputs, and their addresses
        self._replay = replay
        self._makers: list[_Given | _Viewed | _Window] = []
        known: dict[int, int] = {}
        self._places: list[int] = []
        for number, value in enumerate(outputs):
            if id(value) not in known or not isinstance(value, torch.Tensor):
                known[id(value)] = len(self._makers)
                self._makers.append(self._maker(number, value, inputs))
            self._places.append(known[id(value)])
        self._is_plain = len(self._places) == len(self._makers)
        moving = {each.position for each in copied}
        self._written_back = [each for each in copied if each.position in facts.written]
        self._counted = [p for p in facts.counted if p not in moving]
        windows = [maker for maker in self._makers if isinstance(maker, _Window)]
        self.pool, self.results = pool, pool.results([window.base for window in windows])
        self._number = {id(window): self.results.number(window.base) for window in windows}
        self._alone = Counter(self._number.values())
        self._saved = [window.base for window in windows if window.saved]

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
        return _Window(value, tuple(value.shape), value.stride(), number in self.facts.saved)

    def as_capture(self, fixed: dict[int, int], copied: frozenset[int]) -> Capture:
        """What the policy is to know of it."""
        return Capture(fixed, copied, self.results.described(self._saved))

    def fits(self, inputs: Sequence[Any]) -> bool:
        """Whether the inputs that it reads in place lie where they did."""
        positions, addresses = self.fixed
        if _all_at is not None:
            return bool(_all_at(inputs if type(inputs) is list else list(inputs), addresses, positions))
        return addresses == [_address(inputs[p]) for p in positions]

    def is_free(self) -> bool:
        """Whether nobody holds results that a replay could spoil."""
        return self.results.is_free() and self.is_clear()

    def is_clear(self) -> bool:
        """Whether nobody holds results of other captures that a replay could spoil."""
        return self.pool.is_clear(self.results.order)

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
        self.pool.lend(self.results)
        made = self._made(inputs, cloned)
        return tuple(made) if self._is_plain else tuple([made[k] for k in self._places])

    def _made(self, inputs: Sequence[Any], cloned: set[int]) -> list[Any]:
        """The results, each once."""
        copies: dict[int, torch.Tensor] = {}
        views = self._views(*inputs) if self._views is not None else ()
        made: list[Any] = []
        for maker in self._makers:
            if isinstance(maker, _Window):
                kept = cloned and self._number[id(maker)] in cloned
                made.append(maker.lent() if not kept else self._clone(maker, copies))
            elif isinstance(maker, _Viewed):
                made.append(views[maker.number])
            else:
                made.append(maker.value if maker.position < 0 else inputs[maker.position])
        return made

    def _clone(self, window: _Window, copies: dict[int, torch.Tensor]) -> torch.Tensor:
        """The result in memory of its own; `copies` are those of whole storages, which their windows share."""
        self.statistics.cloned += 1
        base, number = window.base, self._number[id(window)]
        if self._alone[number] == 1 and base.is_contiguous() and base.storage_offset() == 0:
            return torch.empty_strided(window.size, window.stride, dtype=base.dtype, device=base.device).copy_(base)
        if number not in copies:
            whole = torch.empty(0, dtype=torch.uint8, device=base.device).set_(base.untyped_storage())
            copies[number] = whole.clone()
        made = torch.empty(0, dtype=base.dtype, device=base.device)
        return made.set_(copies[number].untyped_storage(), base.storage_offset(), window.size, window.stride)
