"""Write the timeline of a recording in Chrome's trace format, for Perfetto (ui.perfetto.dev) or chrome://tracing.

The run, each compilation with the seconds of its stages, graph breaks, and recompilations.
"""
from __future__ import annotations

import argparse

from ...artifacts.chrome_trace import chrome_trace
from ...dependencies import msgspec
from ..errors import CommandError
from ..printing import add_selector, print_json, selected, write_file

EXAMPLE = "ptdebug trace @ -o trace.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The selector, -o and --json."""
    add_selector(parser)
    parser.add_argument("-o", "--out", metavar="FILE", default="trace.json",
                        help="where to write (default: trace.json)")


def run(arguments: argparse.Namespace) -> int:
    """Write the file; --json prints what it holds, counted."""
    with selected(arguments.selector) as (recording, selector):
        if selector.stage:
            raise CommandError(f"{arguments.selector} is a stage: a timeline is of a recording or a compilation")
        document = chrome_trace(recording, selector.compile)
    write_file(arguments.out, msgspec.json.encode(document))
    if arguments.json:
        kinds = [event["cat"].partition(",")[0] for event in document["traceEvents"] if "cat" in event]
        print_json(selector=arguments.selector, file=arguments.out,
                   events={kind: kinds.count(kind) for kind in dict.fromkeys(kinds)})
    else:
        print(arguments.out)
    return 0
