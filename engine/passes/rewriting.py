"""A pass as a stage: the graph changes in place, so what it did is recorded before the next one runs."""
from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ...artifacts.context import CompileContext, Stage
from ...artifacts.fx_graphs import graph_record
from ...artifacts.records import AnyRecord, Pass, RuleMatch
from ..graphs.functional_graph import AtenGraph

AS_IT_IS = "the graph runs as it is, by ATen (compile:graph = aten)"
"""Why there are no passes."""

Matches = tuple[RuleMatch, ...]
Rewrite = Callable[[AtenGraph, CompileContext], tuple[AtenGraph, Matches]]
"""The graph (mostly the one it was given, changed in place), and what was rewritten."""


@dataclass(frozen=True)
class Rewritten:
    """A graph after a pass. `changed`: whether this pass or one before it rewrote anything."""

    aten: AtenGraph
    name: str = ""
    matches: Matches = ()
    seconds: float = 0.0
    changed: bool = False

    def describe(self) -> Iterable[tuple[str, str, AnyRecord]]:
        """The graph and the matches, where there are any."""
        if self.matches:
            title = self.name.partition("_")[2] or self.name
            graph = graph_record(self.aten.module.graph, title, "capture")
            yield "passes", self.name, Pass(title, graph, self.matches, self.seconds)


def pass_stage(name: str, rewrite: Rewrite) -> Stage[Rewritten, Rewritten]:
    """The stage of a pass; `name` is that of its artifact, where it may begin with a number: `01_no-ops`. A graph that
    is to run as it is, by ATen, is left alone."""
    def run(before: Rewritten, context: CompileContext) -> Rewritten:
        if context.way == "aten":
            return Rewritten(before.aten)
        start = time.perf_counter()
        aten, matches = rewrite(before.aten, context)
        seconds = time.perf_counter() - start
        return Rewritten(aten, name, matches, seconds, before.changed or bool(matches))

    return Stage("passes", run, Rewritten.describe, "passes", lambda work: work.aten.module.graph.lint())
