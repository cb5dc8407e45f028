"""The graph breaks: where, why, what to change in the program, and what each cost.

They are grouped by function, in the order of its lines: one change often removes several. The most expensive function
comes first.
"""
from __future__ import annotations

import argparse
from collections import defaultdict

from ...artifacts.listing import Line, plural
from ...artifacts.records import Break
from ...artifacts.render_lists import break_lines
from ...artifacts.summary import break_costs, break_document, breaks
from ..printing import add_selector, print_json, print_lines, selected

EXAMPLE = "ptdebug breaks @:0/0"


def _function(entry: Break) -> tuple[str, str]:
    return entry.location.file, entry.location.function


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SELECTOR and --json."""
    add_selector(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print each break once; 0 also where there are none."""
    with selected(arguments.selector) as (recording, selector):
        chosen = selector.compile or None
        found = list(zip(breaks(recording, chosen), break_costs(recording, chosen)))
        if arguments.json:
            print_json(graph_breaks=[break_document(*entry, cost) for entry, cost in found])
            return 0
        if not found:
            print("no graph breaks")
            return 0
        seconds: dict[tuple[str, str], float] = defaultdict(float)
        for (_, entry, _), cost in found:
            seconds[_function(entry)] += cost.seconds
        where = f"{plural(len(found), 'place')} in {plural(len(seconds), 'function')}"
        total = sum(seconds.values())
        print(f"graph breaks at {where}; {total:.1f} s more compile time. The most expensive function first.")
        found.sort(key=lambda f: (-seconds[_function(f[0][1])], _function(f[0][1]), f[0][1].location.line))
        for number, ((owner, entry, times), cost) in enumerate(found, 1):
            often = f", in {times} compilations" if times > 1 else ""
            print()
            head, *rest = break_lines(entry, recording.source, cost=cost)
            print_lines([Line(f"{number}. {head.text}  ({owner}{often})"), *rest])
    return 0
