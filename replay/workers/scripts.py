"""Runs scripts under overrides, each in a process of its own, and says what came of them.

`launcher` is the command that runs a script: what `ptdebug run` is started by. Scripts may write the same files, so
they run one after the other unless the person says otherwise.
"""
from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ..failures.case import ScriptCase
from ..failures.outcome import PASSED, Outcome
from .memo import Memo

LIMIT = 600.0
"""Seconds for one run."""
LAST = 1 << 20
"""Bytes of a run's output that are looked at: the last."""


@dataclass
class Scripts:
    """A predicate over scripts. `told` hears of each run that has ended."""

    launcher: Sequence[str]
    jobs: int = 1
    limit: float = LIMIT
    told: Callable[[], None] = lambda: None
    keep: bool = True
    ran: int = 0
    words: str = ""  # the last line of the output of the last run that failed

    def __post_init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="ptdebug-scripts-"))
        self._memo = Memo("scripts", self.keep)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._interrupted = False
        self._started = resource.getrusage(resource.RUSAGE_CHILDREN)

    def close(self, finished: bool = True) -> None:
        """Remove what was written; of a search that was interrupted, outcomes are kept for the next one."""
        if finished:
            self._memo.forget()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def cpu(self) -> float:
        """CPU seconds of the runs so far."""
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        return now.ru_utime + now.ru_stime - self._started.ru_utime - self._started.ru_stime

    def __call__(self, cases: Sequence[ScriptCase]) -> list[Outcome]:
        """What comes of each, in order."""
        with ThreadPoolExecutor(max(1, self.jobs)) as threads:
            try:
                return list(threads.map(self._known, cases))
            except KeyboardInterrupt:
                self._interrupted = True
                for process in self._running:
                    _kill(process)
                raise

    def recorded(self, case: ScriptCase) -> tuple[Outcome, Path]:
        """What comes of one run, and its recording."""
        name = f"recording-{self.ran}"
        return self._run(case, ("-o", str(self._folder), "--name", name)), self._folder / name

    def _known(self, case: ScriptCase) -> Outcome:
        key = case.key() + _sources(case)
        found = self._memo.get(key)
        if found is None:
            found = self._run(case, ("--no-record",))
            if not self._interrupted:
                self._memo.put(key, found)
        return found

    def _run(self, case: ScriptCase, options: Sequence[str]) -> Outcome:
        number = self.ran
        self.ran += 1
        overrides = self._folder / f"overrides-{number}.json"
        overrides.write_text(json.dumps(dict(case.forced)))
        command = [*self.launcher, *options, "-q", "--compiler", case.compiler]
        if case.forced:
            command += ["--override", str(overrides)]
        start = time.perf_counter()
        output = self._folder / f"output-{number}"
        code = self._code([*command, *case.command], case.folder, output)
        found = self._judged(case, code, output, time.perf_counter() - start)
        output.unlink()
        self.told()
        return found

    def _code(self, command: Sequence[str], folder: str, output: Path) -> int | None:
        """The exit code of a command, None where it took too long: then all that it started is killed."""
        if self._interrupted:
            raise KeyboardInterrupt
        with output.open("wb") as file:
            process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=file,
                                       stderr=subprocess.STDOUT, start_new_session=True)
        self._running.add(process)
        try:
            return process.wait(self.limit)
        except subprocess.TimeoutExpired:
            _kill(process)
            return None
        finally:
            self._running.discard(process)

    def _judged(self, case: ScriptCase, code: int | None, output: Path, seconds: float) -> Outcome:
        text = output.read_bytes()[-LAST:].decode(errors="replace")
        if code != 0:
            self.words = next((line for line in reversed(text.splitlines()) if line.strip()), "")
        if code is None:
            return Outcome("hang", f"longer than {self.limit:g} s", seconds=seconds)
        if case.check:
            environment = os.environ | {"PTDEBUG_EXIT_CODE": str(code)}
            with output.open("rb") as file:
                checked = subprocess.run(case.check, shell=True, cwd=case.folder, stdin=file, env=environment,
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
            kind, detail = ("exit", f"the check exits with {checked}") if checked else (PASSED, "")
        elif case.match:
            kind, detail = ("output", case.match) if re.search(case.match, text, re.MULTILINE) else (PASSED, "")
        elif code < 0:
            kind, detail = "signal", signal.Signals(-code).name
        else:
            kind, detail = ("exit", f"exit code {code}") if code else (PASSED, "")
        return Outcome(kind, detail, seconds=seconds)


def _sources(case: ScriptCase) -> str:
    """A hash of the Python files beside the script, which a memory of outcomes has to know."""
    digest = hashlib.sha256()
    for word in case.command:
        for file in sorted(Path(case.folder, word).parent.glob("*.py")) if word.endswith(".py") else ():
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):  # it has ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
