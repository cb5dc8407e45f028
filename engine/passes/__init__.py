"""Rewrites of the ATen graph before lowering: an ordered table of passes, one file for each.

A pass is a function from a graph, changed in place, to the matches it made (records.RuleMatch: the nodes removed, the
nodes added, and why); it asks `May` before each (`choices.py`). `run` applies the table in order; the graph after each
pass that changed it is recorded (`rewriting.py`). To add a pass, write its file and add a line to `PASSES`. The
rewrites of `freezing/`, `extern_kernels/` and `reinplace.py` are rows of `../stages.py`, since they need more than the
graph.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...artifacts.context import CompileContext, Stage, run_stages
from ...artifacts.records import RuleMatch
from ..graphs.functional_graph import AtenGraph
from .choices import May, matches_allowed
from .common_subexpressions import merge_common_subexpressions
from .constant_folding import fold_constants
from .dead_code import remove_dead_code
from .no_ops import remove_no_ops
from .rewriting import AS_IT_IS, Matches, Rewrite, Rewritten, pass_stage

Rule = Callable[[AtenGraph, May], list[RuleMatch]]


@dataclass(frozen=True)
class GraphPass:
    name: str
    rewrite: Rule


PASSES = (
    GraphPass("dead-code", remove_dead_code),
    GraphPass("no-ops", remove_no_ops),
    GraphPass("constant-folding", fold_constants),
    GraphPass("common-subexpressions", merge_common_subexpressions),
    GraphPass("dead-code-after", remove_dead_code),
)


def _asked(graph_pass: GraphPass) -> Rewrite:
    """The pass, where it is to run: a decision of kind "pass" (options run, skip), and so is each of its matches."""
    def rewrite(aten: AtenGraph, context: CompileContext) -> tuple[AtenGraph, Matches]:
        if context.decide("pass", graph_pass.name, ["run", "skip"], "run", "a standard pass") == "skip":
            return aten, ()
        return aten, tuple(graph_pass.rewrite(aten, matches_allowed(graph_pass.name, context)))

    return rewrite


def _noted(work: Rewritten, context: CompileContext) -> Rewritten:
    if not work.changed:
        context.absent("passes", AS_IT_IS if context.way == "aten" else "no pass changed the graph")
    return work


STANDARD: tuple[Stage[Rewritten, Rewritten], ...] = (
    *[pass_stage(f"{number:02d}_{found.name}", _asked(found)) for number, found in enumerate(PASSES)],
    Stage("passes", _noted, lambda work: (), "passes"),
)
"""`PASSES` as stages."""


def run(aten: AtenGraph, context: CompileContext) -> AtenGraph:
    """Apply `PASSES` in order."""
    done: Rewritten = run_stages(STANDARD, Rewritten(aten), context)
    return done.aten
