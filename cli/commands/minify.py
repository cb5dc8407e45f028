"""Make a failing compilation, or a failing script, as small as possible, and write a script that was seen to fail.

A recorded compilation is compared with eager and reduced to few operators on small inputs; if all graphs of a recording
are right, its program is reduced. Of a C++ kernel (RECORDING:F/C:kernels:NAME) the loops are reduced that compute other
than their loop IR says. A script is run in eager
and compiled; what differs (values, gradients, an exception, a crash) is found by itself, or asked for with --check,
--match, --break or --recompile, and the script with the modules beside it is reduced to the lines that show it. Runs
are in processes of their own, several at once; after Ctrl-C the result is the best so far, and the same command
continues from there.
"""
from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from ...artifacts.garbage import fewer_collections
from ..errors import CommandError
from ..printing import add_json, say
from ..settings import pattern, read_overrides

EXAMPLE = "ptdebug minify train.py -o repro.py"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to reduce, where the result goes, and what counts as the failure."""
    parser.usage = "ptdebug minify [options] (SELECTOR | SCRIPT) [options] [-- ARGS...]"
    add = parser.add_argument
    add("target", metavar="SELECTOR|SCRIPT", help=(
        "a recorded compilation (RECORDING[:F/C]), a C++ kernel (RECORDING:F/C:kernels:NAME), or a script (FILE.py)"))
    add("-o", "--out", metavar="FILE", default="repro.py", help="where to write (default: repro.py)")
    add("--check", metavar="CMD", default="",
        help="the script fails where this shell command does, which has its output on stdin")
    add("--match", metavar="REGEX", default="", type=pattern,
        help="the script fails where its output has a line like this")
    add("--break", metavar="CODE", default="", dest="graph_break", help="reduce to a graph break of this code")
    add("--recompile", metavar="GUARD", default="", help="reduce to a recompilation for this guard")
    add("--slow", metavar="RATIO", type=float, default=0.0,
        help="a recorded graph also fails that takes RATIO times as long as eager")
    add("--dry-run", action="store_true", help="only say what the script shows: exit code 1 if it shows a failure")
    add("--limit", metavar="SECONDS", type=float, default=0.0,
        help="a run that takes longer hangs (120; a script: by its first run)")
    add("-j", "--jobs", metavar="N", type=int, default=0, help="runs at once (default: one for each core)")
    add("--device", help="where recorded graphs run: cpu or cuda (default: where they were recorded)")
    add("--import", metavar="MODULE", action="append", dest="imports", default=[],
        help="loaded before anything runs; MODULE:FUNCTION calls a function, too")
    add("--override", metavar="FILE", help="decisions that are forced in all runs")
    add("--trust", action="store_true", help="run code that a recording from elsewhere names")
    add_json(parser)


def split(parser: argparse.ArgumentParser, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options, and after `--` the arguments of the script."""
    own = list(words)
    if "--" not in own:
        return own, []
    position = own.index("--")
    return own[:position], own[position + 1 :]


def run(arguments: argparse.Namespace) -> int:
    """Reduce, write, verify."""
    arguments.forced = read_overrides(Path(arguments.override)) if arguments.override else {}
    if arguments.target.endswith(".py"):
        if not Path(arguments.target).is_file():
            raise CommandError(f"can't open file '{arguments.target}'")
        if arguments.slow:
            raise CommandError("--slow is for recorded compilations: record the script first (ptdebug run)")
        return _of_script(arguments)
    if arguments.program or arguments.check or arguments.match or arguments.graph_break or arguments.recompile:
        raise CommandError("--check, --match, --break, --recompile and arguments are for scripts (FILE.py)")
    if arguments.dry_run:
        raise CommandError("--dry-run is for scripts; `ptdebug replay` says what a recorded compilation shows")
    fresh = "torch" not in sys.modules
    with fewer_collections():
        from ...replay.workers.client import Workers
        from ...replay.workers.warm import one_thread
        from ..minify_recording import GraphsAreRight, run_recording

    try:
        with closing(Workers(fork=fresh)) as workers, one_thread():  # the program may run in forks of this process
            return run_recording(arguments, workers)
    except GraphsAreRight as right:
        if not right.program or arguments.slow:
            raise
        say(f"ptdebug: {right}; now the program as a whole")
        arguments.target, arguments.program = right.program[0], list(right.program[1:])
        return _of_script(arguments)


def _of_script(arguments: argparse.Namespace) -> int:
    with fewer_collections():
        from ..scripts.report import run_script  # imports torch

    return run_script(arguments)
