"""The recompilations: which guard failed, what it expected and got, and what to do about it."""
from __future__ import annotations

import argparse

from ...artifacts.render import render
from ...artifacts.summary import recompile_document, recompiles
from ..printing import add_selector, print_json, print_listing, print_title, selected

EXAMPLE = "ptdebug recompiles @"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SELECTOR and --json."""
    add_selector(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print each recompilation; 0 also where there are none."""
    with selected(arguments.selector) as (recording, selector):
        found = recompiles(recording, selector.compile or None)
        if arguments.json:
            print_json(recompiles=[recompile_document(*entry) for entry in found])
            return 0
        if not found:
            print("no recompilations")
        for owner, record in found:
            print_title(f"{owner}  {recording.compile(owner).function}")
            print_listing(render(record, "guards", "recompile", recording.source))
    return 0
