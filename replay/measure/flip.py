"""What another option of one decision changes: the values, the time, the kernels, the code, the other decisions."""
from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...artifacts.decision_kinds import BEFORE_GRAPH
from ...artifacts.records import Decision, Kernel, Schedule, Wrapper
from ..failures.case import Case
from ..failures.decisions import Made
from ..failures.outcome import Outcome
from ..ladder.regenerate import Collector
from ..recorded.graphs import ReplayError
from ..recorded.state import restored
from ..workers.pool import Pool
from .regions import compiled_call, eager_call, one_step
from .timing import Timing, interleaved
from .twins import unnumbered

CONTEXT = 2  # lines of code around a change


@dataclass(frozen=True)
class Side:
    """The graph under one option: what came of it beside eager, its kernels and library calls, and its time, which is
    None where it was not timed."""

    option: str
    outcome: Outcome
    kernels: tuple[str, ...] = ()
    library_calls: tuple[str, ...] = ()
    timing: Timing | None = None

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "option": self.option, "outcome": self.outcome.kind, "detail": self.outcome.detail,
            "node": self.outcome.node, "kernels": list(self.kernels), "library_calls": list(self.library_calls),
            "seconds": self.timing.seconds if self.timing is not None else None,
        }


@dataclass(frozen=True)
class Flip:
    """The graph as recorded, and with the decision forced. `others` are decisions that came out otherwise with it (id,
    before, after; "" for one that was not made); `code` the changed lines of kernels and wrapper."""

    selector: str
    decision: Decision
    before: Side
    after: Side
    eager: Timing | None = None
    others: tuple[tuple[str, str, str], ...] = ()
    code: tuple[str, ...] = ()
    made_up: bool = False

    @property
    def noise(self) -> float:
        """How noisy the times are, as a share of them."""
        return max((t.noise for t in (self.before.timing, self.after.timing) if t is not None), default=0.0)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "selector": self.selector, "decision": self.decision.id, "options": [o.name for o in self.decision.options],
            "before": self.before.document(), "after": self.after.document(),
            "eager_seconds": self.eager.seconds if self.eager is not None else None, "noise": round(self.noise, 4),
            "other_decisions": [{"id": id, "before": before, "after": after} for id, before, after in self.others],
            "code": list(self.code), "inputs": "random" if self.made_up else "recorded",
        }


def other_option(decision: Decision, wanted: str = "") -> str:
    """The option to take: `wanted`, or the only other one. Raises ReplayError where there is none."""
    others = [option.name for option in decision.options if option.name != decision.chosen]
    if decision.kind in BEFORE_GRAPH:
        raise ReplayError(
            f"{decision.id} is decided while the program is traced, before there is a graph to compile again: run the "
            "program with it in a file for `ptdebug run --override`, and compare with `ptdebug diff @~1 @`")
    if not others:
        raise ReplayError(f"{decision.id} = {decision.chosen} is a fact: there is no other option ({decision.why})")
    if wanted and wanted not in others:
        was = "what was chosen" if wanted == decision.chosen else "not an option"
        raise ReplayError(f"{wanted} is {was}: {decision.id} can be {' or '.join(others)}")
    if not wanted and len(others) > 1:
        raise ReplayError(f"{decision.id} was {decision.chosen}; name the option to take: {', '.join(others)}")
    return wanted or others[0]


def flip(case: Case, decision: Decision, option: str, selector: str, pool: Pool) -> Flip:
    """Compile and run `case` as it is and with `option`, first in processes of their own: it may crash. Raises
    ReplayError where one of the two cannot be compiled at all, or the decision does not come up."""
    forced = replace(case, forced={decision.id: option, **_without(case.forced, decision.id)})
    (was, made_before), (now, made_after) = pool.all_decisions([case, forced])
    for name, outcome in ((decision.chosen, was), (option, now)):
        if outcome.kind in ("invalid", "fallback"):
            raise ReplayError(f"with {name}: {outcome.detail}")
    taken = {m.decision.id: m.decision for m in made_after}.get(decision.id)
    if now.passed and (taken is None or taken.chosen != option):
        why = f": {taken.why}" if taken is not None else ": compiled again, the graph does not come to this decision"
        raise ReplayError(f"{decision.id} = {option} was not taken{why}")
    found = Flip(selector, decision, Side(decision.chosen, was), Side(option, now), made_up=case.made_up,
                 others=_others(made_before, made_after, decision.id))
    return _timed(found, case, forced) if was.passed and now.passed else found


def _without(forced: Any, decision: str) -> dict[str, str]:
    return {name: option for name, option in forced.items() if name != decision}


def _others(before: Sequence[Made], after: Sequence[Made], but: str) -> tuple[tuple[str, str, str], ...]:
    first, second = (_by_name(made) for made in (before, after))
    found = []
    for key in dict.fromkeys([*first, *second]):
        (name, was), (new_name, now) = first.get(key, ("", "")), second.get(key, ("", ""))
        if was != now and but not in (name, new_name):
            found.append((name or new_name, was, now))
    return tuple(found)


def _by_name(made: Sequence[Made]) -> dict[tuple[str, int], tuple[str, str]]:
    """Id and option of each decision; those that differ in a kernel's number alone are told apart by their order."""
    found: dict[tuple[str, int], tuple[str, str]] = {}
    seen: Counter[str] = Counter()
    for each in made:
        name = unnumbered(each.decision.id)
        found[name, seen[name]] = (each.decision.id, each.decision.chosen)
        seen[name] += 1
    return found


def _timed(found: Flip, case: Case, forced: Case) -> Flip:
    """With kernels, code and times, which this process measures: both are known to run."""
    records = (Collector(), Collector())
    with restored(case.state, device=case.device), torch.enable_grad():
        calls = [compiled_call(each, collector) for each, collector in zip((case, forced), records)]
        steps = {"before": one_step(case, calls[0]), "after": one_step(forced, calls[1]),
                 "eager": one_step(case, eager_call(case))}
        times = interleaved(steps, case.device)
    before, after = (
        replace(side, kernels=_steps(collector, "loops"), library_calls=_steps(collector, "extern"), timing=times[name])
        for side, collector, name in zip((found.before, found.after), records, ("before", "after")))
    return replace(found, before=before, after=after, eager=times["eager"], code=_code_changes(*records))


def _steps(collector: Collector, kind: str) -> tuple[str, ...]:
    schedules = [record for record in collector.records.values() if isinstance(record, Schedule)]
    return tuple(group.kernel for schedule in schedules for group in schedule.groups if group.kind == kind)


def _code_changes(before: Collector, after: Collector) -> tuple[str, ...]:
    lines: list[str] = []
    for key in dict.fromkeys([*before.records, *after.records]):
        was, now = (_code(collector.records.get(key)) for collector in (before, after))
        if was != now:
            name = ":".join(part for part in key if part)
            lines += difflib.unified_diff(was, now, f"{name} before", f"{name} after", n=CONTEXT, lineterm="")
    return tuple(lines)


def _code(record: Any) -> list[str]:
    return [line.text for line in record.lines] if isinstance(record, (Kernel, Wrapper)) else []
