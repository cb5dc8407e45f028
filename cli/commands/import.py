"""Make a recording of a trace that PyTorch wrote: run any program with TORCH_TRACE=FOLDER, and name the folder.

Nothing of ptdebug has to be there when the program runs, and the trace may come from another machine. A folder with one
file for each rank becomes one recording for each. What the trace does not hold (calls, inputs, loop IR, the program's
text where the files are not here or were changed) is absent, and said to be so.
"""
from __future__ import annotations

import argparse
from pathlib import Path

from ...artifacts.home import existing_home
from ...artifacts.listing import printable
from ..printing import add_json, add_new_recording, print_json, say

EXAMPLE = "ptdebug import /tmp/trace --name production"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """TRACE, --out, --name and --json."""
    parser.add_argument("trace", metavar="TRACE", help="the folder that TORCH_TRACE named, or a file of it (also .gz)")
    add_new_recording(parser, "trace, numbered")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Import, and print the names of the recordings."""
    from ..trace_import import import_trace

    folders, untold = import_trace(Path(arguments.trace), existing_home(arguments.out), arguments.name)
    for text in untold:
        say(f"ptdebug: {text}")
    if arguments.json:
        print_json(recordings=[{"recording": folder.name, "path": str(folder)} for folder in folders])
        return 0
    for folder in folders:
        print(printable(str(folder)))
    print(printable(f"  look closer: ptdebug tui {folders[0].name}"))
    if len(folders) > 1:
        print(printable(f"  compare: ptdebug diff {folders[0].name} {folders[1].name}"))
    return 0
