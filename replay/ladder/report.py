"""What a replay found: the rungs, every value that was compared, the first difference, and the JSON document of it."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from ...artifacts.records import SCHEMA, Location
from ..verdicts.compare import EQUAL, Comparison, worst
from ..verdicts.nonfinite import Birth
from .entry import IN_EAGER


@dataclass(frozen=True)
class Compared:
    """One value of a rung beside the same of the rung that it is held against. `role`: result, input, gradient (what
    the program sees) or node (a value inside of the graph); `node` is the captured node behind it."""

    name: str
    role: str
    comparison: Comparison
    node: str = ""
    location: Location | None = None
    at: dict[str, Any] = field(default_factory=dict)  # the worst place of a different one

    def explained_by(self, whole: Comparison) -> Compared:
        """It, where the difference of the whole rung has been explained."""
        if self.comparison.verdict != "different":
            return self
        found = replace(self.comparison, verdict="rounding", kind=whole.kind, explanation=whole.explanation)
        return replace(self, comparison=found)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        c = self.comparison
        place = {"file": self.location.file, "line": self.location.line} if self.location is not None else {}
        return {"name": self.name, "role": self.role, "verdict": c.verdict, "class": c.classified,
                "max_abs": number(c.max_abs), "max_rel": number(c.max_rel), **place}


@dataclass(frozen=True)
class Rung:
    """One stage run on one device. `why` is set when it could not run, or says how it was judged; `name` is that of one
    pass, where each is a rung; `kernels` are its kernels run alone, each on what it gets in the loop IR."""

    stage: str
    device: str
    verdict: str  # equal | rounding | different | absent
    comparison: Comparison = EQUAL
    seconds: float = 0.0
    why: str = ""
    name: str = ""
    values: tuple[Compared, ...] = ()
    kernels: tuple[Compared, ...] = ()

    def document(self) -> dict[str, Any]:
        """As JSON."""
        c = self.comparison
        found = {
            "stage": self.stage, "device": self.device, "verdict": self.verdict,
            "class": "absent" if self.verdict == "absent" else c.classified, "explanation": c.explanation,
            "max_abs": number(c.max_abs), "max_rel": number(c.max_rel), "seconds": round(self.seconds, 6),
            "why": self.why or c.why, "values_compared": len(self.values),
            "gradients": [v.document() for v in self.values if v.role == "gradient"],
            "nodes": [v.document() for v in self.values if v.role == "node"],
            "kernels": [v.document() for v in self.kernels],
        }
        return {**found, "name": self.name} if self.name else found


@dataclass(frozen=True)
class Difference:
    """The first value that is different: in which stage, which node or buffer, and the program's line behind it.

    `inside` is the kernel, or the line of a kernel or loop body, where that was found out; `at` the place, the value
    and what it should be.
    """

    stage: str
    node: str
    location: Location | None
    comparison: Comparison
    inside: str = ""
    at: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        where, c = self.location, self.comparison
        return {
            "stage": self.stage, "node": self.node, "file": where.file if where else None,
            "line": where.line if where else None, "max_abs": number(c.max_abs), "max_rel": number(c.max_rel),
            "ulp": number(c.ulp), "class": c.classified, "explanation": c.explanation, "inside": self.inside,
            "at": self.at,
        }


@dataclass(frozen=True)
class Report:
    """The result of a replay. `drift` names stages that differ from the recording."""

    selector: str
    rungs: tuple[Rung, ...]
    first: Difference | None = None
    drift: tuple[str, ...] = ()
    births: tuple[Birth, ...] = ()  # where NaNs and infinities come from
    inputs: str = ""  # how they were made up, where their values were not kept

    @property
    def verdict(self) -> str:
        """The worst verdict of all rungs that ran."""
        ran = [r.verdict for r in self.rungs if r.verdict != "absent"]
        return next((v for v in ("different", "rounding") if v in ran), "equal")

    @property
    def classified(self) -> str:
        """The class of the worst rung."""
        return worst([r.comparison for r in self.rungs if r.verdict != "absent"]).classified

    @property
    def coverage(self) -> tuple[int, int]:
        """How many rungs ran, and how many there are: of those that have something to run."""
        counted = [r for r in self.rungs if not (r.verdict == "absent" and r.why in NOTHING_TO_RUN)]
        return sum(r.verdict != "absent" for r in counted), len(counted)

    @property
    def summary(self) -> str:
        """The verdict, its class, and how much of the ladder it covers: "equal as far as run: 1 of 6 rungs"."""
        ran, of = self.coverage
        more = f" ({self.classified})" if self.classified not in (self.verdict, "bug") else ""
        return f"{self.verdict}{more}" + (f" as far as run: {ran} of {of} rungs" if ran < of else "")

    def document(self) -> dict[str, Any]:
        """The JSON document. Infinite distances are given as null."""
        ran, of = self.coverage
        return {
            "schema": SCHEMA, "selector": self.selector, "verdict": self.verdict, "class": self.classified,
            "summary": self.summary, "coverage": {"ran": ran, "rungs": of},
            "first_difference": self.first.document() if self.first is not None else None,
            "rungs": [rung.document() for rung in self.rungs], "drift": list(self.drift),
            "nan": [birth.document() for birth in self.births], "inputs": self.inputs or "recorded",
        }


UNCHANGED = "no pass changed the graph"
NO_SUCH_STAGE = "this compilation has no such stage"
NOTHING_TO_RUN = (UNCHANGED, IN_EAGER)
"""Why a rung is absent that this compilation does not have."""


def number(value: float) -> float | None:
    """A distance in JSON, which has no infinity."""
    return value if value == value and abs(value) != float("inf") else None


def observed(values: Iterable[Compared]) -> list[Compared]:
    """What the program can see."""
    return [value for value in values if value.role != "node"]
