"""Runs scripts under overrides, each in a process of its own, and says what came of them.

Scripts may write the same files, so they run one after the other unless the person says otherwise. Where a script does
the same in a child of the warm process as in a fresh one, it is run there.
"""
from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ..failures.case import ScriptCase
from ..failures.outcome import PASSED, Outcome
from ..failures.signature import Signature
from .client import Workers
from .memo import Memo

LIMIT = 600.0
"""Seconds for one run."""
LAST = 1 << 20
"""Bytes of a run's output that are looked at: the last."""


@dataclass
class Scripts:
    """A predicate over scripts. `entry` (MODULE:FUNCTION) is ptdebug's command line; `told` hears of each run."""

    entry: str
    processes: Workers
    jobs: int = 1
    limit: float = LIMIT
    told: Callable[[], None] = lambda: None
    ran: int = 0
    cpu: float = 0.0
    warm: bool = False
    words: str = ""  # the last line of the output of the last run with an exit code
    _memo: Memo = field(default_factory=lambda: Memo("scripts"))

    def close(self, finished: bool = True) -> None:
        """Forget outcomes; of a search that was interrupted, they are kept for the next one."""
        if finished:
            self._memo.forget()

    def __call__(self, cases: Sequence[ScriptCase]) -> list[Outcome]:
        """What comes of each, in order."""
        keys = [case.key() + _sources(case) for case in cases]
        missing = {key: case for key, case in zip(keys, cases) if self._memo.get(key) is None}
        known = list(missing)
        requests = [partial(self._request, case, ("--no-record",), self.warm) for case in missing.values()]
        for position, file, line in self.processes.run(requests, max(1, self.jobs)):
            self._memo.put(known[position], self._judged(missing[known[position]], file, line))
        found = [self._memo.get(key) for key in keys]
        return [outcome for outcome in found if outcome is not None]

    def recorded(self, case: ScriptCase, warm: bool = False) -> tuple[Outcome, Path]:
        """What comes of a run, and its recording."""
        name = f"recording-{self.ran}"
        options = ("-o", str(self.processes.folder), "--name", name)
        ((_, file, line),) = self.processes.run([partial(self._request, case, options, warm)], 1)
        return self._judged(case, file, line), self.processes.folder / name

    def try_warm(self, case: ScriptCase, expected: Outcome) -> None:
        """Run `case` in a child of the warm process; from now on all are, if the same comes of it."""
        ((_, file, line),) = self.processes.run([partial(self._request, case, ("--no-record",), True)], 1)
        self.warm = Signature.of(expected).matches(self._judged(case, file, line))

    # ---- one run
    def _request(self, case: ScriptCase, options: Sequence[str], warm: bool, answer: Path) -> dict[str, Any]:
        argv = ["run", *options, "-q", "--compiler", case.compiler]
        if case.check_calls:
            argv.append("--check-calls")
        if case.forced:
            overrides = answer.with_suffix(".json")
            overrides.write_text(json.dumps(dict(case.forced)))
            argv += ["--override", str(overrides)]
        return {"argv": [*argv, *case.command], "entry": self.entry if warm else "",
                "folder": os.path.abspath(case.folder), "limit": self.limit}

    def _judged(self, case: ScriptCase, file: Path, line: dict[str, Any]) -> Outcome:
        self.ran += 1
        self.cpu += line["cpu"]
        output, code = file.with_suffix(".err"), line["code"]
        text = output.read_bytes()[-LAST:].decode(errors="replace")
        if code:
            self.words = next((last for last in reversed(text.splitlines()) if last.strip()), "")
        kind, detail = PASSED, ""
        if line["late"]:
            kind, detail = "hang", f"longer than {self.limit:g} s"
        elif case.check:
            checked = _checked(case, output, code)
            kind, detail = ("exit", f"the check exits with {checked}") if checked else (PASSED, "")
        elif case.match:
            found = re.search(case.match, text, re.MULTILINE)
            kind, detail = ("output", case.match) if found else (PASSED, f"exit code {code}" if code else "")
        elif code < 0:
            kind, detail = "signal", signal.Signals(-code).name
        elif code:
            kind, detail = "exit", f"exit code {code}"
        output.unlink()
        self.told()
        return Outcome(kind, detail, seconds=line["seconds"], cpu=line["cpu"])


def _checked(case: ScriptCase, output: Path, code: int) -> int:
    """The exit code of the check, which has the output of the script on stdin."""
    environment = os.environ | {"PTDEBUG_EXIT_CODE": str(code)}
    with output.open("rb") as file:
        return subprocess.run(case.check, shell=True, cwd=case.folder, stdin=file, env=environment,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


def _sources(case: ScriptCase) -> str:
    """A hash of the Python files beside the script, which a memory of outcomes has to know."""
    digest = hashlib.sha256()
    for word in case.command:
        for file in sorted(Path(case.folder, word).parent.glob("*.py")) if word.endswith(".py") else ():
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
