"""Which kernel of one compilation is which of the other: those that were split in two, joined, new or gone, and why.

A kernel is known by the nodes of the ATen graph that it computes; where two compilers decompose differently, by the
nodes of the captured graph that these come from.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ..listing import plural
from ..provenance import Links
from ..recording import Recording
from ..records import Fusion, FusionCandidate, Loops, Schedule, ScheduledGroup, ref, split_ref
from ..render_lists import loop_choices
from .changes import ADDED, CHANGED, REMOVED, Change, StageDiff


@dataclass(frozen=True)
class Groups:
    """The schedule of one part of a compilation, with the ATen nodes behind each group, and the pairs that the
    scheduler looked at. `as_captured`: the nodes are those of the captured graph."""

    schedule: Schedule
    nodes: Mapping[str, frozenset[str]]
    candidates: Sequence[FusionCandidate]
    as_captured: bool = False

    @classmethod
    def read(cls, recording: Recording, compile_id: str, name: str, schedule: Schedule) -> Groups:
        """From a recording; `name` is the part's, "" for the whole."""
        loops = {info.name: record for info in recording.artifacts(compile_id, "loop_ir")
                 if (record := recording.find(Loops, compile_id, "loop_ir", info.name)) is not None}
        nodes = {group.id: frozenset(_nodes(group, loops)) for group in schedule.groups}
        fusion = recording.find(Fusion, compile_id, "fusion", name)
        return cls(schedule, nodes, fusion.candidates if fusion is not None else ())

    def captured(self, known: Links, stage: str) -> Groups:
        """The same with the nodes of the captured graph behind each group."""
        items = {group.id: known.origins(f"{stage}#{group.id}") for group in self.schedule.groups}
        return replace(self, nodes={
            name: frozenset(split_ref(item)[2] for item in found if item.startswith("capture#"))
            for name, found in items.items()}, as_captured=True)


def _nodes(group: ScheduledGroup, loops: Mapping[str, Loops]) -> set[str]:
    found = set()
    for origin in group.origins:
        stage, name, item = split_ref(origin)
        if stage == "loop_ir" and name in loops:
            found |= {split_ref(o)[2] for s in loops[name].statements for o in s.origins}
        elif item:
            found.add(item)
    return found


def diff_schedules(first: Groups, second: Groups, pairs: Mapping[str, str], stage: str, name: str) -> StageDiff:
    """The differences of two schedules; `pairs` are the ATen nodes that are the same ones."""
    if first.as_captured:
        return _diff_compilers(first, second, pairs, stage, name)
    kin = _by_name(first, second) if _silent(first, second) else _kin(first, second, pairs)
    back: dict[str, list[str]] = defaultdict(list)
    for one, others in kin.items():
        for other in others:
            back[other].append(one)
    by_id = {group.id: group for group in second.schedule.groups}
    changes: list[Change] = []
    same = 0
    joined: set[str] = set()
    for group in first.schedule.groups:
        others = kin[group.id]
        if not others:
            changes.append(Change(REMOVED, _text(group), refs=(ref(stage, group.id, name), "")))
        elif len(others) > 1:
            texts = ", ".join(by_id[o].kernel for o in others)
            why = _why_apart([by_id[o] for o in others], second)
            detail = f"split in {len(others)}" + (f": {why}" if why else "")
            changes.append(Change(CHANGED, _text(group), texts, detail, refs=_refs(stage, name, group.id, others[0])))
        elif len(back[others[0]]) > 1:
            if others[0] not in joined:
                joined.add(others[0])
                parts = back[others[0]]
                changes.append(Change(CHANGED, ", ".join(parts), _text(by_id[others[0]]), f"joined from {len(parts)}",
                                      refs=_refs(stage, name, group.id, others[0])))
        else:
            detail = _traits(group, by_id[others[0]])
            if detail:
                changes.append(Change(CHANGED, _text(group), _text(by_id[others[0]]), detail,
                                      refs=_refs(stage, name, group.id, others[0])))
            same += not detail
    changes += [Change(ADDED, second=_text(group), refs=("", ref(stage, group.id, name)))
                for group in second.schedule.groups if not back[group.id]]
    peaks = first.schedule.peak_bytes, second.schedule.peak_bytes
    notes = (f"peak memory {peaks[0]:,} -> {peaks[1]:,} bytes",) if peaks[0] != peaks[1] and None not in peaks else ()
    return StageDiff(stage, name, "group", tuple(changes), same, notes)


