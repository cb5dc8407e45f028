"""The graph breaks: where, why, and what to change in the program."""
from __future__ import annotations

import argparse

from ...artifacts.listing import printable
from ...artifacts.render_lists import break_lines
from ...artifacts.summary import break_document, breaks
from ..printing import add_selector, print_json, print_lines, selected

EXAMPLE = "ptdebug breaks @:0/0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SELECTOR and --json."""
    add_selector(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print each break once; 0 also where there are none."""
    with selected(arguments.selector) as (recording, selector):
        found = breaks(recording, selector.compile or None)
        if arguments.json:
            print_json(graph_breaks=[break_document(*entry) for entry in found])
            return 0
        if not found:
            print("no graph breaks")
        for owner, entry, times in found:
            print(printable(f"{owner}" + (f"  (in {times} compilations)" if times > 1 else "")))
            print_lines(break_lines(entry, recording.source))
    return 0
