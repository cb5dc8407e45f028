"""Write a recorded compilation, graph, pass, kernel, graph break or recompilation as a script that runs by itself.

SELECTOR is RECORDING:F/C for the function as the program has it, or RECORDING:F/C:WHAT, where WHAT is a graph (capture,
joint, forward, backward), passes:NAME, kernels:NAME, breaks:ID, or recompiles. Tensors go into a .safetensors file
beside the script. It compares with eager; its exit code is 1 if the failure shows.
"""
from __future__ import annotations

import argparse
import re
from pathlib import Path

from ...artifacts.garbage import fewer_collections
from ..errors import CommandError
from ..printing import add_selector, print_json, say, selected

EXAMPLE = "ptdebug repro @:0/0 -o repro.py"
_NAMED = re.compile(r"(.*:\d+/\d+(?:@\w+)?):(breaks|recompiles|kernels|passes)(?::(.*))?$")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SELECTOR, -o, --inputs, --call, --check, --trust and --json."""
    add_selector(parser)
    parser.add_argument("-o", "--out", metavar="FILE", default="repro.py", help="where to write (default: repro.py)")
    parser.add_argument("--inputs", choices=("recorded", "random"), default="recorded",
                        help="the recorded values (default), or random ones of the same shapes, strides and dtypes")
    parser.add_argument("--call", metavar="N", type=int, default=0, help=(
        "the inputs of a later call, counted from 0: one that raised, or with run --inputs all, any"))
    parser.add_argument("--check", action="store_true", help="also run the script in a fresh process")
    parser.add_argument("--trust", action="store_true", help="run code of a recording from elsewhere")


def run(arguments: argparse.Namespace) -> int:
    """Write the script; with --check, run it, and return its exit code's meaning: 1 if the failure shows."""
    with fewer_collections():
        from ...replay.program.program import is_ours
        from ...replay.repro.recorded import repro  # imports torch
        from ...replay.repro.verify import verify

    text, stage, name = arguments.selector, "", ""
    if named := _NAMED.match(text):
        text, stage, name = named[1], named[2], named[3] or ""
    with selected(text) as (recording, selector):
        if arguments.check and not (arguments.trust or is_ours(recording)):
            raise CommandError("the recording was not made by you here: --trust runs what it says anyway")
        compiled = [c.id for c in recording.compiles() if c.status == "compiled"]
        compile_id = selector.compile or _only(recording.name, compiled)
        made = repro(recording, compile_id, stage or selector.stage, name or selector.name, arguments.inputs,
                     arguments.trust, arguments.call)
    files = made.write(Path(arguments.out))
    found = verify(files) if arguments.check else None
    if arguments.json:
        print_json(selector=arguments.selector, files=[str(file) for file in files], note=made.note,
                   outcome=None if found is None else str(found.outcome))
    else:
        for file in files:
            print(file)
        if made.note:
            say(f"ptdebug: {made.note}")
        if found is not None:
            print(f"run in a fresh process: {found.outcome}")
    return int(found is not None and found.outcome.failed)


def _only(recording: str, ids: list[str]) -> str:
    if len(ids) != 1:
        raise CommandError(f"{recording} has {len(ids)} compilations: name one, as in @:{(ids or ['0/0'])[0]}")
    return ids[0]
