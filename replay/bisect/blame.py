"""From a graph's case that fails to the decisions to blame."""
from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...artifacts.records import Location
from ..failures.case import Case
from ..failures.decisions import Made
from ..failures.outcome import Outcome
from ..workers.pool import Asked, Pool
from .candidates import WHOLE_GRAPH, condensed
from .narrow import Forced, Narrowing

SETTING = "config:"
"""How the id of one of stock's settings begins."""
LEAST_PATIENCE = 15.0
"""Seconds that a run has in any case: it may have to compile."""


@dataclass(frozen=True)
class Guilty:
    """A decision to blame: its id, what it chose, what makes it right, and the lines of the program behind it."""

    id: str
    chosen: str
    forced: str
    why: str = ""
    lines: tuple[Location, ...] = ()

    @classmethod
    def of(cls, name: str, option: str, made: Mapping[str, Made]) -> Guilty:
        """The one of that id (or pattern), forced to `option`."""
        known = made.get(name)
        if known is None:
            return cls(name, "", option)
        return cls(name, known.decision.chosen, option, known.decision.why.partition("\n")[0], known.lines)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        places = [{"file": line.file, "line": line.line} for line in self.lines]
        return {"decision": self.id, "chosen": self.chosen, "forced": self.forced, "why": self.why, "places": places}


@dataclass(frozen=True)
class Finding:
    """What came of a bisection. `guilty` is empty where `outcome` is no failure, or nothing makes it right. `finished`
    is False after an interruption: then it is the best so far. `steady` is False where the case, run once more, does
    not fail, or fails with `guilty` forced: then these may be innocent."""

    outcome: Outcome
    guilty: tuple[Guilty, ...] = ()
    finished: bool = True
    steady: bool = True
    runs: int = 0
    seconds: float = 0.0
    cpu: float = 0.0

    @property
    def whole_graph(self) -> bool:
        """Whether only to compile nothing at all makes it right."""
        return any(g.id.endswith(WHOLE_GRAPH) for g in self.guilty)

    @property
    def overrides(self) -> Forced:
        """What to force: decisions of ptdebug, not stock's settings."""
        return {g.id: g.forced for g in self.guilty if not g.id.startswith(SETTING)}


def blame(
    case: Case, pool: Pool, told: Callable[[str], None] = lambda text: None, known: Asked | None = None
) -> Finding:
    """Bisect a case, of which the outcome and the decisions may be `known`. Ctrl-C ends it with the best so far."""
    start, ran, cpu, limit = time.perf_counter(), pool.ran, pool.cpu, pool.limit

    def forcing(forced: Mapping[str, str]) -> Case:
        return replace(case, forced={**forced, **case.forced})

    def passes(forcings: Sequence[Mapping[str, str]]) -> list[bool]:
        return [outcome.passed for outcome in pool([forcing(forced) for forced in forcings])]

    def ask(forced: Mapping[str, str]) -> tuple[bool, Sequence[Made]]:
        outcome, made = pool.decisions(forcing(forced))
        return outcome.passed, made

    search = Narrowing(passes, ask, pool.workers, told)
    outcome, made = known or pool.decisions(case)
    finished, steady, forced = True, True, {}
    try:
        if outcome.kind == "hang":
            _be_less_patient(pool, forcing({WHOLE_GRAPH: "eager"}))
        if outcome.failed:
            forced = search.among(made)
        if outcome.failed and not forced and passes([{WHOLE_GRAPH: "eager"}])[0]:
            forced = {WHOLE_GRAPH: "eager"}
        if forced:
            fails, right = pool([case, forcing(forced)], again=True)
            steady = fails.failed and right.passed
    except KeyboardInterrupt:
        finished, forced = False, search.best
    finally:
        pool.limit = limit
    guilty = tuple(Guilty.of(name, option, search.made) for name, option in condensed(forced).items())
    return Finding(outcome, guilty, finished, steady, pool.ran - ran, time.perf_counter() - start, pool.cpu - cpu)


def _be_less_patient(pool: Pool, eager: Case) -> None:
    """Of what hangs, most runs take as long as they may: what is right is done sooner."""
    (outcome,) = pool([eager])
    pool.limit = min(pool.limit, max(LEAST_PATIENCE, 20 * outcome.seconds))
