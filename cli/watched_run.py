"""`ptdebug run --tui`: the program in a process of its own, and beside it the workbench, which follows it."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from ..artifacts.home import recordings
from ..artifacts.recording import Recording, RecordingError
from .errors import CommandError

POLL_SECONDS = 0.05


def watch(words: Sequence[str], home: Path, open_workbench: Callable[[str], int]) -> int:
    """Run `ptdebug run WORDS` and the workbench on its recording; returns the program's exit code.

    The terminal belongs to the workbench meanwhile: what the program prints goes to a file, and is printed when the
    workbench is closed, or when the program has ended, if that is later. Its standard input is empty.
    """
    known = set(recordings(home))
    with tempfile.TemporaryFile() as output:
        program = subprocess.Popen([*_command(), "run", "--live", *words], stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT)
        try:
            folder = _recording_of(program, home, known)
            if folder is not None:
                open_workbench(str(folder))
                if program.poll() is None:
                    print("ptdebug: the program is still running (Ctrl-C ends it)", file=sys.stderr)
            code = program.wait()
        except KeyboardInterrupt:  # the terminal has sent it to the program, too
            code = program.wait()
        except BaseException:
            program.kill()
            raise
        _print(output)
    return code if code >= 0 else 128 - code


def check_terminal() -> None:
    """Raise CommandError where there is no terminal for the workbench."""
    if not all(stream is not None and stream.isatty() for stream in (sys.__stdin__, sys.__stderr__)):
        raise CommandError("--tui needs a terminal; without it: ptdebug run SCRIPT, and ptdebug tui --follow elsewhere")


def _command() -> list[str]:
    script = sys.argv[0]
    if os.path.basename(script) == "ptdebug" and os.path.isfile(script):
        return [sys.executable, script]
    return [sys.executable, "-m", "ptdebug"]


def _recording_of(program: subprocess.Popen[bytes], home: Path, known: set[Path]) -> Path | None:
    """The recording of a program as soon as it is there, `known` being others; None if it ended without one."""
    while True:
        ended = program.poll() is not None
        for folder in recordings(home):
            if folder in known:
                continue
            try:
                with Recording.open(folder) as recording:
                    if recording.meta.get("pid") == program.pid:
                        return folder
                known.add(folder)
            except RecordingError:  # just being made
                continue
        if ended:
            return None
        time.sleep(POLL_SECONDS)


def _print(output: IO[bytes]) -> None:
    output.seek(0)
    sys.stdout.flush()
    shutil.copyfileobj(output, sys.stdout.buffer)
    sys.stdout.flush()
