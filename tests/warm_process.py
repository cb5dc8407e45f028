"""Programs and `ptdebug` commands in copies of one process that has loaded torch and the product, and run nothing.

A new interpreter takes about three seconds of processor time to load them, a copy a hundredth. It is the main module
of this process that forks, and the copy returns from it: the program's exit code, its last exception, threads and atexit
handlers are the interpreter's, as in a process of its own. What is about how a process starts (which modules are loaded,
and when) is tested in new ones: the fixture `ptdebug`.
"""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, NoReturn

STREAMS = ("stdin", "stdout", "stderr")


class WarmProcess:
    """Starts at the first use; `folder` is where it keeps what copies print."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None
        self.count = 0

    def run(self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], input: str = "",
            timeout: float = 120.0) -> CompletedProcess[str]:
        """`python WORDS`, or `ptdebug WORDS` for `words` that begin so. Raises subprocess.TimeoutExpired."""
        files = {stream: self.folder / f"{self.count}.{stream}" for stream in STREAMS}
        self.count += 1
        files["stdin"].write_text(input)
        request = {"words": list(words), "cwd": str(cwd), "env": dict(env), "timeout": timeout,
                   "files": {stream: str(file) for stream, file in files.items()}}
        code = self._ask(request)
        out, errors = (files[stream].read_text(errors="replace") for stream in STREAMS[1:])
        if code is None:
            raise subprocess.TimeoutExpired(list(words), timeout, out, errors)
        return CompletedProcess(list(words), code, out, errors)

    def _ask(self, request: dict[str, Any]) -> int | None:
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, "the warm process has ended"
        code: int | None = json.loads(answer)
        return code

    def close(self) -> None:
        """End it."""
        if self.process is not None:
            self.process.communicate()


def load() -> None:
    """What copies need. No operator runs, which would start threads: copies would wait for them without end."""
    import gc

    import ptdebug.cli.main
    import ptdebug.cli.recorded_run
    import ptdebug.engine.compile
    import ptdebug.replay.ladder.training  # noqa: F401

    assert callable(ptdebug.compile)  # loads the tracer
    gc.collect()
    gc.freeze()


def serve() -> dict[str, Any]:
    """Answer each request with the exit code of a copy, null where that took too long. Returns the request in a copy,
    and never else."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w", buffering=1)
    for line in iter(requests.readline, ""):
        request: dict[str, Any] = json.loads(line)
        copy = os.fork()
        if copy == 0:
            requests.close()
            answers.close()
            return request
        answers.write(json.dumps(_code(copy, time.monotonic() + request["timeout"])) + "\n")
    os._exit(0)


def _code(copy: int, until: float) -> int | None:
    pause = 0.001
    while True:
        found, status = os.waitpid(copy, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            os.killpg(copy, signal.SIGKILL)
            os.waitpid(copy, 0)
            return None
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def become(request: Mapping[str, Any]) -> None:
    """Take on the folder, environment, streams and command line of a request."""
    os.setpgid(0, 0)
    for number, stream in enumerate(STREAMS):
        file = os.open(request["files"][stream], os.O_CREAT | (os.O_RDONLY if number == 0 else os.O_WRONLY))
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    words = list(request["words"])
    command = [str(Path(sys.executable).parent / words[0]) if words[0] == "ptdebug" else words[0], *words[1:]]
    sys.orig_argv[:] = [sys.executable, *command]
    sys.argv[:] = command if words[0] == "ptdebug" else command[command[0] == "-c":]
    sys.path[0] = os.path.dirname(command[0]) if words[0] != "-c" else ""


def start(words: Sequence[str]) -> NoReturn:
    """Run what the command line asks for; the interpreter sees to its end."""
    if words[0] == "ptdebug":
        from ptdebug.cli.main import main

        sys.exit(main())
    from ptdebug.cli.launch import execute
    from ptdebug.cli.commands.run import parse_program

    execute(parse_program(words), lambda code: None)


if __name__ == "__main__":
    load()
    wanted = serve()
    become(wanted)
    start(wanted["words"])
