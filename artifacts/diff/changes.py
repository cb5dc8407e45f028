"""The vocabulary of differences: one change, the changes of one stage, and the comparison of two keyed lists."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ..records import Location, Ref

T = TypeVar("T")

REMOVED, ADDED, CHANGED = "removed", "added", "changed"
SIGNS = {REMOVED: "-", ADDED: "+", CHANGED: "~"}


@dataclass(frozen=True)
class Change:
    """One difference. `first` and `second` are its texts on the two sides, "" where it is absent; `detail` says what
    changed, and `refs` are the items themselves, for links. `times` counts items that changed in the same way."""

    kind: str  # removed | added | changed
    first: str = ""
    second: str = ""
    detail: str = ""
    location: Location | None = None
    refs: tuple[Ref, Ref] = ("", "")
    times: int = 1


@dataclass(frozen=True)
class StageDiff:
    """The differences of one artifact. `same` items are alike; `noun` is what its items are; `notes` are sentences on
    the whole, `why` is set where it was not compared."""

    stage: str
    name: str = ""
    noun: str = "item"
    changes: tuple[Change, ...] = ()
    same: int = 0
    notes: tuple[str, ...] = ()
    why: str = ""

    @property
    def differs(self) -> bool:
        """Whether anything differs."""
        return bool(self.changes)

    def count(self, kind: str) -> int:
        """How many items were removed, added or changed."""
        return sum(change.times for change in self.changes if change.kind == kind)

    @property
    def counts(self) -> str:
        """`2 nodes removed, 1 changed, 30 alike`."""
        parts = [(self.count(kind), kind) for kind in (REMOVED, ADDED, CHANGED)]
        texts = [f"{number} {kind}" for number, kind in parts if number] + [f"{self.same} alike"] * bool(self.same)
        if not texts:
            return f"no {_plural(self.noun)}"
        first, rest = texts[0].split(" ", 1)
        noun = self.noun if first == "1" else _plural(self.noun)
        return ", ".join([f"{first} {noun} {rest}", *texts[1:]])


def _plural(noun: str) -> str:
    return noun[:-1] + "ies" if noun.endswith("body") else noun + "s"


@dataclass(frozen=True)
class Keyed(Generic[T]):
    """How two lists of items of one type are compared: by `key`, which says that two items are the same one, and by
    `content`, which says that they are alike."""

    key: Callable[[T], Hashable]
    content: Callable[[T], Hashable]
    text: Callable[[T], str]
    location: Callable[[T], Location | None] = field(default=lambda item: None)
    item: Callable[[T], Ref] = field(default=lambda item: "")
    detail: Callable[[T, T], str] = field(default=lambda first, second: "")

    def compare(self, first: Sequence[T], second: Sequence[T]) -> tuple[tuple[Change, ...], int]:
        """The changes, in the order of the lists, and how many items are alike. Of one key, those that are
        alike pair before the others, which pair in order."""
        waiting: dict[Hashable, list[T]] = defaultdict(list)
        for item in second:
            waiting[self.key(item)].append(item)
        changes, same = [], 0
        alike = [_take(waiting[self.key(item)], self.content, item) for item in first]
        for item, is_alike in zip(first, alike):
            if is_alike:
                same += 1
            elif partners := waiting[self.key(item)]:
                changes.append(self._both(item, partners.pop(0)))
            else:
                changes.append(self._one(REMOVED, item))
        left = {id(item) for items in waiting.values() for item in items}
        changes += [self._one(ADDED, item) for item in second if id(item) in left]
        return tuple(changes), same

    def _one(self, kind: str, item: T) -> Change:
        text, there = self.text(item), self.item(item)
        if kind == REMOVED:
            return Change(kind, text, "", location=self.location(item), refs=(there, ""))
        return Change(kind, "", text, location=self.location(item), refs=("", there))

    def _both(self, first: T, second: T) -> Change:
        return Change(CHANGED, self.text(first), self.text(second), self.detail(first, second), self.location(second),
                      (self.item(first), self.item(second)))


def _take(waiting: list[T], content: Callable[[T], Hashable], item: T) -> bool:
    """Take an item of the same content out of a list; whether it has one."""
    wanted = content(item)
    place = next((n for n, other in enumerate(waiting) if content(other) == wanted), None)
    if place is not None:
        del waiting[place]
    return place is not None


def merged(changes: Iterable[Change], by: Callable[[Change], Hashable | None]) -> tuple[Change, ...]:
    """Changes of one key (None: of its own) as one, with the number of them."""
    groups: dict[Hashable, list[Change]] = {}
    for number, change in enumerate(changes):
        key = by(change)
        groups.setdefault(("own", number) if key is None else key, []).append(change)
    found = []
    for group in groups.values():
        head = group[0]
        found.append(Change(head.kind, head.first, head.second, head.detail, head.location, head.refs, len(group)))
    return tuple(found)
