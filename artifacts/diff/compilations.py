"""The differences of two compilations, stage by stage, of one recording or of two."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from ..input_names import graph_of, input_names, named_text
from ..provenance import links
from ..recording import ArtifactInfo, CompileInfo, Recording
from ..records import Graph, Loops, Pass, Recompile, Schedule, split_ref
from ..render_graph import call_text, node_text
from ..stages import NAMES
from .changes import ADDED, CHANGED, REMOVED, Change, StageDiff, merged
from .graphs import diff_graphs
from .kernels import Groups, diff_schedules
from .matching import match
from .program_text import ProgramText
from .stages import Context, diff_decisions, diff_records

NOT_COMPARED = ("runtime", "steps")


@dataclass(frozen=True)
class Side:
    """One compilation of a recording."""

    recording: Recording
    compile_id: str
    text: ProgramText

    @classmethod
    def of(cls, recording: Recording, compile_id: str) -> Side:
        """With a reader of the program of its own."""
        return cls(recording, compile_id, ProgramText(recording))

    def artifacts(self, stage: str) -> dict[str, ArtifactInfo]:
        """The artifacts of a stage, by name; passes without the numbers of their order."""
        found = self.recording.artifacts(self.compile_id, stage)
        return {_unnumbered(info.name) if stage == "passes" else info.name: info for info in found}

    def graphs(self, stage: str) -> dict[str, Graph]:
        """The graphs of a stage; of passes, that after the last one of each part."""
        if stage != "passes":
            records = {i.name: self.recording.find(Graph, self.compile_id, stage, i.name)
                       for i in self.recording.artifacts(self.compile_id, stage)}
            return {name: record for name, record in records.items() if record is not None}
        found = {}
        for info in sorted(self.recording.artifacts(self.compile_id, "passes"), key=lambda i: i.name):
            record = self.recording.find(Pass, self.compile_id, "passes", info.name)
            if record is not None:
                found[info.name.rpartition(".")[0]] = record.graph
        return found

    def buffers(self) -> dict[str, str]:
        """The ATen node that each buffer holds."""
        found = {}
        for info in self.recording.artifacts(self.compile_id, "loop_ir"):
            record = self.recording.find(Loops, self.compile_id, "loop_ir", info.name)
            if record is not None and record.statements and record.statements[-1].origins:
                found[info.name] = split_ref(record.statements[-1].origins[-1])[2]
        return found


def _unnumbered(name: str) -> str:
    part, dot, own = name.rpartition(".")
    number, _, rest = own.partition("_")
    return part + dot + (rest if number.isdigit() and rest else own)


@dataclass(frozen=True)
class CompilationDiff:
    """Two compilations and the differences of their stages. One of them is None where the other has no partner; `why`
    says more, where it is known."""

    first: CompileInfo | None
    second: CompileInfo | None
    stages: tuple[StageDiff, ...] = ()
    why: str = ""

    @property
    def differs(self) -> bool:
        """Whether anything but times differs."""
        return self.first is None or self.second is None or any(stage.differs for stage in self.stages)

    def stage(self, name: str) -> Iterator[StageDiff]:
        """The differences of the artifacts of one stage."""
        return (stage for stage in self.stages if stage.stage == name)


class Comparison:
    """Two compilations side by side: which names are which, and the differences of any of their stages."""

    def __init__(self, first: Side, second: Side) -> None:
        self.sides = (first, second)

    @cached_property
    def matches(self) -> dict[tuple[str, str], dict[str, str]]:
        """For each graph that both have, by stage and name (of passes, the part's name), the nodes of one as those of
        the other."""
        found = {}
        for stage in ("capture", "joint", "forward", "backward", "passes"):
            mine, theirs = (side.graphs(stage) for side in self.sides)
            for name in sorted(mine.keys() & theirs.keys()):
                found[stage, name] = match(mine[name], theirs[name], (self.sides[0].text, self.sides[1].text))
        return found

    @cached_property
    def pairs(self) -> dict[str, str]:
        """ATen nodes, and those of the captured graph; of all graphs that both have."""
        return {one: other for pairs in self.matches.values() for one, other in pairs.items()}

    @cached_property
    def captured(self) -> dict[str, str]:
        """Nodes of the captured graph."""
        return self.matches.get(("capture", ""), {})

    @cached_property
    def buffers(self) -> dict[str, str]:
        """Buffers that hold the same ATen node."""
        holding: dict[str, list[str]] = {}
        for name, node in self.sides[1].buffers().items():
            holding.setdefault(node, []).append(name)
        found = {}
        for name, node in self.sides[0].buffers().items():
            if waiting := holding.get(self.pairs.get(node, "")):
                found[name] = waiting.pop(0)
        return found

    @cached_property
    def context(self) -> Context:
        """For the comparison of records."""
        first, second = self.sides
        return Context((first.text, second.text), self.pairs | self.buffers,
                       (first.recording.source, second.recording.source))

    def all(self) -> CompilationDiff:
        """All stages that either side has."""
        infos = [side.recording.compile(side.compile_id) for side in self.sides]
        stages = [diff for stage in NAMES if stage not in NOT_COMPARED for diff in self.stage(stage)]
        return CompilationDiff(infos[0], infos[1], tuple(stages))

    def stage(self, stage: str) -> Iterator[StageDiff]:
        """The differences of one stage, of each of its artifacts."""
        first, second = self.sides
        if stage == "decisions":
            mine, theirs = ([d for _, d in side.recording.decisions(side.compile_id) if d.kind != "cache" or d.forced]
                            for side in self.sides)  # that a graph was compiled before is no difference of programs
            if mine and theirs:
                yield diff_decisions(mine, theirs, self.context)
            elif mine or theirs:
                yield self._one_sided(stage, "", bool(mine))
            return
        sides = first.artifacts(stage), second.artifacts(stage)
        if stage == "loop_ir" and sides[0] and sides[1]:
            yield self._loop_bodies(*sides)
            return
        for name in dict.fromkeys([*sides[0], *sides[1]]):
            if name in sides[0] and name in sides[1]:
                yield self.artifact(sides[0][name], sides[1][name])
            elif (not sides[0] or not sides[1]) and name:
                yield self._one_sided(stage, "", bool(sides[0]))  # not one for each artifact
                return
            else:
                yield self._one_sided(stage, name, name in sides[0])
        if stage == "passes":
            yield from self._after_passes()

    def _loop_bodies(self, mine: dict[str, ArtifactInfo], theirs: dict[str, ArtifactInfo]) -> StageDiff:
        """All loop bodies as one artifact: most differ in the same way, if they do."""
        names = {self.buffers.get(name, name): name for name in mine}
        changes: list[Change] = []
        same = 0
        for name in dict.fromkeys([*names, *theirs]):
            if name not in names or name not in theirs:
                kind = REMOVED if name in names else ADDED
                changes.append(Change(kind, names.get(name, ""), name if name in theirs else ""))
                continue
            found = self.artifact(mine[names[name]], theirs[name])
            same += not found.differs
            changes += [replace(c, detail=f"{name}: {c.detail}".rstrip(": ") if not c.detail.startswith("extent") else
                                c.detail) for c in found.changes]
        shared = merged(changes, lambda c: c.detail if c.detail.startswith("extent") else None)
        return StageDiff("loop_ir", "", "loop body", shared, same)

    def artifact(self, a: ArtifactInfo, b: ArtifactInfo) -> StageDiff:
        """The differences of two artifacts; their types or stages may differ."""
        if a.hash == b.hash and a.stage not in ("guards", "schedule"):
            return StageDiff(b.stage, b.name, same=b.items)
        first, second = self.sides
        mine = first.recording.artifact(first.compile_id, a.stage, a.name)
        theirs = second.recording.artifact(second.compile_id, b.stage, b.name)
        if isinstance(mine, Schedule) and isinstance(theirs, Schedule):
            one = Groups.read(first.recording, first.compile_id, a.name, mine)
            other = Groups.read(second.recording, second.compile_id, b.name, theirs)
            if not self.context.one_compiler:
                one, other = (groups.captured(links(side.recording, side.compile_id), info.key)
                              for groups, side, info in zip((one, other), self.sides, (a, b)))
            pairs = self.pairs if self.context.one_compiler else self.captured
            return diff_schedules(one, other, pairs, b.stage, b.name)
        if isinstance(mine, Graph | Pass) and isinstance(theirs, Graph | Pass):
            graphs = graph_of(mine), graph_of(theirs)
            if a.stage != b.stage:
                found = self._levels(a, b, *graphs)
            elif isinstance(mine, Graph) and isinstance(theirs, Graph):
                known = self.matches.get((b.stage, b.name)) if a.name == b.name else None
                found = diff_graphs(mine, theirs, self.context.texts, b.stage, b.name, known, self.context.traits)
            else:
                found = diff_records(mine, theirs, self.context, b.stage, b.name)
            return _named(found, *(input_names(side.recording, side.compile_id, info.stage, info.name, graph)
                                   for side, info, graph in zip(self.sides, (a, b), graphs)))
        return diff_records(mine, theirs, self.context, b.stage, b.name)

    def _after_passes(self) -> Iterator[StageDiff]:
        mine, theirs = (side.graphs("passes") for side in self.sides)
        for name in mine.keys() & theirs.keys():
            found = diff_graphs(mine[name], theirs[name], self.context.texts, "passes", name,
                                self.matches["passes", name])
            found = _named(found, *(input_names(side.recording, side.compile_id, "passes", f"{name}.all", graphs[name])
                                    for side, graphs in zip(self.sides, (mine, theirs))))
            yield replace(found, name=f"{name}.all".removeprefix("."))

    def _one_sided(self, stage: str, name: str, is_first: bool) -> StageDiff:
        side = self.sides[1 if is_first else 0]
        key = f"{stage}:{name}" if name else stage
        why = next((a.why for _, a in side.recording.absents(side.compile_id) if a.stage == stage), "")
        kind = REMOVED if is_first else ADDED
        owner = self.sides[0 if is_first else 1]
        record = owner.recording.find(Recompile, owner.compile_id, stage, name)
        if record is not None:
            key = f"recompiled: {record.subject or record.guard} was {record.expected}, is now {record.actual}"
        change = Change(kind, key if is_first else "", "" if is_first else key, why)
        return StageDiff(stage, name, "artifact", (change,))

    def _levels(self, a: ArtifactInfo, b: ArtifactInfo, first: Graph, second: Graph) -> StageDiff:
        """Two stages: what became of each node, as provenance says."""
        one, other = self.sides
        if (one.recording.path, one.compile_id) != (other.recording.path, other.compile_id):
            return diff_graphs(first, second, self.context.texts, b.stage, b.name)
        known = links(one.recording, one.compile_id)
        key, head = (f"{i.stage}:{i.name}" if i.name else i.stage for i in (a, b))
        back = {n.id: [r for r in known.everywhere(f"{head}#{n.id}") if r.startswith(f"{key}#")] for n in second.nodes}
        became: dict[str, list[str]] = {}
        for name, origins in back.items():
            for origin in origins:
                became.setdefault(split_ref(origin)[2], []).append(name)
        nodes = {n.id: n for n in second.nodes}
        changes: list[Change] = []
        same = 0
        for node in first.nodes:
            results = became.get(node.id, [])
            if (len(results) == 1 and nodes[results[0]].target == node.target) or node.op in ("placeholder", "output"):
                same += 1
            elif results:
                text = ", ".join(call_text(nodes[name]) for name in results)
                changes.append(Change(CHANGED, node_text(node), text, f"became {', '.join(results)}",
                                      node.stack[-1] if node.stack else None))
            else:
                changes.append(Change(REMOVED, node_text(node)))
        changes += [Change(ADDED, second=node_text(n)) for n in second.nodes
                    if not back[n.id] and n.op not in ("placeholder", "output")]
        return StageDiff(b.stage, b.name, "node", tuple(changes), same)


def _named(found: StageDiff, first: Mapping[str, str], second: Mapping[str, str]) -> StageDiff:
    """With the program's names for the inputs of both graphs."""
    def named(change: Change) -> Change:
        was, arrow, now = change.detail.partition(" -> ")
        detail = named_text(was, first) + arrow + named_text(now, second)
        return replace(change, first=named_text(change.first, first), second=named_text(change.second, second),
                       detail=detail)

    return replace(found, changes=tuple(map(named, found.changes))) if first or second else found
