"""What can be forced: for each decision its other options, and the order in which kinds of decisions are suspected."""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ...artifacts.decision_kinds import COMPILE
from ...artifacts.records import Decision
from ..failures.decisions import Made

LATEST_FIRST: dict[str, tuple[str, ...]] = {
    # generated kernels
    "invariant-masks": ("once",), "half-conversion": ("elementwise",), "accumulators": ("1",),
    "scan-algorithm": ("sequential",), "prefetch": ("none",), "store-policy": ("temporal",),
    "gather-loop": ("vectors",), "row-blocks": ("one-by-one",),
    "vector-width": ("256-bit",), "scatter": ("serial",), "split-reduction": ("1",),
    "parallel-loops": ("serial",), "vector-axis": ("inner",), "split-loop": ("whole",), "unroll": ("loop",),
    "tile": ("rows",), "wrapper": ("python",), "cudagraphs": ("launch",),
    # what rounds where eager does: nothing else changes less, and what it makes right was rounding
    "intermediate-precision": ("eager",),
    # the schedule
    "reuse": ("allocate",), "in-place": ("new-buffer",), "loop-order": (), "operand-layout": ("as-is",),
    "column-sum": ("by-columns",), "horizontal-fusion": ("separate",), "fuse": ("separate",),
    # lowering
    "storage": ("float32", "int64", "float64"), "realize": ("realize",), "concat": ("parts",),
    "variance": ("two-pass",), "lowering": ("extern",),
    # passes, and kernels of libraries
    "weight-grad": ("fused",), "sdpa": ("aten", "math"), "sdpa-mask": ("as-given",),
    "prepack": ("as-stored",), "int8": ("dequantized",), "int8-depthwise": ("onednn",),
    "conv-layout": ("contiguous",), "conv-bias": ("library",),
    "epilogue": ("loops",),
    "pad-mm": ("unpadded",), "unfuse-addmm": ("addmm",), "bmm-to-mm": ("bmm",), "matmul": ("mkl",),
    "triton-matmul": ("library",),
    "freezing": ("keep",), "pass": ("skip",),
    # ATen graphs
    "save-for-backward": ("save",), "memory-budget": ("1.0",), "decompose": ("keep",), "control-flow": ("eager",),
    "ddp-bucket": ("join",),
    # the tracer
    "random": ("break",), "unbacked": ("break",), "dynamic": ("number",), "inline": ("break",), "frame": ("eager",),
}
"""The kinds that can be to blame, the latest of a compilation first, and of each the options that do the least. What is
chosen later changes less of what is generated: where several kinds make it right, the latest is to blame."""

WHOLE_GRAPH = "compile:graph"
"""The decision whether a graph is compiled at all."""


@dataclass(frozen=True)
class Unit:
    """What is forced together: one decision, or all of a kind."""

    name: str
    forced: Mapping[str, str]


def alternatives(decision: Decision, loud: bool = False) -> list[str]:
    """The other options of a decision, what does the least first. One that has such an option already has others only
    if `loud`, and one that has not only if not."""
    quiet = LATEST_FIRST.get(decision.kind)
    if quiet is None or (decision.chosen in quiet) is not loud:
        return []
    others = [name for name in _names(decision) if name != decision.chosen]
    return sorted(others, key=lambda name: name not in quiet)  # a stable sort: the others in their order


def kinds(made: Sequence[Made], scope: str = "", choice: int = 0, loud: bool = False) -> list[Unit]:
    """A unit for each kind: all its decisions take another option, the `choice`th; latest first. Where an option that
    does the least is one of all, a pattern forces it for those that come up meanwhile, too: it begins with
    `scope`."""
    units = []
    for kind, quiet in LATEST_FIRST.items():
        decisions = [m.decision for m in made if m.decision.kind == kind]
        forced = forcing(decisions, choice, loud)
        if not forced:
            continue
        common = [q for q in quiet if all(q in _names(d) for d in decisions)]
        if common and choice == 0 and not loud:
            forced[f"{scope}{kind}:*"] = common[0]
        units.append(Unit(kind, forced))
    return units


def forcing(decisions: Iterable[Decision], choice: int = 0, loud: bool = False) -> dict[str, str]:
    """Each decision's `choice`th other option."""
    found = {}
    for decision in decisions:
        others = alternatives(decision, loud)
        if choice < len(others):
            found[decision.id] = others[choice]
    return found


def union(units: Iterable[Unit]) -> dict[str, str]:
    """What all of them force; single decisions go before patterns."""
    forced: dict[str, str] = {}
    for unit in units:
        forced |= unit.forced
    return dict(sorted(forced.items(), key=lambda item: "*" in item[0]))


def condensed(forced: Mapping[str, str]) -> dict[str, str]:
    """The same forcing without what a pattern of it forces anyway."""
    patterns = {name: option for name, option in forced.items() if "*" in name}

    def is_covered(name: str, option: str) -> bool:
        return any(name != p and fnmatchcase(name, p) and option == o for p, o in patterns.items())

    return {name: option for name, option in forced.items() if not is_covered(name, option)}


def is_wide(name: str) -> bool:
    """Whether a decision is about much: a whole pass, of which each match is a decision, too."""
    return COMPILE.sub("", name).startswith("pass:") and "@" not in name


def _names(decision: Decision) -> list[str]:
    return [option.name for option in decision.options]
