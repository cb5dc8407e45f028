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
    """How much is tried. For one combination of sizes: `places`, captures at a time (for sets of parameters that share
    the code); `captures` of them for one set; `recordings`, made in place of others. Bytes: up to `copied_at_once` an
    input that moves is copied from then on (a larger one when it moves again); results of more than `cloned` bytes that
    stay in use get a second capture rather than copies."""

    warm_up: int = 2
    sizes: int = 8
    places: int = 32
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
    """Capture the wrapper with these inputs copied, in place of `replaces`, and replay it. `place`: where the inputs
    lie that are never copied. `apart`: in memory that it shares with no other capture."""

    place: Addresses
    copied: frozenset[int]
    replaces: Capture | None = None
    moved: tuple[int, ...] = ()
    why: str = ""
    apart: bool = False


@dataclass(frozen=True)
class Replay:
    """Replay a capture."""

    capture: Capture


Action = Launch | Record | Replay
InUse = Callable[[Capture], Sequence[int]]
"""Which results of a capture somebody holds."""

WARM_UP = "warm-up"
IN_USE = "results of an earlier call are in use"
LATER_IN_USE = "results of another graph are in use, where this one has temporaries"
SAVED_IN_USE = "what earlier calls saved for the backward is in use"
MOVED = "an input has moved"
OFTEN = "inputs moved too often"
_REMEMBERED = 256  # sets of addresses


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
    _places: dict[Addresses, list[Capture]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._steady = [k for k, known in enumerate(self.inputs) if known.steady or not known.copyable]

    def decide(self, addresses: Addresses, in_use: InUse, is_clear: Callable[[Capture], bool]) -> Action:
        """What a call with inputs at these addresses does. `is_clear`: whether nobody holds what other captures have
        returned where this one has temporaries."""
        self.calls += 1
        place = tuple([addresses[k] for k in self._steady])
        there = self._places.get(place)
        if self.calls <= self.limits.warm_up:
            self._note_moves(addresses)
            return Launch(WARM_UP)
        if not self.captures:
            self._note_moves(addresses)
            return self._record(place)
        if not there:
            return self._new_place(place, addresses)
        fitting = [capture for capture in there if capture.fits(addresses)]
        if not fitting:
            return self._moved(place, there, addresses)
        for capture in fitting:
            if not in_use(capture) and is_clear(capture):
                capture.held = 0
                return Replay(capture)
        used = in_use(fitting[-1])
        return self._all_in_use(place, fitting, used) if used else self._blocked(place, fitting[-1])

    def recorded(self, capture: Capture, record: Record) -> None:
        """A capture was made, as `record` says."""
        there = self._places.setdefault(record.place, [])
        if record.replaces is not None:
            self.captures.remove(record.replaces)
            there.remove(record.replaces)
        self.captures.append(capture)
        there.append(capture)

    def clone(self, numbers: Sequence[int]) -> None:
        """Results that were held too long are copied from now on; not what a backward will free."""
        results = self.captures[-1].results if self.captures else ()
        self.cloned.update(k for k in numbers if k < len(results) and not results[k].saved)

    def forget(self) -> None:
        """Results that were in use belong to a step that has ended: lend them again, rather than copies."""
        self.cloned.clear()

    # ---- inputs that move
    def _note_moves(self, addresses: Addresses) -> None:
        """While nothing is captured: what moves between two calls is copied."""
        for k, (before, now) in enumerate(zip(self._before, addresses)):
            if before != now and self._may_copy(k):
                self.copied.add(k)
        self._before = addresses

    def _new_place(self, place: Addresses, addresses: Addresses) -> Action:
        """Parameters, or saved tensors, lie where they did not lie before: captured when they do so again."""
        before, self._before = self._before, addresses
        if place not in self._places:
            if len(self._places) >= _REMEMBERED:
                self._places = {key: captures for key, captures in self._places.items() if captures}
            self._places[place] = []
            names = [self.inputs[k].name for k in self._steady if before[k] != addresses[k]]
            return Launch(f"{MOVED}: {_few(names)}" if names else MOVED)
        if len(self.captures) >= self.limits.places:
            return Launch(f"more than {self.limits.places} captures for one combination of sizes")
        return self._record(place, moved=_misfits(self.captures[-1], addresses))

    def _moved(self, place: Addresses, there: Sequence[Capture], addresses: Addresses) -> Action:
        nearest = min(there, key=lambda capture: len(_misfits(capture, addresses)))
        moved = _misfits(nearest, addresses)
        for k in moved:
            self._moves[k] += 1
            if self.inputs[k].bytes <= self.limits.copied_at_once or self._moves[k] > 1:
                self.copied.add(k)
        return self._record(place, nearest, moved)

    def _may_copy(self, position: int) -> bool:
        return self.inputs[position].copyable and not self.inputs[position].steady

    def _record(
        self, place: Addresses, replaces: Capture | None = None, moved: Sequence[int] = (), why: str = ""
    ) -> Action:
        if replaces is not None:
            if self.recordings >= self.limits.recordings:
                return Launch(why or f"{OFTEN} ({self.recordings} captures were made again)")
            self.recordings += 1
        return Record(place, frozenset(self.copied), replaces, tuple(moved), why)

    # ---- results in use
    def _all_in_use(self, place: Addresses, fitting: Sequence[Capture], used: Sequence[int]) -> Action:
        """Every capture that fits has results in use; `used` are those of the last one."""
        capture = fitting[-1]
        capture.held += 1
        size = sum(capture.results[k].bytes for k in used)
        saved = [k for k in used if capture.results[k].saved]
        room = len(fitting) < self.limits.captures and len(self.captures) < self.limits.places
        if (saved or size > self.limits.cloned) and room:
            why = SAVED_IN_USE if saved else IN_USE
            return Record(place, frozenset(self.copied), None, (), why, apart=True)
        if saved:
            return Launch(SAVED_IN_USE)
        if not self.cloned.issuperset(used):
            self.cloned.update(used)
            return Launch(IN_USE)
        if capture.held > 1:  # they are held for long, from before copies were made
            return self._record(place, capture, why=IN_USE)
        return Launch(IN_USE)

    def _blocked(self, place: Addresses, capture: Capture) -> Action:
        """Its temporaries lie where somebody holds a later capture's results: as the latest it gets other memory."""
        capture.held += 1
        return self._record(place, capture, why=LATER_IN_USE) if capture.held > 1 else Launch(LATER_IN_USE)


def _misfits(capture: Capture, addresses: Addresses) -> list[int]:
    return [position for position, address in capture.fixed.items() if addresses[position] != address]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
