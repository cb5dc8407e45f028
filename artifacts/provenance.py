"""Provenance: which lines of one stage are linked to which lines of another.

The items of a compilation form a graph: an edge leads from an item to each item that it was derived from, as records
say in `origins`. The program's lines (`source:FILE#LINE`) are the roots. An item is linked to everything that it was
derived from, over any number of stages, and to everything derived from it. A reference without an item
("loop_ir:buf3") is the whole artifact.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .decision_links import Subjects
from .inner_graphs import graphs_in, sides
from .listing import place_refs
from .machine_lines import MACHINE, source_lines
from .recording import Recording, RecordingError
from .records import (
    Breaks,
    Bytecode,
    CodeLine,
    Graph,
    Guards,
    Kernel,
    Loops,
    Partition,
    Pass,
    RecomputedValue,
    Ref,
    RuleMatch,
    SavedValue,
    Schedule,
    Steps,
    Wrapper,
    split_ref,
)
from .render_steps import step_origins
from .stages import ATEN, NAMES
from .step_states import depths

MOST_LINKED = 50_000
"""Items of an artifact, above which it is not linked: the links of 200,000 nodes take a gigabyte."""

Edge = tuple[Ref, Ref]  # from an item up to one that it was derived from


class Links:
    """The links of one compilation, both ways."""

    def __init__(self, edges: Iterable[Edge]) -> None:
        up: dict[Ref, dict[Ref, None]] = defaultdict(dict)
        down: dict[Ref, dict[Ref, None]] = defaultdict(dict)
        for item, origin in edges:
            origin = origin.removesuffix("#")  # no item: the artifact as a whole
            if item != origin:
                up[item][origin] = None
                down[origin][item] = None
        self._up = {key: tuple(value) for key, value in up.items()}
        self._down = {key: tuple(value) for key, value in down.items()}

    def origins(self, item: Ref) -> list[Ref]:
        """Everything that an item was derived from, nearest first."""
        return _reach([item], self._up)[1:]

    def derived(self, item: Ref) -> list[Ref]:
        """Everything that was derived from an item, nearest first."""
        return _reach([item], self._down)[1:]

    def items(self) -> list[Ref]:
        """Everything that has a link."""
        return list(dict.fromkeys((*self._up, *self._down)))

    def made_of(self, item: Ref) -> list[Ref]:
        """What was derived from an item, in one step."""
        return list(self._down.get(item, ()))

    def related(self, item: Ref, stage: str, name: str | None = None) -> list[Ref]:
        """The items of a stage (or of one artifact of it) that are linked to `item`, nearest first.

        If there are none, those that share its nearest origin: a line of C++ and its call in the wrapper.
        """
        def wanted(reference: Ref) -> bool:
            its_stage, its_name, its_item = split_ref(reference)
            return its_stage == stage and bool(its_item) and (name is None or its_name == name)

        if wanted(item):
            return [item]
        above = self.origins(item)
        found = [r for r in (*above, *self.derived(item)) if wanted(r)]
        for origin in above:
            if found or origin.startswith("source:"):
                break
            found = [r for r in self.derived(origin) if wanted(r)]
        return list(dict.fromkeys(found))

    def everywhere(self, item: Ref) -> list[Ref]:
        """The items of all stages, the program first, that are linked to `item`."""
        return [found for stage in ("source", *NAMES, MACHINE) for found in self.related(item, stage)]


def links(recording: Recording, compile_id: str) -> Links:
    """The links between all stages of a compilation and the program; see `unlinked` for what has none."""
    edges: list[Edge] = []
    subjects = Subjects(recording, compile_id)
    last: dict[tuple[str, str], str] = {}  # of each joint graph, forward and backward: its latest form
    for info in recording.artifacts(compile_id):
        if info.items > MOST_LINKED:
            continue
        try:
            record = recording.artifact(compile_id, info.stage, info.name)
        except RecordingError:
            continue  # damaged: the recording's `problems` say so
        subjects.add(record, info.stage, info.name, info.key)
        collect = EDGES.get(type(record))
        if collect is not None:
            edges += collect(record, info.key)
        if info.stage in ATEN and isinstance(record, (Graph, Pass)):
            part = _part(info.stage, info.name)
            edges += _same_nodes(record, info.key, last.get(part) or last.get((part[0], "joint"), ""))
            edges += _added_nodes(record, info.key, part)
            last[part] = info.key
    edges += [edge for _, decision in recording.decisions(compile_id) for edge in subjects.edges(decision)]
    return Links(edges)


def unlinked(recording: Recording, compile_id: str) -> list[str]:
    """The artifacts of a compilation that are too large to be linked."""
    return [info.key for info in recording.artifacts(compile_id) if info.items > MOST_LINKED]


def _part(stage: str, name: str) -> tuple[str, str]:
    """Which graph of the compilation an ATen graph is a form of: the part's name, and joint, forward or backward."""
    if stage != "passes":
        return name, stage
    *owners, _ = name.split(".")
    kind = owners.pop() if owners and owners[-1] in ("joint", "backward") else "forward"
    return ".".join(owners), kind


