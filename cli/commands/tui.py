"""Open the workbench on a recording (default: the newest)."""
from __future__ import annotations

import argparse
import sys

from ..errors import CommandError

EXAMPLE = "ptdebug tui @~1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The selector."""
    parser.add_argument("selector", nargs="?", default="@", help="RECORDING[:F/C[:STAGE[:NAME]]], default @")


def run(arguments: argparse.Namespace) -> int:
    """Run the workbench until it is closed."""
    # Textual reads the keyboard from stdin, and draws on stderr where that is the terminal.
    if not all(stream is not None and stream.isatty() for stream in (sys.__stdin__, sys.__stderr__)):
        raise CommandError(f"the workbench needs a terminal; as text: ptdebug show {arguments.selector}")
    from ...tui.app import run as open_workbench

    return open_workbench(arguments.selector)
