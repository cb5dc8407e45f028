"""From the decisions of something that fails to the fewest of them whose forcing makes it pass.

First whole kinds of decisions are forced, then single ones of the kinds that are left. Both are searches by `search.py`
over what `candidates.py` lists. What comes out has passed as it is.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..failures.decisions import Made
from .candidates import Unit, forcing, is_wide, kinds, union
from .search import first_passing, smallest

ROUNDS = 4  # in which decisions that come up under a forcing are forced as well
CHOICES = 4  # of a decision's other options, how many are tried

Forced = dict[str, str]


@dataclass
class Narrowing:
    """One search. `passes` runs what fails under several forcings; `ask` under one, and tells the decisions made then.
    `width` is how many are run at once, `told` hears how far it is, `best` the smallest forcing so far. Ids of
    decisions, and patterns, begin with `scope` ("0/1:" for one compilation)."""

    passes: Callable[[Sequence[Mapping[str, str]]], Sequence[bool]]
    ask: Callable[[Mapping[str, str]], tuple[bool, Sequence[Made]]]
    width: int = 2
    told: Callable[[str], None] = lambda text: None
    scope: str = ""
    best: Forced = field(default_factory=dict)
    made: dict[str, Made] = field(default_factory=dict)

    def among(self, made: Sequence[Made]) -> Forced:
        """The smallest forcing of these decisions that passes; empty where none does."""
        self._take(made)
        units = self._kinds(kinds(made, self.scope))
        if units:
            return self._single(units)
        for choice, loud in (*((choice, False) for choice in range(1, CHOICES)), (0, True)):
            others = kinds(made, self.scope, choice, loud)
            found = first_passing([[unit] for unit in others], self._test, self.width)
            if found is not None:
                return self._single([others[found]])
        return {}

    def of_kind(self, made: Sequence[Made]) -> Forced:
        """The same of decisions of one kind."""
        self._take(made)
        forced = forcing(m.decision for m in made)
        singles = self._closed([Unit(name, {name: option}) for name, option in forced.items()])
        return {} if singles is None else union(smallest(singles, self._test, self.width, self._found))

    def of_units(self, units: Sequence[Unit]) -> Forced:
        """The fewest of these units that pass; empty where all of them do not."""
        if not units or not self._test([units])[0]:
            return {}
        self.best = union(units)
        return union(smallest(units, self._test, self.width, self._found))

    def _kinds(self, units: list[Unit]) -> list[Unit]:
        """The kinds that together make it pass, as few as possible; none where all of them do not."""
        self.told(f"{len(self.made)} decisions of {len(units)} kinds")
        if not units:
            return []
        if self._test([units])[0]:
            return smallest(units, self._test, self.width, self._found)
        found = first_passing([[unit] for unit in units], self._test, self.width)
        return [] if found is None else [units[found]]

    def _single(self, units: list[Unit]) -> Forced:
        """The single decisions of these kinds that make it pass; patterns where single ones do not."""
        self.best = union(units)
        names = sorted((name for name in self.best if "*" not in name), key=is_wide)
        singles = self._closed([Unit(name, {name: self.best[name]}) for name in names])
        return union(smallest(singles or units, self._test, self.width, self._found))

    def _closed(self, singles: list[Unit]) -> list[Unit] | None:
        """Single decisions that pass without patterns: with those that come up when the first are forced."""
        for _ in range(ROUNDS):
            if not singles:
                return None
            forced = union(singles)
            passes, made = self.ask(forced)
            if passes:
                return singles
            self._take(made)
            of_kinds = {self.made[name].decision.kind for name in forced}
            new = forcing(m.decision for m in made if m.decision.kind in of_kinds and m.decision.id not in forced)
            if not new:
                return None
            singles = [*singles, *(Unit(name, {name: option}) for name, option in new.items())]
        return None

    def _test(self, parts: Sequence[Sequence[Unit]]) -> Sequence[bool]:
        return self.passes([union(part) for part in parts])

    def _found(self, part: Sequence[Unit]) -> None:
        self.best = union(part)
        self.told(", ".join(unit.name for unit in part) if len(part) < 4 else f"{len(part)} of them")

    def _take(self, made: Iterable[Made]) -> None:
        for one in made:
            self.made.setdefault(one.decision.id, one)
