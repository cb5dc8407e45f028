"""The decisions of the compiler: what was chosen, the other options, and why."""
from __future__ import annotations

import argparse

from ...artifacts.decision_kinds import OPTIONS
from ...artifacts.render_lists import render_decisions
from ...dependencies import msgspec
from ..printing import add_selector, check_kind, print_json, print_listing, print_nothing, selected

EXAMPLE = "ptdebug decisions @ --kind fuse"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SELECTOR, --json and --kind."""
    add_selector(parser)
    parser.add_argument("--kind", help="only decisions of this kind")


def run(arguments: argparse.Namespace) -> int:
    """Print the decisions of one compilation or of all."""
    with selected(arguments.selector) as (recording, selector):
        kinds = (decision.kind for _, decision in recording.decisions())
        check_kind(arguments.kind, kinds, f"decisions of {recording.name}", OPTIONS)
        found = recording.decisions(selector.compile or None, arguments.kind)
        if selector.stage == "decisions" and selector.name:
            found = [(owner, decision) for owner, decision in found if decision.id == selector.name]
        if arguments.json:
            print_json(decisions=[{"compile": owner, **_plain(decision)} for owner, decision in found])
        elif not found:
            print_nothing(recording, selector.compile or None, "decisions", "no decisions")
        else:
            print_listing(render_decisions(found))
    return 0


def _plain(decision: msgspec.Struct) -> dict[str, object]:
    return {key: value for key, value in msgspec.to_builtins(decision).items() if key != "record"}
