"""From a case that fails to the smallest set of decisions whose forcing makes it pass.

First whole kinds of decisions are forced, then single ones of the kinds that are left. Both are searches by `search.py`
over what `candidates.py` lists. What passes at the end has been run as it is reported.
"""
from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...artifacts.records import Decision, Location
from ..failures.case import Case
from ..failures.decisions import Made
from ..failures.outcome import Outcome
from ..failures.signature import Signature
from ..workers.pool import Pool
from .candidates import WHOLE_GRAPH, Unit, forcing, is_wide, kinds, union
from .search import first_passing, smallest

ROUNDS = 4  # in which decisions that come up under a forcing are forced as well
CHOICES = 4  # of a decision's other options, how many are tried


@dataclass(frozen=True)
class Guilty:
    """A decision to blame: its id, what it chose, what makes it right, and the lines of the program behind it."""

    id: str
    chosen: str
    forced: str
    why: str = ""
    lines: tuple[Location, ...] = ()

    def document(self) -> dict[str, Any]:
        """As JSON."""
        places = [{"file": line.file, "line": line.line} for line in self.lines]
        return {"decision": self.id, "chosen": self.chosen, "forced": self.forced, "why": self.why, "places": places}


@dataclass(frozen=True)
class Finding:
    """What came of a bisection. `guilty` is empty where `outcome` is no failure; `whole`: only to compile nothing at
    all makes it right. `finished` is False after an interruption: then it is the best so far."""

    outcome: Outcome
    guilty: tuple[Guilty, ...] = ()
    whole: bool = False
    finished: bool = True
    runs: int = 0
    seconds: float = 0.0
    cpu: float = 0.0

    @property
    def overrides(self) -> dict[str, str]:
        """What to force."""
        return {g.id: g.forced for g in self.guilty}


@dataclass
class Blame:
    """One bisection. `told` hears how far it is: a sentence."""

    case: Case
    pool: Pool
    told: Callable[[str], None] = lambda text: None
    best: dict[str, str] = field(default_factory=dict)
    made: dict[str, Made] = field(default_factory=dict)
    signature: Signature | None = None

    def find(self) -> Finding:
        """Run it. Ctrl-C ends it with the best so far."""
        start, ran, cpu = time.perf_counter(), self.pool.ran, self.pool.cpu
        outcome, made = self.pool.decisions(self.case)
        self._take(made)
        finished, forced = True, {}
        if outcome.failed:
            self.signature = Signature.of(outcome)
            try:
                forced = self._search(made)
            except KeyboardInterrupt:
                finished, forced = False, self.best
        guilty = tuple(self._guilty(name, option) for name, option in forced.items())
        spent = time.perf_counter() - start, self.pool.cpu - cpu
        return Finding(outcome, guilty, WHOLE_GRAPH in forced, finished, self.pool.ran - ran, *spent)

    # ---- the search
    def _search(self, made: Sequence[Made]) -> dict[str, str]:
        """The smallest forcing that passes; empty where not even eager does."""
        units = self._kinds(kinds(made))
        if units:
            return self._single(units)
        for choice in range(1, CHOICES):
            others = kinds(made, choice)
            found = first_passing([[unit] for unit in others], self._test, self.pool.workers)
            if found is not None:
                return self._single([others[found]])
        whole = Unit(WHOLE_GRAPH, {WHOLE_GRAPH: "eager"})
        return dict(whole.forced) if self._test([[whole]])[0] else {}

    def _kinds(self, units: list[Unit]) -> list[Unit]:
        """The kinds that together make it pass, as few as possible; none where all of them do not."""
        self.told(f"{len(self.made)} decisions of {len(units)} kinds")
        if not units:
            return []
        if self._test([units])[0]:
            return smallest(units, self._test, self.pool.workers, self._found)
        found = first_passing([[unit] for unit in units], self._test, self.pool.workers)
        return [] if found is None else [units[found]]

    def _single(self, units: list[Unit]) -> dict[str, str]:
        """The single decisions of these kinds that make it pass; patterns where single ones do not."""
        self.best = union(units)
        names = sorted((name for name in self.best if "*" not in name), key=is_wide)
        singles = self._closed([Unit(name, {name: self.best[name]}) for name in names])
        if singles is None:
            return union(smallest(units, self._test, self.pool.workers, self._found))
        return union(smallest(singles, self._test, self.pool.workers, self._found))

    def _closed(self, singles: list[Unit]) -> list[Unit] | None:
        """Single decisions that pass without patterns: with those that come up when the first are forced."""
        for _ in range(ROUNDS):
            if not singles:
                return None
            forced = union(singles)
            outcome, made = self.pool.decisions(self._forcing(forced))
            if outcome.passed:
                return singles
            self._take(made)
            of_kinds = {name.partition(":")[0] for name in forced}
            new = forcing(m.decision for m in made if m.decision.kind in of_kinds and m.decision.id not in forced)
            if not new:
                return None
            singles = [*singles, *(Unit(name, {name: option}) for name, option in new.items())]
        return None

    def _test(self, parts: Sequence[Sequence[Unit]]) -> list[bool]:
        return [outcome.passed for outcome in self.pool([self._forcing(union(part)) for part in parts])]

    def _forcing(self, forced: dict[str, str]) -> Case:
        return replace(self.case, forced={**forced, **self.case.forced})

    def _found(self, part: Sequence[Unit]) -> None:
        self.best = union(part)
        self.told(", ".join(unit.name for unit in part) if len(part) < 4 else f"{len(part)} of them")

    # ---- what is known of decisions
    def _take(self, made: Iterable[Made]) -> None:
        for one in made:
            self.made.setdefault(one.decision.id, one)

    def _guilty(self, name: str, option: str) -> Guilty:
        made = self.made.get(name)
        if made is None:  # a pattern
            return Guilty(name, "", option)
        decision: Decision = made.decision
        return Guilty(name, decision.chosen, option, decision.why.partition("\n")[0], made.lines)
