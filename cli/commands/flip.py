"""Take another option of one decision, and see what that changes: values, time, kernels, code.

The recorded graph is compiled again as it was and with the other option, and both run on the recorded inputs beside
eager. DECISION is an id, as `ptdebug decisions` lists them; OPTION can be left out where there is only one other. The
exit code is 1 where the result is not eager's with the other option.
"""
from __future__ import annotations

import argparse

from ...artifacts.garbage import fewer_collections
from ...artifacts.listing import Line, plural, printable
from ...artifacts.recording import Recording
from ...artifacts.records import Decision
from ..errors import CommandError
from ..flipped import override_text, print_flip
from ..main import did_you_mean
from ..printing import print_json, print_lines, selected, write_file
from ..trust import confirmed

EXAMPLE = 'ptdebug flip @:0/0 "fuse:buf0+buf1"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """SELECTOR, DECISION, OPTION and the options."""
    add = parser.add_argument
    add("selector", metavar="SELECTOR", help="RECORDING[:F/C]; @ is the newest recording")
    add("decision", metavar="DECISION", help="its id: KIND:SUBJECT")
    add("option", metavar="OPTION", nargs="?", default="", help="the option to take")
    add("--device", default="", help="cpu or cuda (default: where it was recorded)")
    add("--limit", metavar="SECONDS", type=float, default=60.0, help="a run that takes longer hangs (60)")
    add("--code", action="store_true", help="print all changed lines of the code")
    add("--trust", action="store_true", help="run what a recording from elsewhere names, without asking")
    add("-o", "--out", metavar="FILE", help="write the override there, for `ptdebug run --override`")
    add("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Compile the graph under both options, and compare."""
    with fewer_collections():
        from ...replay.failures.case import Case  # imports torch
        from ...replay.measure.flip import flip, other_option
        from ...replay.recorded.graphs import ReplayError
        from ...replay.workers.pool import Pool

    with selected(arguments.selector) as (recording, selector):
        owner, decision = _decision(recording, selector.compile, arguments.decision)
        try:
            option = other_option(decision, arguments.option)
            trust = confirmed(recording, arguments.trust, "flip")
            case = Case.from_recording(recording, owner, arguments.device, trust)
            if case.compiler != "ptdebug":
                raise ReplayError("stock PyTorch made this recording: its decisions cannot be forced")
            with Pool(limit=arguments.limit) as pool:
                found = flip(case, decision, option, f"{recording.name}:{owner}", pool)
        except ReplayError as error:
            raise CommandError(str(error)) from error
        several = len(recording.compiles()) > 1
    override = override_text(found, owner if several else "")
    if arguments.out:
        write_file(arguments.out, f"{override}\n")
    if arguments.json:
        print_json(**found.document(), override=override)
    else:
        print_flip(found, override, arguments.code)
        print_lines([Line(printable(f"  written to {arguments.out}"))] if arguments.out else [])
    return 0 if found.after.outcome.passed else 1


def _decision(recording: Recording, compile_id: str, wanted: str) -> tuple[str, Decision]:
    """The decision of that id, and its compilation. Raises CommandError."""
    made = recording.decisions(compile_id or None)
    found = [(owner, decision) for owner, decision in made if decision.id == wanted]
    owners = dict.fromkeys(owner for owner, _ in found)
    if len(owners) > 1:
        raise CommandError(f"{plural(len(owners), 'compilation')} made it: name one, {', '.join(owners)}, "
                           f"as in {recording.name}:{next(iter(owners))}")
    if not found:
        near = did_you_mean(wanted, [decision.id for _, decision in made])
        raise CommandError(f"no decision {wanted!r} is recorded{near}; `ptdebug decisions` lists them")
    return found[-1]