def _reach(start: list[Ref], edges: dict[Ref, tuple[Ref, ...]]) -> list[Ref]:
    """`start` and all that it leads to, breadth first."""
    found = dict.fromkeys(start)
    todo = list(start)
    while todo:
        todo = [r for item in todo for r in edges.get(item, ()) if r not in found]
        todo = list(dict.fromkeys(todo))
        found.update(dict.fromkeys(todo))
    return list(found)


def _whole(key: str, item: Ref) -> Edge:
    """An artifact as a whole is derived from what its items are: selecting it selects them."""
    return (key, item)


def _graph_edges(record: Graph, key: str) -> Iterator[Edge]:
    for path, graph in graphs_in(record):
        for node in graph.nodes:
            item = f"{key}#{path}{node.id}"
            for origin in (*node.origins, *place_refs(node.stack)):
                yield item, origin
            for side, inner in sides(graph, node.id):  # a node is what the graphs that it holds are
                yield from ((item, f"{key}#{path}{side}.{own.id}") for own in inner.nodes)


def _same_nodes(record: Graph | Pass, key: str, before: str) -> Iterator[Edge]:
    """Nodes of an ATen graph that have the same name in the graph before, and what rewrites replaced them with.

    An unchanged node is linked both ways, so that what was derived from it in either graph is linked to both.
    """
    if not before:
        return
    graph = record.graph if isinstance(record, Pass) else record
    matches: tuple[RuleMatch, ...] = record.matches if isinstance(record, Pass) else ()
    added = {name for match in matches for name in match.added}
    for node in graph.nodes:
        if node.id not in added:
            yield f"{key}#{node.id}", f"{before}#{node.id}"
            yield f"{before}#{node.id}", f"{key}#{node.id}"
    for match in matches:
        for name in match.added:
            for gone in match.removed:
                yield f"{key}#{name}", f"{before}#{gone}"


def _added_nodes(record: Graph | Pass, key: str, part: tuple[str, str]) -> Iterator[Edge]:
    """What is generated names a node by the graph before the passes, also one that a pass added."""
    if isinstance(record, Pass) and not part[0]:
        for match in record.matches:
            yield from ((f"{part[1]}#{name}", f"{key}#{name}") for name in match.added)


def _bytecode_edges(record: Bytecode, key: str) -> Iterator[Edge]:
    for instruction in record.instructions:
        places = place_refs((instruction.location,)) if instruction.location else ()
        for origin in (*instruction.origins, *places):
            yield f"{key}#{instruction.id}", origin


def _break_edges(record: Breaks, key: str) -> Iterator[Edge]:
    for found in record.breaks:
        for origin in (*found.origins, *place_refs((*found.stack, found.location))):
            yield f"{key}#{found.id}", origin


def _guard_edges(record: Guards, key: str) -> Iterator[Edge]:
    for guard in record.guards:
        places = place_refs((guard.location,)) if guard.location else ()
        for origin in (*guard.origins, *places):
            yield f"{key}#{guard.id}", origin


def _loops_edges(record: Loops, key: str) -> Iterator[Edge]:
    for statement in record.statements:
        item = f"{key}#{statement.id}"
        yield _whole(key, item)
        for origin in statement.origins:
            yield item, origin


def _schedule_edges(record: Schedule, key: str) -> Iterator[Edge]:
    for group in record.groups:
        members = [f"loop_ir:{member}" for member in group.members] if group.kind == "loops" else []
        for origin in (*group.origins, *members):
            yield f"{key}#{group.id}", origin


def _partition_edges(record: Partition, key: str) -> Iterator[Edge]:
    values: list[SavedValue | RecomputedValue] = [*record.saved, *record.recomputed]
    for item in values:
        places = place_refs((item.location,)) if item.location else ()
        for origin in (*item.origins, *places):
            yield f"{key}#{item.id}", origin


def _line_edges(lines: tuple[CodeLine, ...], key: str) -> Iterator[Edge]:
    for number, line in enumerate(lines, 1):
        for origin in line.origins:
            yield f"{key}#{number}", origin


def _kernel_edges(record: Kernel, key: str) -> Iterator[Edge]:
    """The source, and each line of what the compiler made of it."""
    yield from _line_edges(record.lines, key)
    name = key.partition(":")[2]
    for product, text in record.outputs.items():
        for number, origin in enumerate(source_lines(product, text), 1):
            if origin:
                yield f"{MACHINE}:{name}.{product}#{number}", f"{key}#{origin}"


def _step_edges(record: Steps, key: str) -> Iterator[Edge]:
    depth = depths(record)
    for number, step in enumerate(record.steps):
        item = f"{key}#{number}"
        for origin in step_origins(step, record.instructions[step.instruction], depth[step.frame]):
            yield item, origin
        yield from ((f"capture#{node}", item) for node in step.nodes)


EDGES: dict[type, Callable[[Any, str], Iterable[Edge]]] = {
    Graph: _graph_edges,
    Pass: lambda record, key: _graph_edges(record.graph, key),
    Bytecode: _bytecode_edges,
    Breaks: _break_edges,
    Guards: _guard_edges,
    Loops: _loops_edges,
    Schedule: _schedule_edges,
    Partition: _partition_edges,
    Kernel: _kernel_edges,
    Steps: _step_edges,
    Wrapper: lambda record, key: _line_edges(record.lines, key),
}
