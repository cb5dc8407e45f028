"""Write a recording as one HTML file that needs nothing else: no network, no ptdebug.

Summary, graph breaks, recompilations, the program, and of each compilation its graphs, fusions and kernels; a click on
a line lights what it comes from and what came of it. The file says what was left out of it.
"""
from __future__ import annotations

import argparse

from ...artifacts.html_report import MEGABYTES, html_report
from ..errors import CommandError
from ..printing import add_selector, print_json, say, selected, write_file

EXAMPLE = "ptdebug report @ -o report.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The selector, -o, --limit and --json."""
    add_selector(parser)
    parser.add_argument("-o", "--out", metavar="FILE", default="report.html",
                        help="where to write (default: report.html)")
    parser.add_argument("--limit", type=float, default=MEGABYTES, metavar="MB", help=f"of HTML (default {MEGABYTES})")


def run(arguments: argparse.Namespace) -> int:
    """Write the file."""
    with selected(arguments.selector) as (recording, selector):
        if selector.stage:
            raise CommandError(f"{arguments.selector} is a stage: a report is of a recording or a compilation")
        text, left_out = html_report(recording, selector.compile, arguments.limit)
    write_file(arguments.out, text)
    if arguments.json:
        print_json(selector=arguments.selector, file=arguments.out, bytes=len(text.encode("utf-8", "replace")),
                   left_out=left_out)
        return 0
    print(arguments.out)
    if left_out:
        say(f"left out (the file lists it): {'; '.join(left_out[:3])}{'; ...' if len(left_out) > 3 else ''}")
    return 0
