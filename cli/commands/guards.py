"""The guards of each compilation, as a tree, each with the line of the program that needs it."""
from __future__ import annotations

import argparse

from ...artifacts.listing import Line, plural, printable
from ...artifacts.recording import Recording
from ...artifacts.records import Guards, Runtime
from ...artifacts.render import render
from ...artifacts.render_lists import failed_objects, failed_text
from ...artifacts.summary import guards
from ...dependencies import msgspec
from ..printing import add_selector, check_kind, print_json, print_lines, print_listing, print_title, selected

EXAMPLE = "ptdebug guards @:0/1 --kind TENSOR_MATCH"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SELECTOR, --json and --kind."""
    add_selector(parser)
    parser.add_argument("--kind", help="only guards of this kind (TENSOR_MATCH, ID_MATCH, ...)")


def run(arguments: argparse.Namespace) -> int:
    """Print the guards of one compilation or of all."""
    with selected(arguments.selector) as (recording, selector):
        wanted = arguments.kind
        check_kind(wanted, (guard.kind for _, guard in guards(recording)), f"guards of {recording.name}")
        if arguments.json:
            found = guards(recording, selector.compile or None)
            print_json(guards=[{"compile": owner, **_plain(guard)} for owner, guard in found
                               if wanted in (None, guard.kind)], checks=_costs(recording, selector.compile))
            return 0
        for owner, record in recording.records(Guards, selector.compile or None):
            print_title(f"== {owner}{_checked(recording, owner)}")
            failed = failed_text(failed_objects(record, recording.find(Runtime, owner, "runtime")))
            print_lines([Line(printable(f"# {failed}"))] if failed else [])
            kept = Guards(
                tuple(guard for guard in record.guards if wanted in (None, guard.kind)),
                () if wanted else record.symbols, 0 if wanted else record.check_ns,
            )
            print_listing(render(kept, "guards", "", recording.source))
    return 0


def _checked(recording: Recording, owner: str) -> str:
    """How often the guards were checked, and how often one failed."""
    runs = [runtime for _, runtime in recording.records(Runtime, owner)]
    calls, failures = sum(r.calls for r in runs), sum(r.guard_failures for r in runs)
    return f"  checked {plural(calls + failures, 'time')}, failed {plural(failures, 'time')}" if runs else ""


def _costs(recording: Recording, compile_id: str) -> list[dict[str, object]]:
    """Of each compilation, how long a check of all its guards took, and which objects failed how often."""
    return [{"compile": owner, "guards": len(record.guards), "nanoseconds": record.check_ns or None,
             "failed": [{"object": name, "times": times} for name, times in failed_objects(
                 record, recording.find(Runtime, owner, "runtime"))]}
            for owner, record in recording.records(Guards, compile_id or None)]


def _plain(guard: msgspec.Struct) -> dict[str, object]:
    return {key: value for key, value in msgspec.to_builtins(guard).items() if key != "record"}
