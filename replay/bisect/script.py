"""Bisection of a whole script: runs it under overrides in processes of its own.

Frames and graphs come first: which graphs have to run in eager for the script to be right, then the decisions in those.
A graph that fails by itself on its recorded inputs is bisected in the pool, where a run takes a fraction of a second;
the script is run again for what only shows in it. What comes out has been run with the script as it is.
"""
from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ...artifacts.decision_kinds import OF_TRACER
from ...artifacts.recording import Recording, RecordingError
from ...artifacts.records import Location
from ...dependencies import msgspec
from ..failures.case import Case, ScriptCase
from ..failures.decisions import Made
from ..failures.outcome import PASSED, Outcome
from ..failures.signature import Signature
from ..recorded.graphs import ReplayError
from ..workers.pool import Pool
from ..workers.scripts import Scripts
from .blame import Finding, Guilty, blame
from .candidates import WHOLE_GRAPH, Unit, condensed
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
    words: str = ""  # the last line of its output, where it fails as it is
    right: Outcome = field(default_factory=partial(Outcome, PASSED))  # what comes of it in eager
    best: Forced = field(default_factory=dict)
    known: dict[str, Guilty] = field(default_factory=dict)  # what was found by graphs alone
    made: dict[str, Made] = field(default_factory=dict)

    def find(self) -> Finding:
        """Run it. Ctrl-C ends it with the best so far."""
        start, ran, cpu = time.perf_counter(), self.pool.ran, self.pool.cpu
        self.told("the script, recorded")
        outcome, folder = self.scripts.recorded(self.case)
        if outcome.passed and not (self.case.check or self.case.match or self.case.check_calls):
            self.told("the script, each call checked")
            self.case = replace(self.case, check_calls=True)
            outcome, folder = self.scripts.recorded(self.case)
        self.words = self.scripts.words
        finished, forced = True, {}
        try:
            if outcome.failed:
                forced = self._search(outcome, folder)
        except KeyboardInterrupt:
            finished, forced = False, self.best
        found = condensed(forced).items()
        guilty = tuple(self.known.get(name) or Guilty.of(name, option, self.made) for name, option in found)
        runs, spent = self.pool.ran - ran + self.scripts.ran, self.pool.cpu - cpu + self.scripts.cpu
        return Finding(outcome, guilty, finished, True, runs, time.perf_counter() - start, spent)

    # ---- the search
    def _search(self, outcome: Outcome, folder: Path) -> Forced:
        self.told("the script in eager")
        self.scripts.try_warm(self.case, outcome)
        (eager,) = self.scripts([replace(self.case, compiler="eager")])
        if not eager.passed:
            self.why = FAILS_IN_EAGER if Signature.of(outcome).matches(eager) else f"it fails in eager, too: {eager}"
            return {}
        self.right = eager
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
            if not found.finished:
                raise KeyboardInterrupt
            forced = {f"{compile_id}:{name}": option for name, option in found.overrides.items()}
            if forced and self._passes([{**rest, **forced}])[0]:
                self.known |= {f"{compile_id}:{g.id}": replace(g, id=f"{compile_id}:{g.id}") for g in found.guilty}
                return forced
        there = self.pool.decisions(case)[1] if case is not None else ()
        known = _of_graph(there, compile_id) or _recorded(recording.path, compile_id)
        return self._narrowing(rest, compile_id).among(known)

    def _frames(self, recording: Recording) -> Forced:
        """The guilty frames, or what the tracer decided in them."""
        made = _recorded(recording.path, "")
        self.told("frames")
        whole = self._narrowing().of_kind([m for m in made if m.decision.kind == "frame"])
        self.best = whole
        inside = [m for m in made if m.decision.kind != "frame"]
        found = self._narrowing().among(inside) if whole else {}
        if not whole and not found:
            self.why = NO_DECISION
        return found or whole

    # ---- running
    def _narrowing(self, rest: Mapping[str, str] | None = None, compile_id: str = "") -> Narrowing:
        scope = f"{compile_id}:" if compile_id else ""

        def ask(forced: Mapping[str, str]) -> tuple[bool, Sequence[Made]]:
            outcome, folder = self.scripts.recorded(self._forcing({**(rest or {}), **forced}), self.scripts.warm)
            return self._is_right(outcome), _recorded(folder, compile_id)

        def passes(forcings: Sequence[Mapping[str, str]]) -> Sequence[bool]:
            return self._passes([{**(rest or {}), **forced} for forced in forcings])

        return Narrowing(passes, ask, self.scripts.jobs, self.told, scope, made=self.made)

    def _passes(self, forcings: Sequence[Mapping[str, str]]) -> list[bool]:
        return [self._is_right(o) for o in self.scripts([self._forcing(forced) for forced in forcings])]

    def _is_right(self, outcome: Outcome) -> bool:
        """Whether it passes, and ends as in eager: what crashes says nothing that --match could find."""
        return outcome.passed and outcome.detail == self.right.detail

    def _forcing(self, forced: Mapping[str, str]) -> ScriptCase:
        return replace(self.case, forced={**forced, **self.case.forced})

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


def _recorded(folder: Path, compile_id: str) -> list[Made]:
    """The decisions of a recording: the tracer's, or those of one graph."""
    try:
        with Recording.open(folder) as recording:
            files = {path.rpartition("/")[2]: path for path in recording.sources()}
            made = [Made(d, _place(d.subject, files)) for _, d in recording.decisions(compile_id or None)]
    except RecordingError:
        return []
    return _of_graph(made, compile_id) if compile_id else [m for m in made if m.decision.kind in OF_TRACER]


def _place(subject: str, files: Mapping[str, str]) -> tuple[Location, ...]:
    """The line that a subject names: `helper@model.py:12`."""
    found = re.search(r"@([^@:]+):(\d+)$", subject)
    return (Location(files[found[1]], int(found[2])),) if found and found[1] in files else ()


def _of_graph(made: Iterable[Made], compile_id: str) -> list[Made]:
    """The decisions about a graph, as overrides for one compilation name them."""
    return [
        Made(msgspec.structs.replace(m.decision, id=f"{compile_id}:{m.decision.id}"), m.lines)
        for m in made if m.decision.kind not in OF_TRACER
    ]
