"""Hold a recording against a budget, as a gate for CI: so many graph breaks, recompilations, kernels, ... and no more.

Exit code 1 if a count is above its limit, or the recording is not complete; each count that is above comes with what is
to blame, where that has places. Limits may also stand in pyproject.toml, under [tool.ptdebug.budget]: graph_breaks = 0.
"""
from __future__ import annotations

import argparse
from typing import Any

from ...artifacts.budget import LIMITS, Verdict, incomplete, verdicts
from ...artifacts.listing import printable
from ...artifacts.summary import summary
from ..errors import CommandError
from ..printing import add_selector, print_json, selected
from ..settings import budget

EXAMPLE = "ptdebug check @ --graph-breaks 0 --recompiles 1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The recording, a limit for each count, and --json."""
    add_selector(parser)
    for name, what in LIMITS.items():
        kind = float if name.endswith("seconds") else int
        parser.add_argument(f"--{name.replace('_', '-')}", metavar="N", type=kind, help=f"at most N {what}")


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each limit; 0 if all are kept."""
    given = {name: getattr(arguments, name) for name in LIMITS}
    limits = {**budget(LIMITS), **{name: limit for name, limit in given.items() if limit is not None}}
    if not limits:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in LIMITS)
        raise CommandError(f"there is no limit to check: give {options}, or [tool.ptdebug.budget] in pyproject.toml")
    with selected(arguments.selector) as (recording, selector):
        if selector.compile:
            raise CommandError(f"{arguments.selector} is a part of a recording: only a whole one is checked")
        document = summary(recording)
    found = verdicts(document, limits)
    missing = incomplete(document)
    kept = not missing and all(verdict.kept for verdict in found)
    if arguments.json:
        print_json(recording=document["recording"], kept=kept, incomplete=missing or None,
                   limits=[_document(v) for v in found])
    else:
        for verdict in found:
            _print(verdict)
        if missing:
            print(printable(f"?     {missing}"))
    return 0 if kept else 1


def _document(verdict: Verdict) -> dict[str, Any]:
    return {"name": verdict.name, "limit": verdict.limit, "found": verdict.found, "kept": verdict.kept,
            "places": [dict(place) for place in verdict.places]}


def _print(verdict: Verdict) -> None:
    what = LIMITS[verdict.name]
    number = f"{verdict.found:.1f}" if isinstance(verdict.found, float) else str(verdict.found)
    print(f"{'ok  ' if verdict.kept else 'OVER'}  {what}: {number} (limit {verdict.limit:g})")
    for place in () if verdict.kept else verdict.places:
        print(printable(f"        {place['file']}:{place['line']}  {place['what']}  ({place['compile']})"))
