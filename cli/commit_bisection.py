"""`ptdebug bisect --commits GOOD..BAD SCRIPT`: the first commit that made the program worse, and what it changed."""
from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..artifacts.budget import LIMITS
from ..artifacts.diff.recordings import diff_recordings
from ..artifacts.diff.summary import recording_sentences
from ..artifacts.home import new_recording_folder, recordings_home
from ..artifacts.listing import Line, plural, printable
from ..artifacts.recording import Recording
from .commit_runs import SKIP, Commit, CommitRun, commits_between, git, worktree
from .errors import INTERRUPTED, CommandError
from .printing import print_json, print_lines, print_title, say

LIMIT = 600.0
"""Seconds for one run."""
WORSE = ("graph_breaks", "recompiles", "skipped_frames", "failures", "eager")
"""Counts of a recording that make a commit bad where they grow, if nothing else was said about what bad is."""


@dataclass(frozen=True)
class Found:
    """The last good and the first bad run, why that is bad, the commits between them that could not be judged, and
    whether the search ended: after Ctrl-C there are others between."""

    good: CommitRun
    bad: CommitRun
    why: str
    skipped: tuple[Commit, ...] = ()
    finished: bool = True


Judge = Callable[[CommitRun], "str | None"]
"""Why a run is bad, "" where it is good, None where that cannot be told."""


def bisect_commits(words: Sequence[str], arguments: argparse.Namespace) -> int:
    """Run commits of the repository here, print the first bad one and what it changed. 1 if the last is not bad."""
    here = Path.cwd()
    good, _, bad = arguments.commits.partition("..")
    commits = commits_between(here, good, bad or "HEAD")
    if len(commits) < 2:
        raise CommandError(f"there is no commit after {good}")
    if not bad and git(here, "status", "--porcelain", "--untracked-files=no").strip():
        say("ptdebug: changes that are not committed are not looked at")
    with worktree(here, arguments.limit or LIMIT) as tree:
        runs: dict[str, CommitRun] = {}

        def ran(number: int) -> CommitRun:
            commit = commits[number]
            if commit.hash not in runs:
                runs[commit.hash] = tree.run(commit, words)
                say(f"ptdebug: {commit}: {_outcome(runs[commit.hash])}")
            return runs[commit.hash]

        judge = _judge(arguments, ran(0))
        why = judge(ran(0))
        if why != "":
            raise CommandError(f"{good} is not good: {why or ran(0).words}")
        why = judge(ran(len(commits) - 1))
        if not why:
            _print_nothing(arguments, ran(0), ran(len(commits) - 1))
            return 1
        found = _search(len(commits), ran, judge)
        kept = [_kept(run, word) for run, word in ((found.good, "before"), (found.bad, "after"))]
        _print(found, kept, len(runs), words, arguments)
    return 0 if found.finished else INTERRUPTED


def _search(count: int, ran: Callable[[int], CommitRun], judge: Judge) -> Found:
    """Halve what lies between a good and a bad commit until nothing is left that can be judged."""
    low, high = 0, count - 1
    unknown: set[int] = set()
    finished = True
    try:
        while between := [n for n in range(low + 1, high) if n not in unknown]:
            middle = min(between, key=lambda n: abs(2 * n - low - high))
            why = judge(ran(middle))
            if why is None:
                unknown.add(middle)
            elif why:
                high = middle
            else:
                low = middle
    except KeyboardInterrupt:
        finished = False
    skipped = tuple(ran(n).commit for n in sorted(unknown) if low < n < high)
    return Found(ran(low), ran(high), judge(ran(high)) or "", skipped, finished)


# ---- what is bad ----------------------------------------------------------------------------------------------------
def _judge(arguments: argparse.Namespace, first: CommitRun) -> Judge:
    if arguments.check:
        return lambda run: _checked(arguments.check, run)
    if arguments.match:
        return lambda run: f"its output has {arguments.match}" if re.search(
            arguments.match, run.output, re.MULTILINE) else ""
    return lambda run: _worse(first, run)


