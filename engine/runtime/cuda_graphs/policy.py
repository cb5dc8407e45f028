"""What one call of a graph does, given the addresses of its inputs and which earlier results are still in use.

An input that stays where it is (parameters, buffers, states) is read in place by a capture, which is only valid at that
address; one that moves is copied into memory of the capture first. Results lie in memory of the capture: it is not
replayed as long as somebody holds one. Everything is bounded, and each refusal says why.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Addresses = tuple[int, ...]
"""Of the tensors among a call's inputs, in order."""


@dataclass(frozen=True)
class Limits:
    """How much is tried. Bytes: up to `copied_at_once` an input that moves is copied from then on (a larger one when it
    moves again); results of more than `cloned` bytes that stay in use get a second capture rather than copies."""

    warm_up: int = 2
    sizes: int = 8
    captures: int = 2
    recordings: int = 12
    copied_at_once: int = 1 << 20
    cloned: int = 16 << 20


@dataclass(frozen=True)
class Input:
    """A tensor input. `steady`: a parameter, or saved by a forward: never copied. `copyable`: its memory can be laid
    out again (no two elements share a place)."""

    name: str
    bytes: int = 0
    steady: bool = False
    copyable: bool = True


@dataclass(frozen=True)
class Result:
    """A piece of memory that results lie in. `saved`: for the backward, which frees it; never cloned."""

    bytes: int
    saved: bool = False


@dataclass(eq=False)
class Capture:
    """One capture, as the policy sees it: where its uncopied inputs lie (position -> address), its results, and how
    often in a row it could not be replayed because of them."""

    fixed: dict[int, int]
    copied: frozenset[int]
    results: tuple[Result, ...] = ()
    held: int = 0

    def fits(self, addresses: Addresses) -> bool:
        """Whether it reads the inputs of a call."""
        return all(addresses[position] == address for position, address in self.fixed.items())


@dataclass(frozen=True)
class Launch:
    """Run the wrapper, kernel by kernel."""

    why: str


@dataclass(frozen=True)
class Record:
    """Capture the wrapper with these inputs copied, in place of `replaces`, and replay it."""

    copied: frozenset[int]
    replaces: Capture | None = None
    moved: tuple[int, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Replay:
    """Replay a capture."""

    capture: Capture


Action = Launch | Record | Replay
InUse = Callable[[Capture], Sequence[int]]
"""Which results of a capture somebody holds."""

WARM_UP = "warm-up"
IN_USE = "results of an earlier call are in use"
SAVED_IN_USE = "what earlier calls saved for the backward is in use"
MOVED = "an input has moved"
OFTEN = "inputs moved too often"


@dataclass(eq=False)
class Policy:
    """The policy of one graph for one combination of sizes. `cloned` are the results (positions in `Capture.results`)
    that the caller gets a copy of."""

    inputs: Sequence[Input]
    limits: Limits = field(default_factory=Limits)
    captures: list[Capture] = field(default_factory=list)
    copied: set[int] = field(default_factory=set)
    cloned: set[int] = field(default_factory=set)
    calls: int = 0
    recordings: int = 0
    _before: Addresses = ()
    _moves: Counter[int] = field(default_factory=Counter)

    def decide(self, addresses: Addresses, in_use: InUse) -> Action:
        """What a call with inputs at these addresses does."""
        self.calls += 1
        if self.calls <= self.limits.warm_up:
            self._note_moves(addresses)
            return Launch(WARM_UP)
        if not self.captures:
            self._note_moves(addresses)
            return self._record(())
        fitting = [capture for capture in self.captures if capture.fits(addresses)]
        if not fitting:
            return self._moved(addresses)
        for capture in fitting:
            if not in_use(capture):
                capture.held = 0
                return Replay(capture)
        return self._all_in_use(fitting[-1], in_use(fitting[-1]))

    def recorded(self, capture: Capture, replaces: Capture | None) -> None:
        """A capture was made."""
        if replaces is not None:
            self.captures.remove(replaces)
        self.captures.append(capture)

    def forget(self) -> None:
        """Results that were in use belong to a step that has ended: lend them again, rather than copies."""
        self.cloned.clear()

    # ---- inputs that move
    def _note_moves(self, addresses: Addresses) -> None:
        """While nothing is captured: what moves between two calls is copied."""
        for position in self._differing(self._before, addresses):
            if self._may_copy(position):
                self.copied.add(position)
        self._before = addresses

    def _moved(self, addresses: Addresses) -> Action:
        nearest = min(self.captures, key=lambda capture: len(_misfits(capture, addresses)))
        moved = _misfits(nearest, addresses)
        steady = [position for position in moved if not self._may_copy(position)]
        if steady and self._differing(self._before, addresses, steady):
            self._before = addresses  # it may come back: a saved tensor of a forward that was not replayed
            return Launch(f"{MOVED}: {self._names(steady)}")
        for position in moved:
            self._moves[position] += 1
            known = self.inputs[position]
            often = known.bytes <= self.limits.copied_at_once or self._moves[position] > 1
            if self._may_copy(position) and often:
                self.copied.add(position)
        self._before = addresses
        second = steady and len(steady) == len(moved) and len(self.captures) < self.limits.captures
        return self._record(moved, None if second else nearest)

    def _differing(
        self, before: Addresses, addresses: Addresses, positions: Sequence[int] | None = None
    ) -> list[int]:
        if not before:
            return [] if positions is None else list(positions)
        places = range(len(addresses)) if positions is None else positions
        return [position for position in places if before[position] != addresses[position]]

    def _may_copy(self, position: int) -> bool:
        return self.inputs[position].copyable and not self.inputs[position].steady

    def _record(self, moved: Sequence[int], replaces: Capture | None = None, why: str = "") -> Action:
        if self.recordings >= self.limits.recordings:
            return Launch(f"{OFTEN} ({self.recordings} captures were made)" if moved or not why else why)
        self.recordings += 1
        return Record(frozenset(self.copied), replaces, tuple(moved), why)

    def _names(self, positions: Sequence[int]) -> str:
        first = ", ".join(self.inputs[position].name for position in positions[:3])
        return first + (f" and {len(positions) - 3} more" if len(positions) > 3 else "")

    # ---- results in use
    def _all_in_use(self, capture: Capture, used: Sequence[int]) -> Action:
        """Every capture that fits has results in use, of which those in `used` are this one's."""
        capture.held += 1
        size = sum(capture.results[k].bytes for k in used)
        saved = [k for k in used if capture.results[k].saved]
        if (saved or size > self.limits.cloned) and len(self.captures) < self.limits.captures:
            return self._record((), why=SAVED_IN_USE if saved else IN_USE)
        if saved:
            return Launch(SAVED_IN_USE)
        if not self.cloned.issuperset(used):
            self.cloned.update(used)
            return Launch(IN_USE)
        if capture.held > 1:  # they are held for long, from before copies were made
            return self._record((), capture, IN_USE)
        return Launch(IN_USE)


def _misfits(capture: Capture, addresses: Addresses) -> list[int]:
    return [position for position, address in capture.fixed.items() if addresses[position] != address]
