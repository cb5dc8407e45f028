"""The recompilations: what changed, which line made the call, what it cost, and how to avoid it. Isolated compiles,
where one function was compiled for many torch.compile calls, are listed first."""
from __future__ import annotations

import argparse

from ...artifacts.isolated_compiles import isolated_compiles, isolated_lines
from ...artifacts.listing import Line, plural, printable
from ...artifacts.render_lists import recompile_lines
from ...artifacts.resumed import display_name, resumed
from ...artifacts.rounding import rounded
from ...artifacts.summary import limits, recompile_document, recompiles
from ..printing import add_selector, print_json, print_lines, selected

EXAMPLE = "ptdebug recompiles @"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SELECTOR and --json."""
    add_selector(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print each recompilation; 0 also where there are none."""
    with selected(arguments.selector) as (recording, selector):
        found = recompiles(recording, selector.compile or None)
        infos = {info.id: info for info in recording.compiles()}
        seconds = {owner: infos[owner].seconds.get("total", 0.0) for owner, _ in found}
        isolated = [] if selector.compile else isolated_compiles(recording)
        if arguments.json:
            documents = [recompile_document(infos[owner], record) for owner, record in found]
            print_json(recompiles=documents, isolated_compiles=isolated)
            return 0
        print_lines([Line(printable(text)) for one in isolated for text in isolated_lines(one)])
        if not found:
            print("no recompilations")
            return 0
        print(f"{plural(len(found), 'time')} a function was compiled again; {sum(seconds.values()):.1f} s")
        reached = limits(recording, selector.compile)
        print_lines([Line(f"  {infos[owner].function} {rounded(why)}") for owner, why in reached])
        after = resumed(recording)
        for number, (owner, record) in enumerate(found, 1):
            print()
            function = display_name(infos[owner], after)
            lines = recompile_lines(record, recording.source, function, owner, seconds[owner])
            print_lines([lines[0].numbered(number), *lines[1:]])
    return 0
