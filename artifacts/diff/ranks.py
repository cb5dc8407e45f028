"""Where the ranks of a distributed program were compiled differently: rank 0 against each other one, by structure.

Ranks that call different collectives, or the same ones in another order, wait for each other for ever; other
differences cost a recompilation that the other ranks wait for.
"""
from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..inner_graphs import graphs_in
from ..recording import CompileInfo, Recording
from ..records import Graph, Location, Node
from ..render_graph import value_text
from .changes import CHANGED, Change, StageDiff
from .compilations import CompilationDiff
from .recordings import RecordingDiff, diff_recordings

COLLECTIVES, COMPILATION, GRAPH, SHAPE, BREAK, GUARD = "collectives", "compilation", "graph", "shape", "break", "guard"
STAGES = {"capture": GRAPH, "breaks": BREAK, "guards": GUARD}
_COLLECTIVE = re.compile(r"c10d|all_reduce|all_gather|reduce_scatter|all_to_all|broadcast|scatter_|gather_into|barrier")
_OF_PROCESS = re.compile(r"\b(cuda|xpu|hpu|npu|mps):\d+|\bindex=\d+|\b\d{12,}\b|\b0x[0-9a-f]{9,}\b")


@dataclass(frozen=True)
class RankDifference:
    """One difference: `first` and `second` are what the two ranks have, "" where one has nothing; `compile` is the
    compilation that has it, of the second rank where it has one."""

    ranks: tuple[int, int]
    kind: str
    compile: str
    first: str
    second: str
    detail: str = ""
    location: Location | None = None

    @property
    def text(self) -> str:
        """In one line, without the place."""
        a, b = (f"rank {rank}: {text or 'nothing'}" for rank, text in zip(self.ranks, (self.first, self.second)))
        return f"{self.kind}: {a}; {b}" + (f" ({self.detail})" if self.detail else "")


def rank_differences(ranks: Sequence[tuple[int, Recording]]) -> list[RankDifference]:
    """The differences of the first of the `ranks` and each other one: one for each compilation and kind, those of
    collectives first, then in the order in which the program compiled."""
    found: list[RankDifference] = []
    for number, recording in ranks[1:]:
        pair = ranks[0][0], number
        found += _of_collectives(pair, ranks[0][1], recording)
        found += _of_compilations(pair, diff_recordings(ranks[0][1], recording))
    return sorted(found, key=lambda difference: difference.kind != COLLECTIVES)


def difference_document(found: RankDifference) -> dict[str, Any]:
    """A difference as JSON."""
    place = found.location
    return {"ranks": list(found.ranks), "kind": found.kind, "compile": found.compile, "first": found.first,
            "second": found.second, "detail": found.detail, "file": place.file if place else None,
            "line": place.line if place else None, "text": found.text}


def collectives(recording: Recording) -> list[tuple[str, Node]]:
    """The collective operations of graphs, in their order, with their compilations: of forward and backward, in which
    those of distributed tensors are operations of their own; of the captured graph where there are none."""
    found = []
    for captured in recording.artifacts(stage="capture"):
        of_aten = [info for stage in ("forward", "backward") for info in recording.artifacts(captured.compile, stage)]
        for info in of_aten or [captured]:
            graph = recording.find(Graph, info.compile, info.stage, info.name)
            nodes = [node for _, inner in graphs_in(graph) for node in inner.nodes] if graph is not None else []
            found += [(info.compile, node) for node in nodes if _is_collective(node)]
    return found


def _is_collective(node: Node) -> bool:
    return node.op == "call_function" and bool(_COLLECTIVE.search(node.target)) and "wait_tensor" not in node.target


def _of_collectives(pair: tuple[int, int], first: Recording, second: Recording) -> Iterator[RankDifference]:
    """The first place where the sequences differ: another operation, or one that one rank alone has."""
    sides = collectives(first), collectives(second)
    for place in range(max(map(len, sides))):
        items = [side[place] if place < len(side) else None for side in sides]
        texts = [f"{item[1].target}{_value(item[1])}" if item else "" for item in items]
        if texts[0] != texts[1]:
            owner, node = items[1] or items[0] or ("", None)
            location = node.stack[-1] if node is not None and node.stack else None
            yield RankDifference(pair, COLLECTIVES, owner, texts[0], texts[1], f"number {place + 1} in order", location)
            return


def _value(node: Node) -> str:
    return _anywhere(f" of {value_text(node.value)}") if node.value is not None else ""


def _of_compilations(pair: tuple[int, int], diff: RecordingDiff) -> Iterator[RankDifference]:
    together = [c for c in diff.compilations if not _is_skipped(c.first) and not _is_skipped(c.second)]
    for compilation in sorted(together, key=_order):
        a, b = compilation.first, compilation.second
        info = b or a
        if a is None or b is None:
            assert info is not None
            place = Location(info.file, info.line, info.function)
            yield RankDifference(pair, COMPILATION, info.id, a.function if a else "", b.function if b else "",
                                 compilation.why, place)
            continue
        if a.status != b.status:
            place = Location(b.file, b.line, b.function)
            yield RankDifference(pair, COMPILATION, b.id, f"{a.function} {a.status}", f"{b.function} {b.status}",
                                 b.reason or a.reason, place)
        for stage, kind in STAGES.items():
            for found in compilation.stage(stage):
                yield from _first_change(pair, b, kind, found)


def _first_change(pair: tuple[int, int], info: CompileInfo, kind: str, diff: StageDiff) -> Iterator[RankDifference]:
    """The first change that is more than a device or an address; the others follow from it more often than not. What
    has no line (the size of an argument) gets the function's."""
    changes = sorted((change for change in diff.changes if not _is_of_process(change)),
                     key=lambda change: change.kind == CHANGED)  # a node that one rank alone has is the cause
    if not changes:
        return
    change = changes[0]
    if kind == GRAPH and change.detail.startswith("size "):
        kind = SHAPE
    more = f"{change.detail}; " * bool(change.detail) + f"and {len(changes) - 1} more" if len(changes) > 1 else (
        change.detail)
    place = change.location or Location(info.file, info.line, info.function)
    yield RankDifference(pair, kind, info.id, change.first, change.second, more, place)


def _is_of_process(change: Change) -> bool:
    if change.first and change.second:
        return _anywhere(change.first) == _anywhere(change.second)
    return False


def _anywhere(text: str) -> str:
    """Without numbers of devices and addresses of objects, which differ in each rank."""
    return _OF_PROCESS.sub("HERE", text)


def _is_skipped(info: CompileInfo | None) -> bool:
    return info is not None and info.status == "skipped"


def _order(diff: CompilationDiff) -> tuple[int, int]:
    """The order in which a rank compiled: frame, then its compilations."""
    info = diff.first or diff.second
    frame, _, again = info.id.partition("@")[0].partition("/") if info is not None else ("0", "", "0")
    return int(again), int(frame)
