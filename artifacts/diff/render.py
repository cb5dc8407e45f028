"""Differences as listings: the sentences first, then each stage with its changes, both sides beneath each other."""
from __future__ import annotations

from ..listing import Line, Listing, printable, short_place
from .changes import CHANGED, REMOVED, SIGNS, Change, StageDiff
from .compilations import CompilationDiff
from .recordings import RecordingDiff
from .summary import compilation_sentences, recording_sentences, stage_sentences

SHOWN = 40
"""Changes of one artifact that are printed; the rest are counted."""


def render_recordings(diff: RecordingDiff, limit: int = SHOWN) -> Listing:
    """Two recordings."""
    lines = [f"{diff.names[0]} -> {diff.names[1]}", *(f"  {text}" for text in recording_sentences(diff)), "", "run"]
    lines += [f"  {name}: {first} -> {second}" for name, first, second in diff.run.facts]
    lines += [f"  {name}: {first} -> {second}" for name, first, second in diff.run.counts]
    lines.append(f"  compile time: {diff.run.seconds[0]:.2f} s -> {diff.run.seconds[1]:.2f} s")
    for stage, title in ((diff.breaks, "graph breaks"), (diff.recompiles, "recompilations")):
        if stage.differs:
            lines += ["", f"{title}: {stage.counts}", *_changes(stage, limit)]
    for compilation in diff.compilations:
        if compilation.differs:
            lines += ["", *_compilation(compilation, limit)]
    return _listing(lines)


def render_compilations(diff: CompilationDiff, limit: int = SHOWN) -> Listing:
    """Two compilations."""
    sentences = compilation_sentences(diff) or ["no differences"]
    return _listing([*(f"{text}" for text in sentences), "", *_compilation(diff, limit)])


def render_stages(diffs: list[StageDiff], limit: int = SHOWN) -> Listing:
    """One stage of two compilations."""
    lines = [*stage_sentences(diffs), ""]
    for diff in diffs:
        lines += _stage(diff, limit) if diff.differs else []
    return _listing(lines if len(lines) > 2 or lines[0] else ["no differences"])


def _compilation(diff: CompilationDiff, limit: int) -> list[str]:
    if diff.first is None or diff.second is None:
        info = diff.first or diff.second
        assert info is not None
        where = f"{info.file.rpartition('/')[2]}:{info.line}"
        why = f": {diff.why}" if diff.why else ""
        return [f"{'-' if diff.first else '+'} {info.id} {info.function} ({where}) has no partner{why}"]
    ids = diff.first.id if diff.first.id == diff.second.id else f"{diff.first.id} -> {diff.second.id}"
    lines = [f"== {ids} {diff.second.function}"]
    alike = [stage.stage for stage in diff.stages if not stage.differs]
    for stage in diff.stages:
        lines += _stage(stage, limit) if stage.differs else []
    if alike:
        lines.append(f"alike: {', '.join(dict.fromkeys(alike))}")
    return lines


def _stage(diff: StageDiff, limit: int) -> list[str]:
    key = f"{diff.stage}:{diff.name}" if diff.name else diff.stage
    return [f"-- {key}: {diff.counts}", *(f"  # {note}" for note in diff.notes), *_changes(diff, limit)]


def _changes(diff: StageDiff, limit: int) -> list[str]:
    lines = []
    for change in diff.changes[:limit]:
        lines += _change(change)
    if len(diff.changes) > limit:
        lines.append(f"  ... {len(diff.changes) - limit} more (--all shows them)")
    return lines


def _change(change: Change) -> list[str]:
    place = f"  ({short_place(change.location)})" if change.location is not None else ""
    if change.kind != CHANGED:
        text = change.first if change.kind == REMOVED else change.second
        detail = f"  [{change.detail}]" if change.detail else ""
        return [f"  {SIGNS[change.kind]} {text}{detail}{place}"]
    if change.times > 1:
        return [f"  ~ {change.detail}, in {change.times} places, the first: {change.second}{place}"]
    detail = f": {change.detail}" if change.detail else ""
    return [f"  ~{detail}{place}", f"    - {change.first}", f"    + {change.second}"]


def _listing(lines: list[str]) -> Listing:
    return Listing("differences", "diff", tuple(Line(printable(line)) for line in lines))