def _diff_compilers(first: Groups, second: Groups, pairs: Mapping[str, str], stage: str, name: str) -> StageDiff:
    """The differences of what two compilers made of one captured graph. One operator of it may be several kernels on
    both sides: these are compared together, for which one is which is not known."""
    if _silent(first, second):
        counts = " -> ".join(_counted(side.schedule) for side in (first, second))
        return StageDiff(stage, name, "group", (Change(
            CHANGED, _counted(first.schedule), _counted(second.schedule), UNPAIRED),), 0, (f"{counts}: {UNPAIRED}",))
    changes: list[Change] = []
    same = 0
    for mine, theirs in (part.groups for part in _together(first, second, pairs)):
        if not mine or not theirs:
            changes += [Change(REMOVED, _text(group), refs=(ref(stage, group.id, name), "")) for group in mine]
            changes += [Change(ADDED, second=_text(group), refs=("", ref(stage, group.id, name))) for group in theirs]
            continue
        texts = ", ".join(map(_text, mine)), ", ".join(map(_text, theirs))
        if len(mine) == len(theirs) == 1:
            detail = _nodes_differ([pairs.get(node, node) for node in first.nodes[mine[0].id]],
                                   second.nodes[theirs[0].id])
        elif len(mine) == 1:
            why = _why_apart(theirs, second)
            detail = f"split in {len(theirs)}" + (f": {why}" if why else "")
        elif len(theirs) == 1:
            detail = f"joined from {len(mine)}"
        else:
            detail = f"{TOGETHER}: {len(mine)} -> {len(theirs)}"
        same += not detail
        if detail:
            refs = _refs(stage, name, mine[0].id, theirs[0].id)
            changes.append(Change(CHANGED, texts[0], texts[1], detail, refs=refs))
    both = f"{same} of {len(second.schedule.groups)} kernels and library calls compute the same operations"
    return StageDiff(stage, name, "group", tuple(changes), same, (both,))


def _silent(first: Groups, second: Groups) -> bool:
    """Whether one side does not say what its kernels compute."""
    return any(side.schedule.groups and not any(side.nodes.values()) for side in (first, second))


TOGETHER = "compute the same operations together"
UNPAIRED = "the trace of one side does not say what its kernels compute, so none are paired"


def _counted(schedule: Schedule) -> str:
    extern = sum(group.kind == "extern" for group in schedule.groups)
    return f"{plural(len(schedule.groups) - extern, 'kernel')} and {plural(extern, 'library call')}"


@dataclass
class _Part:
    """Groups of both sides (the first's, the second's) that share nodes, directly or through others of their kind."""

    nodes: set[tuple[str, str]]
    groups: tuple[list[ScheduledGroup], list[ScheduledGroup]]


def _together(first: Groups, second: Groups, pairs: Mapping[str, str]) -> list[_Part]:
    found: list[_Part] = []
    for side, groups in enumerate((first, second)):
        for group in groups.schedule.groups:
            nodes = groups.nodes[group.id] if side else {pairs[n] for n in groups.nodes[group.id] if n in pairs}
            whole = _Part({(group.kind, node) for node in nodes}, ([], []))
            for part in [part for part in found if part.nodes & whole.nodes]:
                whole.nodes |= part.nodes
                whole = _Part(whole.nodes, (part.groups[0] + whole.groups[0], part.groups[1] + whole.groups[1]))
                found.remove(part)
            whole.groups[side].append(group)
            found.append(whole)
    return found


