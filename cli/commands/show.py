"""Print an artifact; for a compilation its overview, for a recording its summary.

Stages: frame bytecode steps capture breaks guards output_bytecode joint forward backward partition passes loops fusion
schedule kernels wrapper runtime decisions. All artifacts of a stage are printed; NAME selects one. Outputs
of the compiler of a kernel are NAME.OUTPUT (asm, ttir, ptx, ...), what the tracer knew before a step NAME.STEP.
"""
from __future__ import annotations

import argparse
from typing import Any

from ...artifacts.listing import Line, Listing, printable, short_place, source_listing, source_path
from ...artifacts.machine_lines import MACHINE
from ...artifacts.provenance import links
from ...artifacts.recording import Recording, RecordingError
from ...artifacts.records import Location, split_ref
from ...artifacts.render import listing
from ...artifacts.render_summary import render_compile, render_summary
from ...artifacts.selector import Selector
from ...artifacts.summary import summary
from ...dependencies import msgspec
from ..printing import add_selector, print_json, print_listing, print_title, selected

EXAMPLE = "ptdebug show @:0/0:kernels"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SELECTOR, --json and --line."""
    add_selector(parser)
    parser.add_argument("--line", type=int, metavar="N",
                        help="show the lines of every other stage that line N of the artifact comes from or leads to")


def run(arguments: argparse.Namespace) -> int:
    """Print what the selector names."""
    with selected(arguments.selector) as (recording, selector):
        if not selector.compile:
            document = summary(recording)
            if arguments.json:
                print_json(**document)
            else:
                print_listing(render_summary(document))
        elif not selector.stage:
            _show_compile(recording, selector, arguments.json)
        elif arguments.line is not None:
            _show_line(recording, selector, arguments.line, arguments.json)
        else:
            _show_artifacts(recording, selector, arguments.json)
    return 0


def _show_compile(recording: Recording, selector: Selector, as_json: bool) -> None:
    if not as_json:
        print_listing(render_compile(recording, recording.compile(selector.compile)))
        return
    document = next(c for c in summary(recording)["compiles"] if c["id"] == selector.compile)
    artifacts = [{"stage": a.stage, "name": a.name, "kind": a.kind, "items": a.items}
                 for a in recording.artifacts(selector.compile)]
    absent = [{"stage": a.stage, "why": a.why} for _, a in recording.absents(selector.compile)]
    print_json(selector=str(selector), compile=document, artifacts=artifacts, absent=absent)


def _names(recording: Recording, selector: Selector) -> list[str]:
    """The artifacts of the stage that the selector means. Raises RecordingError where there is none."""
    if selector.name or selector.stage == "decisions":
        return [selector.name]
    names = [info.name for info in recording.artifacts(selector.compile, selector.stage)]
    if not names:
        recording.artifact(selector.compile, selector.stage)  # raises, and says why
    return names


def _show_artifacts(recording: Recording, selector: Selector, as_json: bool) -> None:
    names = _names(recording, selector)
    if as_json:
        documents = [_document(recording, selector, name, len(names) == 1) for name in names]
        print_json(selector=str(selector), artifacts=documents)
        return
    for name in names:
        if len(names) > 1:
            print_title(f"== {selector.stage}{':' + name if name else ''}")
        try:
            shown = listing(recording, selector.compile, selector.stage, name)
        except RecordingError as error:  # damaged: the others may be whole
            if len(names) == 1:
                raise
            shown = Listing("", "text", (Line(printable(str(error))),))
        print_listing(shown)


def _document(recording: Recording, selector: Selector, name: str, is_only: bool) -> dict[str, Any]:
    record: Any
    if selector.stage == "decisions":
        record = [d for _, d in recording.decisions(selector.compile) if not name or d.id == name]
    else:
        try:
            record = recording.artifact(selector.compile, selector.stage, name)
        except RecordingError as error:
            if not is_only:
                return {"stage": selector.stage, "name": name, "problem": str(error)}
            text = listing(recording, selector.compile, selector.stage, name).text  # a later form of a kernel
            return {"stage": selector.stage, "name": name, "text": text}
    return {"stage": selector.stage, "name": name, "record": msgspec.to_builtins(record)}


def _show_line(recording: Recording, selector: Selector, number: int, as_json: bool) -> None:
    name = _names(recording, selector)[0]
    shown = listing(recording, selector.compile, selector.stage, name)
    if not 1 <= number <= len(shown.lines):
        raise RecordingError(f"{shown.title} has {len(shown.lines)} lines")
    line = shown.lines[number - 1]
    item = line.ref or next(iter(line.origins), "")
    found = links(recording, selector.compile).everywhere(item) if item else []
    if as_json:
        print_json(selector=str(selector), line=number, text=line.text, related=found)
        return
    others = _related_lines(recording, selector.compile, [reference for reference in found if reference != item])
    print_listing(Listing("", "text", (Line(line.text), *others)))


def _label(stage: str, name: str, item: str) -> str:
    if stage == "source":
        return short_place(Location(source_path(name), int(item)))
    return f"{stage}:{name}" if name else stage


def _related_lines(recording: Recording, compile_id: str, references: list[str]) -> list[Line]:
    """The lines of all listings that show `references`."""
    lines = []
    listings: dict[tuple[str, str], Listing] = {}
    for reference in references:
        stage, name, item = split_ref(reference)
        if not item or stage == "decisions":
            continue
        if (stage, name) not in listings:
            try:
                listings[stage, name] = _any_listing(recording, compile_id, stage, name)
            except RecordingError:
                listings[stage, name] = Listing("", "text", ())
        label = _label(stage, name, item)
        lines += [Line(printable(f"  {label:<24} {line.text.strip()}"))
                  for line in listings[stage, name].lines if line.ref == reference]
    return lines


def _any_listing(recording: Recording, compile_id: str, stage: str, name: str) -> Listing:
    if stage == "source":
        path = source_path(name)
        return source_listing(path, recording.source(path) or "")
    return listing(recording, compile_id, "kernels" if stage == MACHINE else stage, name)
