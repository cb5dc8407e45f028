"""Runs of a program as it was at a commit, each recorded: in a worktree of git's, beside the person's files."""
from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..artifacts.recording import Recording, RecordingError
from ..artifacts.summary import summary
from .errors import CommandError

SKIP = 125
"""The exit code of a check that cannot tell, as for `git bisect run`."""


@dataclass(frozen=True)
class Commit:
    """A commit: its hash, and what git says of it."""

    hash: str
    date: str
    author: str
    subject: str

    def __str__(self) -> str:
        return f"{self.hash[:10]}  {self.date}  {self.author}  {self.subject}"


@dataclass(frozen=True)
class CommitRun:
    """What came of a commit's run: the exit code (None: it took too long), what it said last, its output, its
    recording, and the recording's summary; None where nothing was recorded."""

    commit: Commit
    code: int | None
    words: str
    output: str
    recording: Path
    summary: dict[str, Any] | None


def commits_between(folder: Path, good: str, bad: str) -> list[Commit]:
    """`good`, and the commits after it up to `bad`, oldest first; of a merge, the branch that it was merged into.

    Raises CommandError where `folder` is in no repository, and where one is unknown or not before the other.
    """
    git(folder, "rev-parse", "--git-dir", wrong=f"{folder} is in no git repository")
    for name in (good, bad):
        git(folder, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", wrong=f"there is no commit {name} here")
    git(folder, "merge-base", "--is-ancestor", good, bad, wrong=f"{good} is not before {bad}: --commits GOOD..BAD")
    form = ("--format=%H%x09%ad%x09%an%x09%s", "--date=short")
    first = git(folder, "log", "-1", *form, good)
    rest = git(folder, "log", "--reverse", "--first-parent", *form, f"{good}..{bad}")
    return [Commit(*line.split("\t", 3)) for line in (first + rest).splitlines()]


def git(folder: Path, *words: str, wrong: str = "") -> str:
    """The output of a git command in `folder`. Raises CommandError with `wrong`, or what git says."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, errors="replace")
    except FileNotFoundError:
        raise CommandError("git is not installed") from None
    if done.returncode:
        raise CommandError(wrong or f"git {words[0]}: {done.stderr.strip().removeprefix('fatal: ')}")
    return done.stdout


@dataclass(frozen=True)
class Worktree:
    """A second working tree of the repository at `root`, in which commits are run from the person's own folder."""

    root: Path
    folder: Path
    recordings: Path
    limit: float  # seconds for a run

    def run(self, commit: Commit, words: Sequence[str]) -> CommitRun:
        """Check out `commit` and run the program. Raises CommandError where it does not come from there."""
        git(self.folder, "checkout", "--quiet", "--force", "--detach", commit.hash)
        place = self.recordings / commit.hash[:10]
        own = [self._inside(word) if number == 0 else word for number, word in enumerate(words)]
        command = [sys.executable, "-m", __name__.partition(".")[0], "run", "-q", "-o", str(self.recordings), "--name",
                   place.name, *own]
        working = Path(self._inside(os.getcwd()))
        if not working.is_dir():
            return CommitRun(commit, 1, f"there is no folder {working.relative_to(self.folder)}", "", place, None)
        try:
            done = subprocess.run(command, cwd=working, env=self._environment(), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                  timeout=self.limit)
        except subprocess.TimeoutExpired:
            return CommitRun(commit, None, f"longer than {self.limit:g} s", "", place, None)
        said = [line for line in done.stdout.splitlines() if line.strip()]
        document = self._summary(place)
        return CommitRun(commit, done.returncode, said[-1] if said else "", done.stdout, place, document)

    def _summary(self, place: Path) -> dict[str, Any] | None:
        try:
            with Recording.open(place) as recording:
                elsewhere = [path for path in recording.sources() if self._inside(path) != path
                             and Path(self._inside(path)).exists()]
                if elsewhere:
                    raise CommandError(f"{elsewhere[0]} was loaded from the working folder, not from the commit: is it "
                                       "installed there? Uninstall it, or name it in PYTHONPATH")
                return summary(recording)
        except RecordingError:
            return None

    def _inside(self, path: str) -> str:
        """The same place in the worktree, of one in the person's."""
        if not os.path.isabs(path) or not Path(path).is_relative_to(self.root):
            return path
        return str(self.folder / Path(path).relative_to(self.root))

    def _environment(self) -> dict[str, str]:
        paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        moved = os.pathsep.join(self._inside(os.path.abspath(path)) for path in paths)
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return kept | {"PYTHONDONTWRITEBYTECODE": "1"} | ({"PYTHONPATH": moved} if moved else {})


@contextmanager
def worktree(folder: Path, limit: float) -> Iterator[Worktree]:
    """A worktree of the repository that `folder` is in, removed at the end, with what was recorded there."""
    root = Path(git(folder, "rev-parse", "--show-toplevel").strip())
    with tempfile.TemporaryDirectory(prefix="ptdebug-commits-") as scratch:
        place = Path(scratch, root.name)
        git(root, "worktree", "add", "--quiet", "--detach", str(place))
        try:
            yield Worktree(root, place, Path(scratch, "recordings"), limit)
        finally:
            with suppress(CommandError):
                git(root, "worktree", "remove", "--force", str(place))
