"""What differs between two recordings, compilations or stages, by structure.

Graphs are compared whatever the names and the order of their nodes, code whatever the numbers of its names. Of two
recordings, compilations of one function pair up, and each graph break and recompilation counts once. Compilers may
differ: `run --compiler torch` records stock. Exit code 1 if anything but times, versions and the environment differs.
"""
from __future__ import annotations

import argparse
import sys
from typing import Any

from ...artifacts.diff.compilations import Comparison, CompilationDiff, Side
from ...artifacts.diff.recordings import RecordingDiff, diff_recordings
from ...artifacts.diff.render import SHOWN, render_compilations, render_recordings, render_stages
from ...artifacts.diff.summary import compilation_sentences, recording_sentences, stage_sentences
from ...artifacts.recording import ArtifactInfo, Recording
from ...artifacts.selector import Selector
from ...dependencies import msgspec
from ..errors import CommandError
from ..printing import add_json, print_json, print_listing, selected

EXAMPLE = "ptdebug diff @~1 @"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A, B, --json, --summary and --all."""
    for name in ("A", "B"):
        parser.add_argument(name.lower(), metavar=name, help="RECORDING[:F/C[:STAGE[:NAME]]]")
    parser.add_argument("--summary", action="store_true", help="print the sentences alone")
    parser.add_argument("--all", action="store_true", help=f"print every change; else {SHOWN} of each artifact")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print what differs."""
    with selected(arguments.a) as (first, one), selected(arguments.b) as (second, other):
        if bool(one.compile) != bool(other.compile):
            raise CommandError(f"{arguments.a} and {arguments.b} are not of one kind: compare two recordings, two "
                               "compilations (R:0/0) or two stages (R:0/0:forward)")
        limit = sys.maxsize if arguments.all else SHOWN
        if not one.compile:
            return _recordings(diff_recordings(first, second), arguments, limit)
        comparison = Comparison(Side.of(first, one.compile), Side.of(second, other.compile))
        if not one.stage and not other.stage:
            return _compilations(comparison.all(), arguments, limit)
        return _stages(comparison, (first, second), (one, other), arguments, limit)


def _recordings(diff: RecordingDiff, arguments: argparse.Namespace, limit: int) -> int:
    sentences = recording_sentences(diff)
    if arguments.json:
        _print(arguments, sentences, diff.differs, run=diff.run, breaks=diff.breaks, recompiles=diff.recompiles,
               compilations=list(map(_document, diff.compilations)))
    elif arguments.summary:
        print("\n".join(sentences))
    else:
        print_listing(render_recordings(diff, limit))
    return int(diff.differs)


def _compilations(diff: CompilationDiff, arguments: argparse.Namespace, limit: int) -> int:
    sentences = compilation_sentences(diff)
    if arguments.json:
        _print(arguments, sentences, diff.differs, **_document(diff))
    elif arguments.summary:
        print("\n".join(sentences or ["no differences"]))
    else:
        print_listing(render_compilations(diff, limit))
    return int(diff.differs)


def _stages(
    comparison: Comparison, recordings: tuple[Recording, Recording], selectors: tuple[Selector, Selector],
    arguments: argparse.Namespace, limit: int,
) -> int:
    one, other = selectors
    if not (one.stage and other.stage):
        raise CommandError("one selector names a stage and the other a compilation: name a stage in both")
    sides = [r.artifacts(s.compile, s.stage, name=s.name or None) for r, s in zip(recordings, selectors)]
    if one.stage == other.stage and one.name == other.name and not (one.name and all(sides)):
        diffs = [d for d in comparison.stage(one.stage) if not one.name or d.name in ("", one.name)]
    else:
        infos = [_artifact(recording, selector) for recording, selector in zip(recordings, selectors)]
        diffs = [comparison.artifact(*infos)]
    if not diffs:  # neither side has it: say why
        recordings[0].artifact(one.compile, one.stage, one.name)
    differs = any(diff.differs for diff in diffs)
    if arguments.json:
        _print(arguments, stage_sentences(diffs), differs, stages=diffs)
    elif arguments.summary:
        print("\n".join(stage_sentences(diffs)))
    else:
        print_listing(render_stages(diffs, limit))
    return int(differs)


def _artifact(recording: Recording, selector: Selector) -> ArtifactInfo:
    """The artifact that a selector names: of several, the last one."""
    found = recording.artifacts(selector.compile, selector.stage, name=selector.name or None)
    if not found:
        recording.artifact(selector.compile, selector.stage, selector.name)  # raises, and says why
    return found[-1]


def _document(diff: CompilationDiff) -> dict[str, Any]:
    return {"first": diff.first and diff.first.id, "second": diff.second and diff.second.id, "why": diff.why,
            "summary": compilation_sentences(diff) if diff.first and diff.second else [],
            "stages": [stage for stage in diff.stages if stage.differs],
            "alike": list(dict.fromkeys(stage.stage for stage in diff.stages if not stage.differs))}


def _print(arguments: argparse.Namespace, sentences: list[str], differs: bool, **parts: Any) -> None:
    print_json(first=arguments.a, second=arguments.b, differs=differs, summary=sentences,
               **{key: msgspec.to_builtins(value) for key, value in parts.items()})
