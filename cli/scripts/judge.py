"""Runs versions of a script, and says which of them fail as the original did."""
from __future__ import annotations

import difflib
import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...replay.failures.outcome import Outcome
from ...replay.failures.signature import Signature, normalized
from ...replay.reduce.source import Project
from ...replay.reduce.units import Call
from ...replay.reduce.values import Probe, Recorder, instrumented
from ...replay.workers.memo import Memo
from .child import Task
from .forks import Answer, forked


@dataclass(frozen=True)
class Failure:
    """What is looked for: a signature; of values also in what they differ, and by how much at least."""

    signature: Signature
    what: str = ""
    least: float = 0.0

    @classmethod
    def of(cls, answer: Answer) -> Failure:
        """The failure that a run showed."""
        outcome = outcome_of(answer)
        size = answer.get("size", 0.0)
        return cls(Signature.of(outcome), answer.get("what", ""), min(size, 1.0) / 20)

    def shown_by(self, answer: Answer) -> bool:
        """Whether a run shows it."""
        if self.signature.kind in ("break", "recompile"):
            if answer["kind"] != "passed":
                return False
            return any(self.is_about(*found[:2]) for found in answer[f"{self.signature.kind}s"])
        same = self.signature.matches(outcome_of(answer)) and answer.get("what", "") == self.what
        return same and answer.get("size", self.least) >= self.least

    def is_about(self, code: str, subject: str) -> bool:
        """Whether a graph break or a recompilation is the one that is looked for: by its code, or by both."""
        return self.signature.about in (normalized(code), f"{normalized(code)} {normalized(subject)}".strip())


def outcome_of(answer: Answer) -> Outcome:
    """A run's answer as an outcome."""
    return Outcome(answer["kind"], str(answer.get("detail", "")), answer.get("what", ""))


class Judge:
    """Tells of projects whether they show `failure`: several at once, each in a fork; what is known is not run."""

    def __init__(
        self, task: Task, root: Path, failure: Failure, workers: int, limit: float, out: Path | None = None
    ) -> None:
        self.task = task
        self.root = root
        self.failure = failure
        self.workers = workers
        self.limit = limit
        self.ran = 0
        self.passed: list[Project] = []
        self.least_events = 0
        about = repr((replace(task, script="", folder=""), _beside(root, out)))
        self._memo = Memo(about, keep=not task.imports)
        self._answers: dict[str, Answer] = {}

    def __call__(self, projects: Sequence[Project]) -> list[bool]:
        """Whether each of them fails in that way."""
        keys = [_key(project) for project in projects]
        new = {key: project for key, project in zip(keys, projects) if not self._known(key)}
        for key, answer in zip(new, self.run(list(new.values()))):
            self._answers[key] = answer
            self._memo.put(key, Outcome("hang" if answer.get("late") else answer["kind"], json.dumps(answer)))
        found = []
        for key, project in zip(keys, projects):
            answer = self._answers[key]
            shown = self.failure.shown_by(answer)
            if shown:  # a neighbour gets as far as the smallest failing one
                self.least_events = answer.get("events", 0) + (answer["kind"] in ("values", "nan"))
            elif answer["kind"] == "passed" and not answer.get("code") and answer["events"] >= self.least_events:
                self.passed.append(project)
            found.append(shown)
        return found

    def _known(self, key: str) -> bool:
        if key not in self._answers:
            outcome = self._memo.get(key)  # whose detail is the whole answer
            if outcome is None:
                return False
            self._answers[key] = json.loads(outcome.detail)
        return True

    def run(self, projects: Sequence[Project]) -> list[Answer]:
        """Run projects, each in a folder of its own."""
        self.ran += len(projects)
        with tempfile.TemporaryDirectory(prefix="ptdebug-minify-") as scratch:
            tasks = []
            for number, project in enumerate(projects):
                folder = Path(scratch, str(number))
                script = write(project, self.root, folder)
                tasks.append(replace(self.task, script=str(script), folder=str(folder)))
            return forked(tasks, self.workers, self.limit)

    def probe(self, project: Project) -> Probe:
        """What a run in eager reaches, and the values that its expressions have, up to where it fails."""
        answer = self._answers[_key(project)]
        made, spans = instrumented(project)
        stop = answer.get("events", -1)
        probing = replace(self.task, trace=True, compiled=False, eager=True, stop=stop, check="", match="")
        with tempfile.TemporaryDirectory(prefix="ptdebug-minify-") as scratch:
            tasks, folders = [], []
            for number, text in enumerate((project, made)):
                folder = Path(scratch, str(number)).resolve()
                script = str(write(text, self.root, folder))
                at = stop_at(self.failure, answer, folder) if number == 0 else ("", 0)
                tasks.append(replace(probing, script=script, folder=str(folder), stop_at=at))
                folders.append(folder)
            lines, seen = forked(tasks, self.workers, self.limit)
        reached = {str(Path(file).relative_to(folders[0])): frozenset(found)
                   for file, found in lines.get("reached", {}).items()}
        recorder = Recorder()
        recorder.plain, recorder.tensors = dict(seen.get("plain", ())), dict(seen.get("tensors", ()))
        calls = tuple(
            Call(str(Path(c["file"]).relative_to(folders[0])), c["function"], tuple(map(tuple, c["arguments"])),
                 c["result"], c["method"]) for c in lines.get("calls", ()))
        return replace(recorder.probe(spans, reached), calls=calls)

    def neighbour(self, project: Project) -> Project | None:
        """Of the projects that ran and passed, the one most like `project`; not one that says the same as it."""
        def text(of: Project) -> str:
            return "".join(content for _, content in of.files)

        def likeness(other: Project) -> float:
            return difflib.SequenceMatcher(None, text(other), text(project), autojunk=False).ratio()

        others = [other for other in self.passed[-400:] if other.meaning != project.meaning]
        return max(others, key=likeness, default=None)


def _beside(root: Path, out: Path | None) -> list[tuple[str, int, int]]:
    """What is beside the script, which it may read: names, sizes and times. Not `out`, which is the result."""
    files = ((entry.name, entry.stat()) for entry in os.scandir(root) if entry.is_file() and Path(entry.path) != out)
    return sorted((name, status.st_size, status.st_mtime_ns) for name, status in files)


def _key(project: Project) -> str:
    return hashlib.sha256(repr(project.files).encode()).hexdigest()


def stop_at(failure: Failure, answer: Answer, folder: Path) -> tuple[str, int]:
    """The line of the first graph break that is looked for."""
    for code, subject, place in answer.get("breaks", ()):
        if failure.signature.kind == "break" and failure.is_about(code, subject):
            file, _, line = place.rpartition(":")
            return str(folder / Path(file).name), int(line)
    return "", 0


def write(project: Project, root: Path, folder: Path) -> Path:
    """Put a project into `folder`, with links to all else that is beside its files; returns the script's path."""
    names = [Path(file) for file, text in project.files]
    for place in {parent for name in names for parent in name.parents}:
        own = {name.parts[len(place.parts)] for name in names if name.is_relative_to(place)}
        (folder / place).mkdir(parents=True, exist_ok=True)
        for entry in os.scandir(root / place):
            if entry.name not in own and entry.name != "__pycache__" and not entry.name.startswith("."):
                os.symlink(entry.path, folder / place / entry.name)
    for file, text in project.files:
        (folder / file).write_text(text, encoding="utf-8")
    return folder / names[0]
