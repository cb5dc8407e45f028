"""Programs and `ptdebug` commands in copies of one process that has loaded torch and the product, and run nothing.

A new interpreter takes about three seconds of processor time to load them, a copy a hundredth. What forks is the main
module of that process, and a copy returns from it: the program's exit code, its last exception, its threads and atexit
handlers are the interpreter's, as in a process of its own. Two things are tested in new ones: what a process does first
(which modules it loads, and when), and what the objects that it holds at its end do then (the collector leaves those of
before the fork alone, and what they refer to).
"""
from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, NoReturn

STREAMS = ("stdout", "stderr")


def in_copy(
    *words: str, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = 120.0
) -> CompletedProcess[str]:
    """`python WORDS`, or `ptdebug ...` for words that begin so, in a copy of this worker's warm process, which starts
    at the first use. Raises subprocess.TimeoutExpired."""
    with tempfile.TemporaryDirectory(prefix="warm-") as folder:
        files = {stream: str(Path(folder, stream)) for stream in STREAMS}
        code = _answer({"words": words, "cwd": str(cwd), "env": dict(os.environ if env is None else env),
                        "timeout": timeout, "files": files})
        out, errors = (Path(files[stream]).read_text(errors="replace") for stream in STREAMS)
    if code is None:
        raise subprocess.TimeoutExpired(words, timeout, out, errors)
    return CompletedProcess(words, code, out, errors)


def _answer(request: dict[str, Any]) -> int | None:
    process = _process()
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    assert answer, "the warm process has ended"
    code: int | None = json.loads(answer)
    return code


@functools.cache
def _process() -> subprocess.Popen[str]:
    """It ends with this one, whose end of the pipe it reads from. To ask whether there is a GPU must not start what
    copies cannot use."""
    return subprocess.Popen([sys.executable, __file__], env=os.environ | {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def load() -> None:
    """What copies need. No operator runs, which would start threads: copies would wait for them without end."""
    import gc

    import ptdebug.cli.main
    import ptdebug.cli.recorded_run
    import ptdebug.engine.compile
    import ptdebug.replay.ladder.training

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
    places = [os.devnull, *(request["files"][stream] for stream in STREAMS)]
    for number, place in enumerate(places):
        file = os.open(place, os.O_CREAT | os.O_WRONLY if number else os.O_RDONLY)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    words = list(request["words"])
    command = [str(Path(sys.executable).parent / words[0]) if words[0] == "ptdebug" else words[0], *words[1:]]
    sys.orig_argv[:] = [sys.executable, *command]
    sys.argv[:] = command
    sys.path[0] = os.path.dirname(command[0]) if words[0] != "-c" else ""
    others = request["env"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [other for other in others if other and other not in sys.path]


def start(words: Sequence[str]) -> NoReturn:
    """Run what the command line asks for; the interpreter sees to its end."""
    if words[0] == "ptdebug":
        from ptdebug.cli.main import main

        sys.exit(main())
    from ptdebug.cli.commands.run import parse_program
    from ptdebug.cli.launch import execute

    execute(parse_program(words), lambda code: None)


if __name__ == "__main__":
    load()
    wanted = serve()
    become(wanted)
    start(wanted["words"])
