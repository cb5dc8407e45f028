"""The graph breaks: where, why, what to change in the program, and what each cost; the dearest first."""
from __future__ import annotations

import argparse

from ...artifacts.listing import Line, plural
from ...artifacts.render_lists import break_lines
from ...artifacts.summary import break_costs, break_document, breaks
from ..printing import add_selector, print_json, print_lines, selected

EXAMPLE = "ptdebug breaks @:0/0"


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
        total = sum(cost.seconds for _, cost in found)
        print(f"{plural(len(found), 'place')} where a function does not fit into one graph; {total:.1f} s of compiling")
        found.sort(key=lambda entry: -entry[1].seconds)
        for number, ((owner, entry, times), cost) in enumerate(found, 1):
            often = f", met in {times} compilations" if times > 1 else ""
            print()
            head, *rest = break_lines(entry, recording.source, cost=cost)
            print_lines([Line(f"{number}. {head.text}  ({owner}{often})"), *rest])
    return 0
