"""The graph breaks: where, why, what to change in the program, and what each cost.

They are grouped by function, in the order of its lines: one change often removes several. The most expensive function
comes first.
"""
from __future__ import annotations

import argparse

from ...artifacts.listing import Line, plural
from ...artifacts.render_lists import break_lines
from ...artifacts.summary import break_document, ranked_breaks
from ..printing import add_selector, print_json, print_lines, selected

EXAMPLE = "ptdebug breaks @:0/0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SELECTOR and --json."""
    add_selector(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print each break once; 0 also where there are none."""
    with selected(arguments.selector) as (recording, selector):
        chosen = selector.compile or None
        found = ranked_breaks(recording, chosen)
        if arguments.json:
            print_json(graph_breaks=[break_document(*entry, cost) for entry, cost in found])
            return 0
        if not found:
            print("no graph breaks")
            return 0
        functions = {(entry.location.file, entry.location.function) for (_, entry, _), _ in found}
        where = f"{plural(len(found), 'place')} in {plural(len(functions), 'function')}"
        total = sum(cost.seconds for _, cost in found)
        print(f"graph breaks at {where}; {total:.1f} s more compile time. The most expensive function first.")
        for number, ((owner, entry, times), cost) in enumerate(found, 1):
            often = f", in {times} compilations" if times > 1 else ""
            print()
            head, *rest = break_lines(entry, recording.source, cost=cost)
            print_lines([Line(f"{number}. {head.text}  ({owner}{often})"), *rest])
    return 0
