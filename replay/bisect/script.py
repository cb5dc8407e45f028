"""Bisection of a whole script: runs it under overrides in processes of its own.

Frames and graphs come first: which graphs have to run in eager for the script to be right, then the decisions in those.
A graph that fails by itself on its recorded inputs is bisected in the pool, where a run takes a fraction of a second;
the script is run again for what only shows in it. What comes out has been run with the script as it is.
"""
from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...artifacts.recording import Recording, RecordingError
from ...dependencies import msgspec
from ..failures.case import Case, ScriptCase
from ..failures.decisions import Made
from ..failures.outcome import Outcome
from ..recorded.graphs import ReplayError
from ..workers.pool import Pool
from ..workers.scripts import Scripts
from .blame import Finding, Guilty, blame
from .candidates import OF_TRACER, WHOLE_GRAPH, Unit, condensed
from .narrow import Forced, Narrowing

FAILS_IN_EAGER = "the script fails the same way when nothing is compiled"
NO_DECISION = "no decision of the compiler makes it right, although it is right when nothing is compiled"


@dataclass
class ScriptBisection:
    """One bisection of a script. `change` completes the cases of its graphs; `why` says why nothing was found."""

    case: ScriptCase
    scripts: Scripts
    pool: Pool
    change: Callable[[Case], Case] = lambda case: case
    told: Callable[[str], None] = lambda text: None
    why: str = ""
    best: Forced = field(default_factory=dict)
    known: dict[str, Guilty] = field(default_factory=dict)  # what was found by graphs alone
    made: dict[str, Made] = field(default_factory=dict)

    def find(self) -> Finding:
        """Run it. Ctrl-C ends it with the best so far."""
        start, ran, cpu = time.perf_counter(), self.pool.ran, self.pool.cpu
        self.told("the script, recorded")
        outcome, folder = self.scripts.recorded(self.case)
        finished, forced = True, {}
        try:
            if outcome.failed:
                forced = self._search(outcome, folder)
        except KeyboardInterrupt:
            finished, forced = False, self.best
        found = condensed(forced).items()
        guilty = tuple(self.known.get(name) or Guilty.of(name, option, self.made) for name, option in found)
        runs, spent = self.pool.ran - ran + self.scripts.ran, self.pool.cpu - cpu + self.scripts.cpu
        return Finding(outcome, guilty, finished, runs, time.perf_counter() - start, spent)

    # ---- the search
    def _search(self, outcome: Outcome, folder: Path) -> Forced:
        self.told("the script in eager")
        self.scripts.try_warm(self.case, outcome)
        (eager,) = self.scripts([replace(self.case, compiler="eager")])
        if not eager.passed:
            self.why = FAILS_IN_EAGER
            return {}
        try:
            with Recording.open(folder) as recording:
                return self._graphs(recording) or self._frames(recording)
        except RecordingError as error:
            self.why = f"the script left no recording: {error}"
            return {}

    def _graphs(self, recording: Recording) -> Forced:
        """The guilty graphs, and in each the guilty decisions; empty where it is no graph's compilation."""
        ids = [info.id for info in recording.compiles() if "capture" in recording.stages(info.id)]
        cases = self._cases(recording, ids)
        self.told(f"{len(cases)} graphs by themselves")
        outcomes = dict(zip(cases, self.pool(list(cases.values()))))
        failing = [i for i in ids if i in outcomes and outcomes[i].failed]
        search = self._narrowing()
        whole = search.of_units(_whole(failing)) or (search.of_units(_whole(ids)) if failing != ids else {})
        self.best = whole
        for name in whole:
            compile_id = name.removesuffix(f":{WHOLE_GRAPH}")
            rest = {other: option for other, option in self.best.items() if other != name}
            narrower = self._decisions(recording, compile_id, cases.get(compile_id), outcomes.get(compile_id), rest)
            if narrower:
                self.best = {**rest, **narrower}
        return self.best

    def _decisions(
        self, recording: Recording, compile_id: str, case: Case | None, outcome: Outcome | None, rest: Forced
    ) -> Forced:
        """The guilty decisions in one graph, forced beside `rest`; empty where it is the whole graph."""
        self.told(f"decisions of {compile_id}")
        if case is not None and outcome is not None and outcome.failed:
            found = blame(case, self.pool, lambda text: self.told(f"{compile_id}: {text}"))
            forced = {f"{compile_id}:{name}": option for name, option in found.overrides.items()}
            if forced and self._passes([{**rest, **forced}])[0]:
                self.known |= {f"{compile_id}:{g.id}": replace(g, id=f"{compile_id}:{g.id}") for g in found.guilty}
                return forced
        made_there = self.pool.decisions(case)[1] if case is not None else ()
        known = list(made_there) or [Made(d) for _, d in recording.decisions(compile_id)]
        known = [_scoped(one, compile_id) for one in known if one.decision.kind not in OF_TRACER]
        return self._narrowing(rest, f"{compile_id}:").among(known)

    def _frames(self, recording: Recording) -> Forced:
        """The guilty frames, or what the tracer decided in them."""
        made = [Made(decision) for _, decision in recording.decisions() if decision.kind in OF_TRACER]
        frames = [Unit(m.decision.id, {m.decision.id: "eager"}) for m in made
                  if m.decision.kind == "frame" and m.decision.chosen == "compile"]
        whole = self._narrowing().of_units(frames)
        self.best = whole
        inside = [m for m in made if m.decision.kind != "frame"]
        found = self._narrowing().among(inside) if whole else {}
        if not whole and not found:
            self.why = NO_DECISION
        return found or whole

    # ---- running
    def _narrowing(self, rest: Mapping[str, str] | None = None, scope: str = "") -> Narrowing:
        def ask(forced: Mapping[str, str]) -> tuple[bool, Sequence[Made]]:
            return self._passes([{**(rest or {}), **forced}])[0], ()

        def passes(forcings: Sequence[Mapping[str, str]]) -> Sequence[bool]:
            return self._passes([{**(rest or {}), **forced} for forced in forcings])

        return Narrowing(passes, ask, self.scripts.jobs, self.told, scope, made=self.made)

    def _passes(self, forcings: Sequence[Mapping[str, str]]) -> list[bool]:
        cases = [replace(self.case, forced={**forced, **self.case.forced}) for forced in forcings]
        return [outcome.passed for outcome in self.scripts(cases)]

    def _cases(self, recording: Recording, ids: Sequence[str]) -> dict[str, Case]:
        cases = {}
        for compile_id in ids:
            try:
                cases[compile_id] = self.change(Case.from_recording(recording, compile_id))
            except ReplayError:
                continue  # the script shows it
        return cases


def _whole(ids: Sequence[str]) -> list[Unit]:
    return [Unit(f"graph {i}", {f"{i}:{WHOLE_GRAPH}": "eager"}) for i in ids]


def _scoped(made: Made, compile_id: str) -> Made:
    """The decision as an override for one compilation names it."""
    decision = msgspec.structs.replace(made.decision, id=f"{compile_id}:{made.decision.id}")
    return Made(decision, made.lines)
