"""Open the workbench on a recording (default: the newest).

With --follow it watches a program that `ptdebug run` runs meanwhile: compilations and recompilations appear as they
happen. Where no program runs yet, it waits for one.
"""
from __future__ import annotations

import argparse
import gc
import os
import sys
import time

from ...artifacts.home import existing_home, recordings
from ...artifacts.process_liveness import is_running
from ...artifacts.recording import Recording, RecordingError
from ..errors import CommandError

EXAMPLE = "ptdebug tui @~1"
POLL_SECONDS = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The selector, and --follow."""
    parser.add_argument("selector", nargs="?", default="@", help="RECORDING[:F/C[:STAGE[:NAME]]], default @")
    parser.add_argument("--follow", action="store_true", help="watch a program while it runs")


def run(arguments: argparse.Namespace) -> int:
    """Run the workbench until it is closed."""
    # Textual reads the keyboard from stdin, and draws on stderr where that is the terminal.
    served = "TEXTUAL_DRIVER" in os.environ  # by `ptdebug serve`: a browser is the terminal
    if not served and not all(s is not None and s.isatty() for s in (sys.__stdin__, sys.__stderr__)):
        raise CommandError(f"the workbench needs a terminal; as text: ptdebug show {arguments.selector}")
    gc.set_threshold(50_000, 20, 1000)  # to walk what is loaded, or all lines of a large recording, takes a while
    from ...tui.app import run as open_workbench

    if arguments.follow and arguments.selector == "@" and not _runs():
        print("waiting for a program: start `ptdebug run SCRIPT` in this folder (Ctrl-C ends)", file=sys.stderr)
        try:
            while not _runs():
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            return 130
    return open_workbench(arguments.selector, follow=arguments.follow)


def _runs() -> bool:
    """Whether the program of the newest recording is running."""
    found = recordings(existing_home())
    if not found:
        return False
    try:
        with Recording.open(found[0]) as recording:
            return bool(is_running(recording.meta))
    except RecordingError:  # just being made
        return False
