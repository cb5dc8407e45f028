"""Rewrites of the ATen graph before lowering: an ordered table of passes, one file for each.

A pass is a function from a graph, changed in place, to the matches it made (records.RuleMatch: the nodes removed, the
nodes added, and why); it asks `May` before each. `run` applies the table in order and records the graph after each pass
that changed it. To add a pass, write its file and add a line to `PASSES`. The rewrites of `freezing/`,
`extern_kernels/` and `reinplace.py` are stages of their own, since they need more than the graph.
"""
from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ...artifacts import records
from ...artifacts.context import CompileContext
from ...artifacts.fx_graphs import graph_record
from ..graphs.functional_graph import AtenGraph
from .choices import May, matches_allowed
from .common_subexpressions import merge_common_subexpressions
from .constant_folding import fold_constants
from .dead_code import remove_dead_code
from .no_ops import remove_no_ops

Rewrite = Callable[[AtenGraph, May], list[records.RuleMatch]]


@dataclass(frozen=True)
class GraphPass:
    name: str
    rewrite: Rewrite


PASSES = (
    GraphPass("dead-code", remove_dead_code),
    GraphPass("no-ops", remove_no_ops),
    GraphPass("constant-folding", fold_constants),
    GraphPass("common-subexpressions", merge_common_subexpressions),
    GraphPass("dead-code-after", remove_dead_code),
)


def run(aten: AtenGraph, context: CompileContext) -> AtenGraph:
    """Apply `PASSES` in order; each is a decision of kind "pass" (options run, skip), and so is each of its matches."""
    changed = False
    for number, graph_pass in enumerate(PASSES):
        if context.decide("pass", graph_pass.name, ["run", "skip"], "run", "a standard pass") == "skip":
            continue
        start = time.perf_counter()
        matches = graph_pass.rewrite(aten, matches_allowed(graph_pass.name, context))
        if not matches:
            continue
        changed = True
        seconds = time.perf_counter() - start
        describe = partial(_record, graph_pass.name, aten, tuple(matches), seconds)
        context.record("passes", describe, f"{number:02d}_{graph_pass.name}")
    if not changed:
        context.absent("passes", "no pass changed the graph")
    return aten


def _record(name: str, aten: AtenGraph, matches: tuple[records.RuleMatch, ...], seconds: float) -> records.Pass:
    return records.Pass(name, graph_record(aten.module.graph, name, "capture"), matches, seconds)
