"""`ptdebug minify SCRIPT`: the result as a script with a header, verified in a fresh process."""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ...replay.repro.script import environment
from ...replay.workers.progress import Progress
from ..errors import CommandError
from ..minify_recording import INTERRUPTED
from ..printing import print_json, say
from .judge import outcome_of
from .minify import FIRST_LIMIT, Minified, Wanted, look, minify_script

PATIENCE = 120.0
"""Seconds that a fresh process has besides those of its run."""


def run_script(arguments: argparse.Namespace) -> int:
    """Minify a script, or only say what it shows."""
    wanted = Wanted(arguments.check, arguments.match, arguments.graph_break, arguments.recompile)
    words = tuple(arguments.program)
    if arguments.dry_run:
        return _dry_run(arguments, wanted, words)
    progress, path = Progress("minify"), Path(arguments.out)
    try:
        minified = minify_script(arguments.target, words, wanted, arguments.jobs, arguments.limit, progress.say,
                                 arguments.forced, arguments.imports, path.resolve())
    finally:
        progress.end()
    files = _write(minified, path, wanted)
    verified = _verify(path, wanted, arguments)
    same = verified == str(minified.failure.signature)
    before, after = minified.original.lines(), minified.small.lines()
    if arguments.json:
        print_json(selector=arguments.target, signature=str(minified.failure.signature), files=files, verified=same,
                   outcome=verified, lines=after, lines_before=before, runs=minified.ran,
                   seconds=round(minified.seconds, 3),
                   interrupted=minified.interrupted, neighbour=minified.neighbour is not None)
        return INTERRUPTED if minified.interrupted else 0
    print(f"{minified.failure.signature}: {before} lines to {after}, {minified.ran} runs, {minified.seconds:.1f} s"
          f"{' (interrupted)' if minified.interrupted else ''}")
    for file in files:
        print(file)
    print(f"run in a fresh process: {verified or 'nothing is wrong'}")
    if not same:
        say("ptdebug: the script does not show the same failure by itself")
    return INTERRUPTED if minified.interrupted else 0


def _dry_run(arguments: argparse.Namespace, wanted: Wanted, words: tuple[str, ...]) -> int:
    """Say what a script shows: exit code 1 if anything."""
    try:
        _, answer, failure = look(arguments.target, words, wanted, arguments.forced, arguments.imports,
                                  arguments.limit)
    except CommandError as error:
        if error.exit_code != 1:
            raise
        signature, detail = None, str(error)
    else:
        signature, detail = str(failure.signature), str(outcome_of(answer))
    if arguments.json:
        print_json(selector=arguments.target, signature=signature, outcome=detail)
    else:
        print(detail)
    return int(signature is not None)


def _write(minified: Minified, path: Path, wanted: Wanted) -> list[str]:
    """The script with its header, and the modules that are left; the paths that were written."""
    (_, text), *others = minified.small.files
    files = [path, *(path.parent / name for name, _ in others)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(_header(minified, wanted)) + "\n" + text, encoding="utf-8")
    for file, (_, content) in zip(files[1:], others):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    return [str(file) for file in files]


def _header(minified: Minified, wanted: Wanted) -> Iterator[str]:
    yield f"# {outcome_of(minified.answer) if minified.answer['kind'] != 'passed' else minified.failure.signature}"
    yield f"# Reduced from {minified.original.files[0][0]} ({minified.original.lines()} lines)."
    yield from (f"# {line}" for line in environment())
    yield f"# Run: ptdebug minify --dry-run{_flags(wanted)} THIS_FILE  (exit code 1: the failure shows)"
    if minified.neighbour is not None:
        yield "# It passes with this change:"
        yield from (f"#     {line}" for line in minified.small.differences(minified.neighbour))


def _flags(wanted: Wanted) -> str:
    flags = {"--check": wanted.check, "--match": wanted.match, "--break": wanted.graph_break,
             "--recompile": wanted.recompile}
    return "".join(f" {flag} {json.dumps(value)}" for flag, value in flags.items() if value)


def _verify(path: Path, wanted: Wanted, arguments: argparse.Namespace) -> str:
    """What the written script shows in a fresh process."""
    flags = [part for flag, value in (("--check", wanted.check), ("--match", wanted.match),
                                      ("--break", wanted.graph_break), ("--recompile", wanted.recompile)) if value
             for part in (flag, value)]  # fmt: skip
    flags += [part for name in arguments.imports for part in ("--import", name)]
    flags += ["--override", arguments.override] if arguments.override else []
    flags += ["--limit", str(arguments.limit)] if arguments.limit else []
    program = ["--", *arguments.program] if arguments.program else []
    command = [sys.executable, "-m", __package__.partition(".")[0], "minify", "--dry-run", "--json", *flags, str(path),
               *program]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([p for p in sys.path if p])}
    patience = (arguments.limit or FIRST_LIMIT) + PATIENCE
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience, env=environment)
    except subprocess.TimeoutExpired:
        return f"it took longer than {patience:g} s"
    try:
        return str(json.loads(done.stdout)["signature"] or "")
    except (ValueError, KeyError):
        return f"it could not be run: {done.stderr.strip()[-300:]}"
