"""From a failing case to the smallest one found, with its neighbour that passes, as a script that was seen to fail."""
from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..failures.case import Case
from ..failures.outcome import Outcome
from ..failures.signature import Signature
from ..recorded.graphs import ReplayError
from ..repro.graph_source import GraphSource
from ..repro.graphs import REDUCED, case_repro
from ..repro.verify import LIMIT, Verified, verify
from ..workers.pool import LIMIT as CASE_LIMIT, Pool
from .ddmin import Reduction
from .graph import likeness, reduce_graph
from .inputs import refreshed
from .subgraph import computed

NEIGHBOURS = 200  # how many of the last cases that passed are compared with the result
BACK = (1, 2, 4, 8, 16)  # steps, to what is tried where the script of the smallest case does not show the failure
SHARE = 1 / 6  # of the limit, that parts of a case that never ends have
LEAST = 10.0  # and at least so many seconds


@dataclass
class MinifiedGraph:
    """The result of a reduction. `larger` are the cases on the way to the small one, which fail too; `verified` is the
    run of the script in a fresh process, which may take `limit` seconds, once it is written."""

    original: Case
    small: Case
    outcome: Outcome
    passed: Sequence[Case]
    larger: Sequence[Case]
    ran: int
    seconds: float
    interrupted: bool = False
    limit: float = LIMIT
    verified: Verified | None = None
    files: list[Path] = field(default_factory=list)

    @property
    def signature(self) -> Signature:
        """What the original shows, and the result."""
        return Signature.of(self.outcome)

    @property
    def neighbour(self) -> Case | None:
        """Of the last cases that passed, the one most like the small one."""
        return max(self.passed[-NEIGHBOURS:], key=lambda other: likeness(other, self.small), default=None)

    def operators(self) -> int:
        """How many operators are left."""
        return len(computed(self.small.graph))


def minify_graph(
    case: Case, outcome: Outcome, pool: Pool, progress: Callable[[Case, int], None] = lambda case, ran: None
) -> MinifiedGraph:
    """Reduce `case`, which was seen to fail with `outcome`. After Ctrl-C the result is the best so far."""
    started, signature = time.perf_counter(), Signature.of(outcome)
    passed: list[Case] = []
    larger = [case]

    def judge(cases: Sequence[Case]) -> list[bool]:
        found = pool(cases)
        passed.extend(c for c, o in zip(cases, found) if o.passed)
        # a graph that computes nothing is none in a script
        return [signature.matches(o) and bool(computed(c.graph)) for c, o in zip(cases, found)]

    def smaller(best: Case) -> None:
        larger.append(best)
        progress(best, pool.ran)

    reduction = Reduction(case, judge, pool.workers, smaller)
    interrupted, limit = False, max(CASE_LIMIT, pool.limit) if outcome.kind == "hang" else LIMIT
    try:
        with _shorter_limit(pool, outcome):
            reduce_graph(reduction)
    except KeyboardInterrupt:
        interrupted = True
    small = reduction.best
    with suppress(Exception):  # shapes for those who read it
        small = refreshed(small)
    seconds = time.perf_counter() - started
    return MinifiedGraph(case, small, outcome, passed, larger[:-1], pool.ran, seconds, interrupted, limit)


@contextmanager
def _shorter_limit(pool: Pool, outcome: Outcome) -> Iterator[None]:
    """Most parts of a case that never ends do not end either, and each would take the whole limit: they get less time.
    A part that is only slow may be taken for one; the script of the smallest has the whole limit to end."""
    whole = pool.limit
    if outcome.kind == "hang":
        pool.limit = min(whole, max(LEAST, SHARE * whole))
    try:
        yield
    finally:
        pool.limit = whole


def write_minified(minified: MinifiedGraph, path: Path, facts: Sequence[str] = ()) -> None:
    """Write the script (and its tensors), and run it in a fresh process. Where that, which captures the graph anew,
    does not show the failure, a larger case is written."""
    earlier = [minified.larger[-step] for step in BACK if step <= len(minified.larger)]
    for case in (minified.small, *earlier, minified.small):
        minified.small = case
        _write(minified, path, facts)
        assert minified.verified is not None
        if minified.verified.shows(minified.signature):
            break


def _write(minified: MinifiedGraph, path: Path, facts: Sequence[str]) -> None:
    small, count = minified.small, minified.operators()
    title = f"{minified.signature}: {count} operator{'s' * (count != 1)} of {len(computed(minified.original.graph))}."
    origin = {} if small.made_up else {"origin": REDUCED}
    repro = case_repro(small, title=title, facts=(*facts, *_about_neighbour(minified)), **origin)
    minified.files = repro.write(path)
    beside = [os.path.abspath(place) for place in sys.path] if small.imports else []
    minified.verified = verify(minified.files, limit=minified.limit, path=beside)


def _about_neighbour(minified: MinifiedGraph) -> list[str]:
    """The nearest case that passes, as what differs from this one."""
    other, small = minified.neighbour, minified.small
    if other is None:
        return []
    try:
        lines = GraphSource().function(other.graph, "passes")
    except ReplayError:
        return []
    mine = GraphSource().function(small.graph, "passes")
    if lines == mine:
        if other.training != small.training:
            return [f"It passes with{'' if other.training else 'out'} gradients."]
        if _inputs(other) == _inputs(small):
            return ["It passes with other values or layouts of its inputs."]
        return [f"It passes with other inputs: {', '.join(_inputs(other))}."]
    return ["The nearest graph that passes:", *(f"    {line}" for line in lines if line.strip())]


def _inputs(case: Case) -> list[str]:
    return [
        f"{node.id} {record.meta.dtype}{list(record.meta.shape)}"
        for node, record in zip(computed(case.graph, "placeholder"), case.inputs.records) if record.meta is not None
    ]  # fmt: skip
