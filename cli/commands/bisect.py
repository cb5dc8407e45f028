"""Find the decisions to blame: the fewest whose forcing makes a wrong, crashing or slow compilation right.

Of a recording, each graph is compiled and run again on its recorded inputs and compared with eager; a graph that fails
is bisected. Where none fails, the recorded program is run, and each call of what is compiled is compared with eager. Of
a script, the whole script is run under overrides: it fails by its exit code, by --check, or by --match, or else by a
call that is not what it is in eager. What is found is printed as overrides for `ptdebug run --override FILE`.
With --commits, the first commit is named that made a script worse, with what it changed. Options come before the
script. Interrupted, it prints the best so far (exit code 130), and goes on where it was when it is started again. The
exit code is 1 if there is nothing to bisect.
"""
from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...artifacts.garbage import fewer_collections
from ...artifacts.listing import Line, printable
from ...artifacts.recording import Recording
from ...artifacts.signature import is_signed
from ..errors import INTERRUPTED, CommandError
from ..printing import add_json, print_json, print_lines, print_title, say, selected, write_file
from ..settings import pattern, read_overrides
from .run import split as split_at_program

if TYPE_CHECKING:
    from ...replay.bisect.blame import Finding, Guilty
    from ...replay.bisect.recorded import GraphReport
    from ...replay.failures.case import Case, ScriptCase

EXAMPLE = "ptdebug bisect --match 'loss nan' train.py --epochs 1"

PROGRAM_LIMIT = 120.0
"""Seconds that a recorded program may take, which nobody has asked for by name."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options, which come before SELECTOR or the script."""
    parser.usage = "ptdebug bisect [options] (SELECTOR | SCRIPT [ARGS...] | -m MODULE [ARGS...])"
    add = parser.add_argument
    add("--check", metavar="CMD", default="",
        help="the script fails where this shell command does, which has its output on stdin")
    add("--match", metavar="REGEX", default="", type=pattern,
        help="the script fails where its output has a line like this")
    add("--commits", metavar="GOOD[..BAD]", default="",
        help="name the first commit after GOOD (up to BAD, else HEAD) that is bad: by --check or --match, or else by"
        " exit code, or more graph breaks, recompilations, functions in eager; each runs in a worktree of git's")
    add("--slow", metavar="RATIO", type=float, default=0.0,
        help="a graph also fails that takes RATIO times as long as eager")
    add("--repeat", metavar="N", type=int, default=1,
        help="run each compiled graph N times: it fails if it does once (races)")
    add("--limit", metavar="SECONDS", type=float, help="a run that takes longer hangs (60; a script 600)")
    add("-j", "--jobs", metavar="N", type=int, help="runs at once (one for each core; of a script one: they may write"
        " the same files)")
    add("--device", help="where graphs run: cpu or cuda (default: where they were recorded)")
    add("--import", metavar="MODULE", action="append", dest="imports",
        help="loaded before a graph runs (its operators); MODULE:FUNCTION calls a function, too")
    add("--no-program", action="store_true", help="do not run a recorded program whose graphs are right by themselves")
    add("--override", metavar="FILE", help="decisions that are forced in all runs")
    add("--trust", action="store_true", help="also call the functions that a recording from elsewhere names")
    add("-o", "--out", metavar="FILE", help="write the overrides found there (TOML)")
    add_json(parser)


