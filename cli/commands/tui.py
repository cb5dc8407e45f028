"""Open the workbench on a recording (default: the newest)."""
from __future__ import annotations

import argparse

EXAMPLE = "ptdebug tui @~1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The selector."""
    parser.add_argument("selector", nargs="?", default="@", help="RECORDING[:F/C[:STAGE[:NAME]]], default @")


def run(arguments: argparse.Namespace) -> int:
    """Run the workbench until it is left."""
    from ...tui.app import run as open_workbench

    return open_workbench(arguments.selector)
