"""`ptdebug minify` of recorded compilations: finds one that fails, reduces it, reports."""
from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path

from ..artifacts.recording import Recording
from ..replay.failures.case import Case
from ..replay.failures.outcome import Outcome
from ..replay.program.program import is_ours, was_made_here
from ..replay.recorded.graphs import ReplayError
from ..replay.reduce.minify import MinifiedGraph, minify_graph, write_minified
from ..replay.reduce.subgraph import computed
from ..replay.workers.client import Workers
from ..replay.workers.pool import LIMIT, Pool
from ..replay.workers.progress import Progress
from .errors import CommandError
from .printing import print_json, say, selected

_KERNEL = re.compile(r"(.*:\d+/\d+(?:@\w+)?):kernels:(.+)$")
INTERRUPTED = 130
"""The exit code after Ctrl-C, when the best so far has been written."""


class GraphsAreRight(CommandError):
    """No graph fails by itself; `program` is the script and its arguments, which as a whole may, or ()."""

    def __init__(self, message: str, program: tuple[str, ...]) -> None:
        super().__init__(message, 1)
        self.program = program


def run_recording(arguments: argparse.Namespace, workers: Workers) -> int:
    """Minify the compilation of a selector, or the first one of a recording that fails."""
    if of_kernel := _KERNEL.match(arguments.target):
        from .minify_kernel import run_kernel

        with selected(of_kernel[1]) as (recording, selector):
            return run_kernel(arguments, recording, selector.compile, of_kernel[2])
    with selected(arguments.target) as (recording, selector):
        if selector.stage:
            raise CommandError(f"minify reduces whole compilations, and the loops of a kernel: "
                               f"{recording.name}:{selector.compile}, {recording.name}:{selector.compile}:kernels:NAME")
        if not (arguments.trust or was_made_here(recording)):
            say("ptdebug: this recording was not made by you here: only torch's operators run (--trust runs all)")
        captured = [c.id for c in recording.compiles() if "capture" in recording.stages(c.id)]
        ids = [selector.compile] if selector.compile else captured
        program = () if selector.compile or not (arguments.trust or is_ours(recording)) else _script(recording)
        cases = dict(_cases(recording, ids, arguments))
        if not cases:
            raise GraphsAreRight(f"nothing of {arguments.target} can be run again", program)
        progress = Progress("minify")
        jobs = 1 if arguments.slow else arguments.jobs
        with Pool(jobs, arguments.limit or LIMIT, told=progress.ran, processes=workers) as pool:
            try:
                compile_id, case, outcome = _failing(arguments.target, cases, pool, program)
                progress.say(f"{compile_id}: {outcome}")
                minified = minify_graph(case, outcome, pool, lambda case, ran: progress.say(_words(case)))
            finally:
                progress.end()
        write_minified(minified, Path(arguments.out), (f"Reduced from {recording.name}:{compile_id}.",))
    report(arguments, minified, f"{recording.name}:{compile_id}")
    return INTERRUPTED if minified.interrupted else 0


def _cases(recording: Recording, ids: list[str], arguments: argparse.Namespace) -> list[tuple[str, Case]]:
    found = []
    for compile_id in ids:
        try:
            case = Case.from_recording(recording, compile_id, trust=arguments.trust)
        except ReplayError as error:
            say(f"ptdebug: {compile_id}: {error}")
            continue
        found.append((compile_id, replace(
            case, slow=arguments.slow, imports=tuple(arguments.imports), device=arguments.device or case.device,
            forced={**arguments.forced, **case.forced})))
    return found


def _script(recording: Recording) -> tuple[str, ...]:
    """The recorded command, if it runs a script that is still there: the script's path, and its arguments. () where
    stock compiled it."""
    if recording.meta.get("compiler") != "ptdebug":
        return ()
    command = list(recording.meta.get("command", []))
    path = Path(str(recording.meta.get("folder", ".")), command[0]) if command else Path("-")
    return (str(path), *command[1:]) if path.suffix == ".py" and path.is_file() else ()


def _failing(target: str, cases: dict[str, Case], pool: Pool, program: tuple[str, ...]) -> tuple[str, Case, Outcome]:
    outcomes = pool(list(cases.values()))
    for (compile_id, case), outcome in zip(cases.items(), outcomes):
        if outcome.failed:
            return compile_id, case, outcome
    silent = [f"{i}: {o}" for i, o in zip(cases, outcomes) if not o.passed]
    words = "; ".join(silent) or "what its graphs compute is what eager computes (for capture, minify the script)"
    raise GraphsAreRight(f"nothing to minify in {target}: {words}", program)


def _words(case: Case) -> str:
    return f"{len(computed(case.graph))} operators"


def report(arguments: argparse.Namespace, minified: MinifiedGraph, selector: str) -> None:
    """Print the result."""
    verified = minified.verified
    shown = verified is not None and verified.shows(minified.signature)
    before = len(computed(minified.original.graph))
    if arguments.json:
        print_json(
            selector=selector, signature=str(minified.signature), files=list(map(str, minified.files)), verified=shown,
            outcome=str(verified.outcome) if verified else None, operators=minified.operators(),
            operators_before=before, runs=minified.ran, seconds=round(minified.seconds, 3),
            interrupted=minified.interrupted, neighbour=minified.neighbour is not None)
        return
    print(f"{minified.signature}: {before} operators to {minified.operators()}, {minified.ran} runs, "
          f"{minified.seconds:.1f} s{' (interrupted)' if minified.interrupted else ''}")
    for file in minified.files:
        print(file)
    print(f"run in a fresh process: {verified.outcome if verified else 'no'}")
    if not shown:
        say("ptdebug: the script does not show the same failure by itself")