def _checked(check: str, run: CommitRun) -> str | None:
    """By a shell command: the output is on its stdin, and the newest recording (`@`) is that of the run."""
    environment = os.environ | {"PTDEBUG_EXIT_CODE": str(run.code), "PTDEBUG_HOME": str(run.recording.parent)}
    done = subprocess.run(check, shell=True, input=run.output, text=True, env=environment, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL)
    if done.returncode == SKIP:
        return None
    return f"the check exits with {done.returncode}" if done.returncode else ""


def _worse(first: CommitRun, run: CommitRun) -> str:
    """By its exit code, else by more of what nobody wants than in the first run."""
    if run.code != 0:
        return f"exit code {run.code}: {run.words}" if run.code is not None else run.words
    if first.summary is None or run.summary is None:
        return "" if run.summary is first.summary else "nothing was recorded"
    more = [(name, _count(first.summary, name), _count(run.summary, name)) for name in WORSE]
    return ", ".join(f"{_named(name)}: {before} -> {after}" for name, before, after in more if after > before)


def _count(document: dict[str, Any], name: str) -> int:
    status = {"failures": "failed", "eager": "eager"}.get(name)
    if status is not None:
        return sum(entry["status"] == status for entry in document["compiles"])
    return int(document["counts"][name])


def _named(name: str) -> str:
    return LIMITS.get(name, "compilations that run in eager")


# ---- what is said ---------------------------------------------------------------------------------------------------
def _outcome(run: CommitRun) -> str:
    if run.code:
        return f"exit code {run.code}"
    if run.summary is None:
        return run.words if run.code is None else "nothing was recorded"
    counts = run.summary["counts"]
    return f"{plural(counts['graph_breaks'], 'graph break')}, {plural(counts['recompiles'], 'recompilation')}"


def _kept(run: CommitRun, word: str) -> Path | None:
    """The recording of a run, moved to where recordings are."""
    if run.summary is None:
        return None
    folder = new_recording_folder(recordings_home(), word, f"{word}-{run.commit.hash[:10]}")
    shutil.copytree(run.recording, folder, dirs_exist_ok=True)
    return folder


def _sentences(kept: Sequence[Path | None]) -> list[str]:
    if kept[0] is None or kept[1] is None:
        return []
    with Recording.open(kept[0]) as first, Recording.open(kept[1]) as second:
        return recording_sentences(diff_recordings(first, second))


def _print(
    found: Found, kept: Sequence[Path | None], runs: int, words: Sequence[str], arguments: argparse.Namespace
) -> None:
    sentences = _sentences(kept)
    if arguments.json:
        print_json(
            command=list(words), first_bad=vars(found.bad.commit), last_good=vars(found.good.commit), why=found.why,
            skipped=[vars(commit) for commit in found.skipped], finished=found.finished, runs=runs, summary=sentences,
            recordings=[str(path) if path is not None else None for path in kept],
        )
        return
    print_title(f"{found.bad.commit}")
    lines = [f"  {found.why}", *(f"  {text}" for text in sentences)]
    if found.skipped:
        lines.append(f"  or one of {plural(len(found.skipped), 'commit')} before it that could not be judged: "
                     + ", ".join(commit.hash[:10] for commit in found.skipped))
    if not found.finished:
        lines.append(f"  or a commit before it, after {found.good.commit.hash[:10]}: the search was interrupted")
    lines.append(f"  {plural(runs, 'run')}")
    if all(path is not None for path in kept):
        lines += ["", f"    git show {found.bad.commit.hash[:10]}",
                  f"    ptdebug diff {' '.join(path.name for path in kept if path is not None)}"]
    print_lines([Line(printable(line)) for line in lines])


def _print_nothing(arguments: argparse.Namespace, first: CommitRun, last: CommitRun) -> None:
    if arguments.json:
        print_json(first_bad=None, last_good=vars(last.commit), why="", runs=2)
        return
    text = f"{last.commit.hash[:10]} is no worse than {first.commit.hash[:10]}: {_outcome(last)}"
    print_lines([Line(printable(text))])
