"""Runs a script in a fresh process, with nothing but its own files, and reads what came of it."""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import Signals

from ..failures.outcome import KINDS, Outcome
from ..failures.signature import Signature
from .script import Repro

LIMIT = 300.0  # seconds
_LINE = re.compile(r"^outcome: (\w+)(?: \((.*?)\))?(?:: (.*))?$")


@dataclass(frozen=True)
class Verified:
    """A script's run: the outcome that it reported, and all that it printed."""

    outcome: Outcome
    output: str

    @property
    def last_error(self) -> str:
        """The last line of a traceback, or the outcome."""
        errors = [line for line in self.output.splitlines() if re.match(r"[\w.]*(Error|Exception)\b", line)]
        return errors[-1] if errors else str(self.outcome)

    def shows(self, signature: Signature) -> bool:
        """Whether it shows a failure."""
        return signature.matches(self.outcome)


def verify(
    files: Sequence[Path], arguments: Sequence[str] = (), limit: float = LIMIT, path: Sequence[str] = ()
) -> Verified:
    """Copy the files of a script (itself first) into an empty folder and run it there. `path`: where modules are that
    it imports."""
    with tempfile.TemporaryDirectory(prefix="ptdebug-repro-") as folder:
        for file in files:
            shutil.copy(file, folder)
        command = [sys.executable, files[0].name, *arguments]
        start = time.perf_counter()
        try:
            ran = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit,
                                 env=_environment(path))
        except subprocess.TimeoutExpired as expired:
            text = (expired.stdout or b"").decode(errors="replace") + (expired.stderr or b"").decode(errors="replace")
            return Verified(Outcome("hang", f"more than {limit:g} s", seconds=limit), text)
        output = ran.stdout.decode(errors="replace") + ran.stderr.decode(errors="replace")
        seconds = time.perf_counter() - start
        return Verified(_outcome(ran.returncode, ran.stdout.decode(errors="replace"), seconds), output)


def verified(repro: Repro, arguments: Sequence[str] = (), limit: float = LIMIT) -> Verified:
    """Run a script that is not written yet."""
    with tempfile.TemporaryDirectory(prefix="ptdebug-repro-") as folder:
        return verify(repro.write(Path(folder, "repro.py")), arguments, limit)


def _environment(path: Sequence[str] = ()) -> dict[str, str]:
    """That of this process, in which `import ptdebug` finds this ptdebug, and modules are found on `path`."""
    here = Path(__file__).resolve().parents[2]
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [environment.get("PYTHONPATH", ""), *path]))
    if here.name != "ptdebug":  # a checkout under another name: it is found as this process found it
        places = [place for place in sys.path if place and Path(place, "ptdebug", "__init__.py").exists()]
        environment["PYTHONPATH"] = os.pathsep.join([*places[:1], environment.get("PYTHONPATH", "")]).strip(os.pathsep)
    return environment


def _outcome(code: int, output: str, seconds: float) -> Outcome:
    last = next((line for line in reversed(output.splitlines()) if _LINE.match(line)), "")
    if code < 0:
        return Outcome("signal", _signal(-code), seconds=seconds)
    found = _LINE.match(last)
    if found is None or found[1] not in KINDS:
        return Outcome("invalid", f"the script ended with {code} and said nothing", seconds=seconds)
    return Outcome(found[1], found[3] or "", found[2] or "", seconds)


def _signal(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return str(number)
