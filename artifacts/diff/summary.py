"""A difference in a few sentences, most important first: what a person reads before anything else."""
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ..listing import plural
from .changes import ADDED, CHANGED, REMOVED, Change, StageDiff
from .compilations import CompilationDiff
from .kernels import TOGETHER, UNPAIRED
from .recordings import RecordingDiff

DETAILS = 8
"""Sentences on single compilations that a summary of recordings has."""
OPERATORS = 6
"""Operators that a sentence names for each side."""
NAMED = 3
"""Changes of one kind that a sentence names; the rest are counted."""


def recording_sentences(diff: RecordingDiff) -> list[str]:
    """Two recordings: outcome, graph breaks, recompilations, graphs, kernels, decisions."""
    found = []
    for name, first, second in diff.run.facts:
        if name in ("exit code", "compiler"):
            found.append(f"{name}: {first} -> {second}")
    found += _list_sentences(diff.breaks)
    found += _list_sentences(diff.recompiles)
    for name in ("graphs", "ops", "kernels", "extern calls"):
        found += [f"{_NOUNS.get(name, name)}: {a} -> {b}" for n, a, b in diff.run.counts if n == name]
    both = [c for c in diff.compilations if c.first is not None and c.second is not None]
    alone = [c for c in diff.compilations if c.first is None or c.second is None]
    if alone:
        found.append(_alone(alone))
    if any(name == "compiler" for name, _, _ in diff.run.facts):
        found.append(f"compile time: {diff.run.seconds[0]:.2f} s -> {diff.run.seconds[1]:.2f} s")
    details = [f"{_title(c)}{_absorbed(c, alone) if number == 0 else ''}: {text}"
               for c in both for number, text in enumerate(compilation_sentences(c))]
    found += details[:DETAILS]
    if len(details) > DETAILS:
        found.append(f"and {len(details) - DETAILS} more of {plural(len(both), 'compilation')} that both have")
    if not found:
        found.append(f"no differences in {plural(len(both), 'compilation')}")
    return found


_NOUNS = {"ops": "operations", "extern calls": "library calls"}


def compilation_sentences(diff: CompilationDiff) -> list[str]:
    """Two compilations of one function."""
    found: list[str] = []
    for stage in ("capture", "forward", "backward"):
        for graph in diff.stage(stage):
            if _is_one_sided(graph):
                found += [] if found else [f"{stage} is {_side(graph)}"]
            elif graph.differs and (stage == "capture" or not found) and (text := _graph(graph)):
                found.append(f"{stage}: {text}")
    found += [text for schedule in diff.stage("schedule") for text in _schedule(schedule)]
    for guards in diff.stage("guards"):
        if guards.differs and not _is_one_sided(guards):
            found.append(f"guards: {guards.counts}")
    for decisions in diff.stage("decisions"):
        found += _decisions(decisions)
    if not found:
        found = [f"{s.stage}: {s.counts}" for s in diff.stages if s.differs][:NAMED]
    return found


def stage_sentences(diffs: list[StageDiff]) -> list[str]:
    """One stage of two compilations."""
    return [f"{diff.stage}{':' + diff.name if diff.name else ''}: {diff.counts}" for diff in diffs]


def _title(diff: CompilationDiff) -> str:
    first, second = diff.first, diff.second
    assert first is not None and second is not None
    ids = first.id if first.id == second.id else f"{first.id} -> {second.id}"
    return f"{ids} {second.function}"


def _absorbed(diff: CompilationDiff, alone: list[CompilationDiff]) -> str:
    """The compilations of one side whose code is part of this one on the other: what seems new came from there."""
    merged = [gone.first.id for gone in alone
              if gone.first is not None and diff.second is not None and gone.why == f"part of {diff.second.id} there"]
    split = [new.second.id for new in alone
             if new.second is not None and diff.first is not None and new.why == f"part of {diff.first.id} there"]
    texts = [f"now with the code of {', '.join(merged)}"] if merged else []
    texts += [f"without the code that is now {', '.join(split)}"] if split else []
    return f" ({'; '.join(texts)})" if texts else ""