def split(parser: argparse.ArgumentParser, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options, and the script with its arguments; after a selector, options may follow."""
    own, program = split_at_program(parser, words)
    if program and not _is_script(program[0]) and not program[0].endswith(".py"):
        return [*own, *program[1:]], program[:1]
    return own, program


def run(arguments: argparse.Namespace) -> int:
    """Bisect a recording, or a script."""
    words = arguments.program
    arguments.forced = read_overrides(Path(arguments.override)) if arguments.override else {}
    if not words or not (_is_script(words[0]) or words[0].endswith(".py")):
        if arguments.commits:
            raise CommandError("--commits runs a script at each commit: give the script, not a recording")
        if arguments.check or arguments.match:
            raise CommandError("--check and --match judge the output of a script: give the script, not a recording")
        return _of_recording(words[0] if words else "@", arguments)
    if arguments.commits:
        from ..commit_bisection import bisect_commits

        return bisect_commits(words, arguments)
    return _of_script(words, arguments)


def _is_script(word: str) -> bool:
    return word[:2] in ("-m", "-c") or os.path.isfile(word)


# ---- a recording ----------------------------------------------------------------------------------------------------
def _of_recording(text: str, arguments: argparse.Namespace) -> int:
    fresh = "torch" not in sys.modules
    with fewer_collections():
        from ...replay.bisect.recorded import bisect_graphs  # imports torch
        from ...replay.workers.client import Workers
        from ...replay.workers.pool import LIMIT, Pool
        from ...replay.workers.progress import Progress

    with closing(Workers(fork=fresh)) as workers, selected(text) as (recording, selector):
        ids = [selector.compile] if selector.compile else _captured(recording)
        if not ids:
            raise CommandError(f"{recording.name} has no compiled graph to bisect")
        progress = Progress("bisect")
        jobs = 1 if arguments.slow else arguments.jobs or 0
        with Pool(jobs, arguments.limit or LIMIT, told=progress.ran, processes=workers) as pool:
            try:
                reports = bisect_graphs(recording, ids, pool, partial(_completed, arguments), progress.say)
            finally:
                progress.end()
        command, graphs = list(recording.meta.get("command", [])), len(_captured(recording))
        fine = all(r.outcome is None or not r.outcome.failed for r in reports)
        program = _program(recording, arguments) if fine else None
    if selector.compile and reports[0].why:
        raise CommandError(reports[0].why)
    several = graphs > 1
    overrides = _overrides(reports, several) | (program.finding.overrides if program is not None else {})
    if arguments.json:
        print_json(selector=text, graphs=[_graph_document(r) for r in reports],
                   program=program.document() if program is not None else None, overrides=overrides)
    else:
        for report in reports:
            _print_graph(report)
        if program is not None:
            program.print(command)
        _print_overrides(overrides, command, arguments)
    _write(overrides, arguments)
    if program is None and all(r.why for r in reports):
        raise CommandError(f"nothing of {text} can be run")
    findings = [r.finding for r in reports if r.finding is not None] + ([program.finding] if program else [])
    if not all(finding.finished for finding in findings):
        return INTERRUPTED
    return 0 if any(finding.outcome.failed for finding in findings) else 1


def _captured(recording: Recording) -> list[str]:
    return [info.id for info in recording.compiles() if "capture" in recording.stages(info.id)]


def _completed(arguments: argparse.Namespace, case: Case) -> Case:
    """The case as the options want it."""
    return replace(
        case, imports=tuple(arguments.imports or ()), slow=arguments.slow, repeat=max(1, arguments.repeat),
        device=arguments.device or case.device, forced={**arguments.forced, **case.forced},
        trust=arguments.trust)


def _overrides(reports: Sequence[GraphReport], several: bool) -> dict[str, str]:
    """All that was found; with the graph's id in front where there are several graphs."""
    return {
        f"{report.compile_id}:{name}" if several else name: option
        for report in reports if report.finding is not None for name, option in report.finding.overrides.items()
    }


def _graph_document(report: GraphReport) -> dict[str, Any]:
    found = _document(report.finding) if report.finding is not None else {}
    rungs = [{"compiler": name, "kind": outcome.kind, "detail": outcome.detail} for name, outcome in report.rungs]
    inputs = "random" if report.made_up else "recorded"
    return {"compile": report.compile_id, "why": report.why, "inputs": inputs, **found, "rungs": rungs}


def _print_graph(report: GraphReport) -> None:
    if report.finding is None:
        say(f"ptdebug: {report.compile_id}: {report.why}")
        return
    inputs = "  (on random inputs: none were recorded)" if report.made_up else ""
    print_title(f"{report.compile_id}  {report.finding.outcome}{inputs}")
    lines = [f"  {name:<16} {outcome}" for name, outcome in report.rungs]
    print_lines([Line(printable(line)) for line in lines])
    if report.finding.outcome.failed and (report.finding.guilty or not report.rungs):
        _print_finding(report.finding, "not even compiling nothing makes it right")


# ---- a script -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _OfScript:
    """What came of a script: the finding, why nothing was found, and its last words where it failed."""

    finding: Finding
    why: str
    words: str

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {**_document(self.finding), "why": self.why}

    def print(self, command: Sequence[str]) -> None:
        """As text."""
        failed = self.finding.outcome.failed
        words = f" ({self.words})" if self.words and failed else ""
        print_title(f"{' '.join(command)}  {self.finding.outcome}{words}")
        if failed:
            _print_finding(self.finding, self.why)


def _of_script(words: Sequence[str], arguments: argparse.Namespace) -> int:
    with fewer_collections():
        from ...replay.failures.case import ScriptCase  # imports torch
    from .run import parse_program

    parse_program(words).check()
    case = ScriptCase(tuple(words), os.getcwd(), arguments.check, arguments.match, forced=arguments.forced)
    found = _bisect_script(case, arguments)
    finding = found.finding
    if arguments.json:
        print_json(command=list(words), **found.document(), overrides=finding.overrides)
    else:
        found.print(words)
        _print_overrides(finding.overrides, words, arguments)
    _write(finding.overrides, arguments)
    return INTERRUPTED if not finding.finished else 0 if finding.guilty else 1


def _bisect_script(case: ScriptCase, arguments: argparse.Namespace, limit: float = 0.0) -> _OfScript:
    with fewer_collections():
        from ...replay.bisect.script import ScriptBisection
        from ...replay.workers.pool import Pool
        from ...replay.workers.progress import Progress
        from ...replay.workers.scripts import LIMIT, Scripts

    progress = Progress("bisect")
    entry = f"{__name__.rpartition('.commands.')[0]}.main:main"
    with Pool(told=progress.ran) as pool:
        limit = arguments.limit or limit or LIMIT
        scripts = Scripts(entry, pool.processes, arguments.jobs or 1, limit, progress.ran)
        bisection = ScriptBisection(case, scripts, pool, partial(_completed, arguments), progress.say)
        try:
            finding = bisection.find()
        finally:
            progress.end()
        scripts.close(finding.finished)
    return _OfScript(finding, bisection.why, bisection.words)


def _program(recording: Recording, arguments: argparse.Namespace) -> _OfScript | None:
    """The recorded program, each of its calls checked, where every graph is right by itself: as its own user had it."""
    from ...replay.failures.case import ScriptCase

    meta = recording.meta
    command, folder = meta.get("command", []), meta.get("folder", "")
    ours = is_signed(command, folder, meta.get("signature", "")) or arguments.trust
    if arguments.no_program or meta.get("compiler") != "ptdebug" or not (command and ours and os.path.isdir(folder)):
        return None
    case = ScriptCase(tuple(command), folder, check_calls=True, forced=arguments.forced)
    return _bisect_script(case, arguments, PROGRAM_LIMIT)


# ---- what was found -------------------------------------------------------------------------------------------------
def _document(finding: Finding) -> dict[str, Any]:
    outcome = finding.outcome
    return {
        "outcome": {"kind": outcome.kind, "detail": outcome.detail, "node": outcome.node},
        "guilty": [guilty.document() for guilty in finding.guilty], "whole_graph": finding.whole_graph,
        "finished": finding.finished, "steady": finding.steady, "runs": finding.runs,
        "seconds": round(finding.seconds, 3), "cpu_seconds": round(finding.cpu, 3),
    }


def _print_finding(finding: Finding, why: str) -> None:
    lines = []
    for guilty in finding.guilty:
        lines.append(f"  {guilty.id} = {guilty.forced}" + (f", not {guilty.chosen}" if guilty.chosen else ""))
        lines += [f"      {text}" for text in (guilty.why, *_places(guilty)) if text]
    if not finding.guilty:
        lines.append(f"  {why or 'nothing found'}")
    if finding.whole_graph:
        lines.append("  no single decision inside of the graph makes it right")
    if not finding.finished:
        lines.append("  interrupted: the best so far; started again, it goes on")
    if not finding.steady:
        lines.append("  it does not fail every time, so these may be innocent: try --repeat 20")
    lines.append(f"  {finding.runs} runs, {finding.seconds:.1f} s ({finding.cpu:.1f} s of CPU)")
    print_lines([Line(printable(line)) for line in lines])


def _places(guilty: Guilty) -> list[str]:
    return [f"{line.file}:{line.line}{_source(line.file, line.line)}" for line in guilty.lines[:5]]


def _source(file: str, line: int) -> str:
    import linecache

    text = linecache.getline(file, line).strip()
    return f"  {text}" if text else ""


def _print_overrides(overrides: Mapping[str, str], command: Sequence[str], arguments: argparse.Namespace) -> None:
    if not overrides:
        return
    file = arguments.out or "overrides.toml"
    print_lines([
        Line(""), Line(f"To run with these decisions forced, put this into {printable(file)}:" if not arguments.out else
                       f"To run with these decisions forced ({printable(file)} has them):"),
        Line(""), *(Line(printable(f"    {text}")) for text in _toml(overrides)), Line(""),
        Line(printable(f"    ptdebug run --override {file} {' '.join(command)}")),
    ])


def _toml(overrides: Mapping[str, str]) -> list[str]:
    quoted: Callable[[str], str] = lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return [f"{quoted(name)} = {quoted(option)}" for name, option in overrides.items()]


def _write(overrides: Mapping[str, str], arguments: argparse.Namespace) -> None:
    if arguments.out and overrides:
        write_file(arguments.out, "\n".join(_toml(overrides)) + "\n")