def _refs(stage: str, name: str, one: str, other: str) -> tuple[str, str]:
    return ref(stage, one, name), ref(stage, other, name)


def _by_name(first: Groups, second: Groups) -> dict[str, list[str]]:
    """For each group of the first, the one of the second with its name; of several, in their order."""
    waiting: dict[tuple[str, str], list[str]] = defaultdict(list)
    for group in second.schedule.groups:
        waiting[group.kind, group.kernel].append(group.id)
    return {group.id: [waiting[group.kind, group.kernel].pop(0)] if waiting[group.kind, group.kernel] else []
            for group in first.schedule.groups}


def _kin(first: Groups, second: Groups, pairs: Mapping[str, str]) -> dict[str, list[str]]:
    """For each group of the first, those of the second that compute nodes of it which no other group shares more of."""
    home: dict[str, list[str]] = defaultdict(list)
    for group in second.schedule.groups:
        for node in second.nodes[group.id]:
            home[node].append(group.id)
    order = {group.id: place for place, group in enumerate(second.schedule.groups)}
    kinds = {group.id: group.kind for group in second.schedule.groups}
    found = {}
    for group in first.schedule.groups:
        shares: dict[str, int] = defaultdict(int)
        for node in first.nodes[group.id]:
            for other in home.get(pairs.get(node, ""), ()):
                if kinds[other] == group.kind:
                    shares[other] += 1
        # a node computed again where it is read belongs to several: what shares everything explains the rest
        whole = [o for o, share in shares.items() if share == len(first.nodes[group.id])]
        chosen = whole[:1] if whole else list(shares)
        found[group.id] = sorted(chosen, key=order.__getitem__)
    return found


def _nodes_differ(mine: Collection[str], theirs: Collection[str]) -> str:
    """What else one of two kernels computes, in the names of the second."""
    more, less = (", ".join(sorted(names)) for names in (set(theirs) - set(mine), set(mine) - set(theirs)))
    return "; ".join([f"also computes {more}"] * bool(more) + [f"does not compute {less}"] * bool(less))


def _traits(a: ScheduledGroup, b: ScheduledGroup) -> str:
    """What else differs in two groups that compute the same."""
    if a.kind == "extern":
        return "" if a.kernel == b.kernel else f"{a.kernel} -> {b.kernel}"
    found = []
    if len(a.loop_order) != len(b.loop_order):
        found.append(f"loops: {len(a.loop_order)} -> {len(b.loop_order)}")
    found += _loop_traits(a, b)
    if a.bytes != b.bytes and None not in (a.bytes, b.bytes):
        found.append(f"{a.bytes:,} -> {b.bytes:,} bytes of traffic")
    return "; ".join(found)


def _loop_traits(a: ScheduledGroup, b: ScheduledGroup) -> list[str]:
    """What is chosen for the loops of one only: the rest names buffers and sizes, which differ anyway."""
    ours, theirs = ({} if x.schedule is None else loop_choices(x.schedule) for x in (a, b))
    return [f"{name}: {ours.get(name, 'none')} -> {theirs.get(name, 'none')}"
            for name in dict.fromkeys((*ours, *theirs)) if (name in ours) != (name in theirs)]


def _text(group: ScheduledGroup) -> str:
    return f"{group.kernel}" + (f" ({group.bytes:,} bytes)" if group.bytes is not None else "")


def _why_apart(groups: Sequence[ScheduledGroup], side: Groups) -> str:
    """Why groups of one side are not one kernel: the first refused pair between them."""
    homes = {member: group.id for group in groups for member in group.members}
    for candidate in side.candidates:
        a, b = homes.get(candidate.first), homes.get(candidate.second)
        if not candidate.fused and a is not None and b is not None and a != b:
            return f"{candidate.first} + {candidate.second}: {candidate.why}"
    return ""