def _list_sentences(diff: StageDiff) -> list[str]:
    """`3 graph breaks gone: a.py:14: ...`."""
    found = []
    for kind, word in ((REMOVED, "gone"), (ADDED, "new"), (CHANGED, "changed")):
        changes = [c for c in diff.changes if c.kind == kind]
        if changes:
            texts = [c.first or c.second for c in changes[:NAMED]]
            more = f"; and {len(changes) - NAMED} more" if len(changes) > NAMED else ""
            found.append(f"{plural(len(changes), diff.noun)} {word}: {'; '.join(texts)}{more}")
    return found


def _alone(alone: list[CompilationDiff]) -> str:
    texts = []
    for diff in alone:
        info = diff.first or diff.second
        assert info is not None
        texts.append(f"{'-' if diff.first else '+'} {info.id} {info.function}" + (f" ({diff.why})" if diff.why else ""))
    more = f"; and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return f"{plural(len(texts), 'compilation')} on one side only: {'; '.join(texts[:NAMED])}{more}"


def _graph(diff: StageDiff) -> str:
    if any("stock's text" in note for note in diff.notes):
        return _decomposed(diff)
    shared = [c.detail + (f" in {c.times} nodes" if c.times > 1 else "") for c in diff.changes if c.kind == CHANGED]
    return diff.counts + (f" ({', '.join(shared[:NAMED])}{', ...' if len(shared) > NAMED else ''})" if shared else "")


def _decomposed(diff: StageDiff) -> str:
    """A graph of two compilers: the operators that only one of them has left in it."""
    sides = [Counter(_CALLED.findall(text)[0] for c in diff.changes if c.kind == kind and _CALLED.search(
        text := c.first if kind == REMOVED else c.second)) for kind in (REMOVED, ADDED)]
    only = [side - other for side, other in (sides, sides[::-1])]
    texts = [", ".join(name + (f" x{times}" if times > 1 else "") for name, times in side.most_common(OPERATORS))
             + (", ..." if len(side) > OPERATORS else "") for side in only]
    if not any(only):
        return ""
    both = diff.same + diff.count(CHANGED)
    return f"decomposed into {texts[0] or 'nothing'} -> {texts[1] or 'nothing'}; {both} other nodes in both"


_CALLED = re.compile(r" = (?:torch\.ops\.)?(?:aten|operator|prims)\.(\w+)")


def _is_one_sided(diff: StageDiff) -> bool:
    return diff.noun == "artifact" and diff.differs


def _side(diff: StageDiff) -> str:
    change = diff.changes[0]
    why = f" ({change.detail})" if change.detail else ""
    return f"only in the {'first' if change.kind == REMOVED else 'second'}{why}"


def _schedule(diff: StageDiff) -> Iterator[str]:
    if _is_one_sided(diff):
        return
    half = f"{diff.name}: " if diff.name else ""
    if any(change.detail == UNPAIRED for change in diff.changes):
        yield from (half + note for note in diff.notes)
        return
    texts = Counter(map(_kernel, diff.changes))
    for text, times in list(texts.items())[:NAMED]:
        yield half + text + (f" (x{times})" if times > 1 else "")
    if len(texts) > NAMED:
        yield f"{half}and {sum(list(texts.values())[NAMED:])} more kernels and library calls changed"
    yield from (half + note for note in diff.notes)


def _kernel(change: Change) -> str:
    if change.kind == CHANGED and change.detail.startswith(TOGETHER):
        return f"{change.first} -> {change.second}: {TOGETHER}"
    if change.kind == CHANGED and change.detail.startswith("split"):
        return f"kernel {change.first} {change.detail.replace('split in', 'is split in', 1)}"
    if change.kind == CHANGED and change.detail.startswith("joined"):
        return f"kernel {change.second} is {change.detail}: {change.first}"
    if change.kind == CHANGED:
        one, other = (text.partition(" (")[0] for text in (change.first, change.second))
        return f"kernel {one if one == other else f'{one} -> {other}'}: {change.detail}"
    return f"kernel {change.first or change.second} is {'gone' if change.kind == REMOVED else 'new'}"


def _decisions(diff: StageDiff) -> list[str]:
    changed = [c for c in diff.changes if c.kind == CHANGED]
    if not changed:
        return []
    kinds = Counter(c.second.partition(":")[0] for c in changed)
    listed = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common(NAMED))
    example = changed[0]
    return [f"{plural(len(changed), 'decision')} changed ({listed}): {example.first} -> "
            f"{example.second.rpartition(' = ')[2]}" + (f", {example.detail}" if example.detail else "")]
