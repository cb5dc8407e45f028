"""Make a failing compilation, or a failing script, as small as possible, and write a script that was seen to fail.

A recorded compilation is compared with eager and reduced to few operators on small inputs. A script is run in eager
and compiled; what differs (values, gradients, an exception, a crash) is found by itself, or asked for with --check,
--match, --break or --recompile, and the script with the modules beside it is reduced to the lines that show it. Runs
are in processes of their own, several at once; after Ctrl-C the result is the best so far, and the same command
continues from there.
"""
from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import CommandError
from ..printing import add_json

EXAMPLE = "ptdebug minify train.py -o repro.py"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What to reduce, where the result goes, and what counts as the failure."""
    add = parser.add_argument
    add("target", metavar="SELECTOR|SCRIPT", help="a recorded compilation (RECORDING[:F/C]), or a script (FILE.py)")
    add("arguments", nargs="*", metavar="ARGS", help="the script's arguments (after `--` where they begin with -)")
    add("-o", "--out", metavar="FILE", default="repro.py", help="where to write (default: repro.py)")
    add("--check", metavar="CMD", default="",
        help="a shell command that fails (exit code not 0) where the script does; it gets the script's output on stdin")
    add("--match", metavar="REGEX", default="", help="what the output of a failing run has")
    add("--break", metavar="CODE", default="", dest="graph_break", help="reduce to a graph break of this code")
    add("--recompile", metavar="GUARD", default="", help="reduce to a recompilation for this guard")
    add("--slower", metavar="RATIO", type=float, default=0.0,
        help="compiled code that takes so many times as long as eager (recorded compilations)")
    add("--dry-run", action="store_true", help="only say what the script shows: exit code 1 if it shows a failure")
    add("--limit", metavar="SECONDS", type=float, default=0.0, help="for one run (default: by the first run)")
    add("--workers", metavar="N", type=int, default=0, help="runs at once (default: one for each core)")
    add("--trust", action="store_true", help="run code that a recording from elsewhere names")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Reduce, write, verify."""
    target = arguments.target
    if target.endswith(".py"):
        if not Path(target).is_file():
            raise CommandError(f"can't open file '{target}'")
        from ..scripts.report import run_script

        return run_script(arguments)
    if arguments.arguments or arguments.check or arguments.match or arguments.graph_break or arguments.recompile:
        raise CommandError("arguments, --check, --match, --break and --recompile are for scripts (FILE.py)")
    from ..minify_recording import run_recording

    return run_recording(arguments)
