"""Bisection of a recording: which of its graphs fail, and for each of those the decisions to blame.

Of a graph that stock PyTorch compiled, whose decisions are not ptdebug's, the first of its rungs that fails.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...artifacts.recording import Recording
from ..failures.case import COMPILERS, Case
from ..failures.outcome import Outcome
from ..recorded.graphs import ReplayError
from ..workers.pool import Pool
from .blame import SETTING, Finding, Guilty, blame
from .search import smallest

RUNGS = COMPILERS[1:]
"""The backends of stock PyTorch, from the one that does the least."""


@dataclass(frozen=True)
class GraphReport:
    """What is known of one graph. `why` is set where it could not be run; `made_up`: its inputs are random, since none
    were recorded; `rungs` are those of stock's graphs."""

    compile_id: str
    finding: Finding | None = None
    why: str = ""
    made_up: bool = False
    rungs: tuple[tuple[str, Outcome], ...] = ()

    @property
    def outcome(self) -> Outcome | None:
        """What came of the graph as it was compiled."""
        return self.finding.outcome if self.finding is not None else None


def bisect_graphs(
    recording: Recording, compile_ids: Sequence[str], pool: Pool, change: Callable[[Case], Case],
    told: Callable[[str], None] = lambda text: None,
) -> list[GraphReport]:
    """The graphs of `compile_ids`, run all at once; those that fail are bisected, up to Ctrl-C. `change` completes the
    cases."""
    cases: dict[str, Case] = {}
    reports: dict[str, GraphReport] = {}
    for compile_id in compile_ids:
        try:
            cases[compile_id] = change(Case.from_recording(recording, compile_id))
        except ReplayError as error:
            reports[compile_id] = GraphReport(compile_id, why=str(error))
    told(f"{len(cases)} graphs")
    asked = pool.all_decisions(list(cases.values()), but_passing=True)
    finished = True
    for (compile_id, case), (outcome, made) in zip(cases.items(), asked):
        if not finished:
            untried = Finding(outcome, finished=not outcome.failed)
            reports[compile_id] = GraphReport(compile_id, untried, made_up=case.made_up)
        elif case.compiler != "ptdebug":
            reports[compile_id] = _of_stock(compile_id, case, pool)
        elif outcome.failed:
            about = lambda text, compile_id=compile_id: told(f"{compile_id}: {text}")
            finding = blame(case, pool, about, (outcome, made))
            reports[compile_id] = GraphReport(compile_id, finding, made_up=case.made_up)
            finished = finding.finished
        else:
            reports[compile_id] = GraphReport(compile_id, Finding(outcome), made_up=case.made_up)
    return [reports[compile_id] for compile_id in compile_ids]


def _of_stock(compile_id: str, case: Case, pool: Pool) -> GraphReport:
    outcomes = pool([replace(case, compiler=rung) for rung in RUNGS])
    worst = next((outcome for outcome in outcomes if outcome.failed), outcomes[-1])
    guilty = _settings(case, pool) if outcomes[-1].failed and all(o.passed for o in outcomes[:-1]) else ()
    return GraphReport(compile_id, Finding(worst, guilty), "", case.made_up, tuple(zip(RUNGS, outcomes)))


def _settings(case: Case, pool: Pool) -> tuple[Guilty, ...]:
    """The settings of Inductor without which it is right: as few as possible; none where all of them do not matter."""
    def without(parts: Sequence[Sequence[str]]) -> list[bool]:
        cases = [replace(case, options={k: v for k, v in case.options.items() if k not in part}) for part in parts]
        return [outcome.passed for outcome in pool(cases)]

    names = list(case.options)
    if not names or not without([names])[0]:
        return ()
    return tuple(Guilty(f"{SETTING}{name}", str(case.options[name]), "its default", "a setting of Inductor")
                 for name in smallest(names, without, pool.workers))
