"""The other end of `server.py`: starts it when there is something to run, and hands it requests.

A process of its own imports torch anew. A command whose own process has done nothing else yet is forked instead, which
spares that.
"""
from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ...artifacts.garbage import loading

SETTINGS = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
"""Of the server's environment: to ask whether there is a GPU must not start what children cannot use, nor may stock's
compiler start processes of its own."""

WARM_WITHIN = 60.0
"""Seconds in which a server compiles its first graph; what hangs or crashes may do so in that one, too."""

Request = Callable[[Path], dict[str, Any]]
"""Makes a request, from the file that its answer will be in. It has a "limit" of seconds."""


class WorkersError(Exception):
    """No process can be had to run anything in; the message says why."""

    exit_code = 2


@dataclass
class _Server:
    """The process, and the ends of its pipes."""

    stdin: BinaryIO
    stdout: BinaryIO
    wait: Callable[[], object]
    kill: Callable[[], object]
    ready: bool = False

    def is_ready(self) -> bool:
        """Wait for its first line; False if it ends, or takes too long."""
        return bool(select.select([self.stdout], [], [], WARM_WITHIN)[0] and self.stdout.readline())


class Workers:
    """A server and a folder for what goes to and fro. `fork`: the server is this process, forked now; nothing may have
    started threads in it, which are not in a fork."""

    def __init__(self, fork: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ptdebug-workers-"))
        self._server = _forked() if fork else None
        self._next = 0

    def close(self) -> None:
        """End all processes."""
        if self._server is not None:
            self._server.stdin.close()
            self._server.wait()
            self._server.stdout.close()
            self._server = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, requests: Sequence[Request], width: int) -> Iterator[tuple[int, Path, dict[str, Any]]]:
        """Run requests, `width` at once. As each ends: its position, its answer's file, and what the server says of its
        end ("code", "late", "seconds", "cpu", "words")."""
        waiting = list(enumerate(requests))
        running: dict[int, tuple[int, Path]] = {}
        while waiting or running:
            while waiting and len(running) < width:
                position, request = waiting.pop(0)
                self._next += 1
                answer = self.folder / f"{self._next}.answer"
                running[self._next] = position, answer
                self._send({**request(answer), "id": self._next, "answer": str(answer)})
            line = self._receive()
            if line.get("id") in running:  # not what is left of a search that was interrupted
                yield (*running.pop(line["id"]), line)

    def _send(self, request: dict[str, Any]) -> None:
        server = self._started()
        try:
            server.stdin.write(json.dumps(request).encode() + b"\n")
            server.stdin.flush()
        except OSError as error:
            raise WorkersError(f"the process that runs cases has ended ({error})") from error

    def _started(self) -> _Server:
        if self._server is None:
            self._server = _spawned()
        if not self._server.ready:
            if not self._server.is_ready():
                self._server.kill()
                self._server.wait()
                self._server = _spawned(warm=False)
                self._receive()
            self._server.ready = True
        return self._server

    def _receive(self) -> dict[str, Any]:
        assert self._server is not None
        line = self._server.stdout.readline()
        if not line:
            raise WorkersError("the process that runs cases has ended")
        received: dict[str, Any] = json.loads(line)
        return received


def _spawned(warm: bool = True) -> _Server:
    """A server in a new interpreter."""
    command = [sys.executable, "-c", loading(f"{__package__}.server", "main", warm)]
    process = subprocess.Popen(command, env=os.environ | SETTINGS, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    return _Server(process.stdin, process.stdout, process.wait, process.kill)  # type: ignore[arg-type]


def _forked() -> _Server | None:
    """A server in a fork of this process; None where torch may have asked for a GPU, which cannot be used in a fork."""
    import torch

    from .server import main  # here, so that the fork has it

    if torch.version.cuda is not None or torch.version.hip is not None:
        return None
    requests, answers = os.pipe(), os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        try:
            os.environ.update(SETTINGS)
            os.dup2(requests[0], 0)
            os.dup2(answers[1], 1)
            for end in (*requests, *answers):
                os.close(end)
            main()
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)
    os.close(requests[0])
    os.close(answers[1])
    return _Server(os.fdopen(requests[1], "wb"), os.fdopen(answers[0], "rb"), lambda: os.waitpid(pid, 0),
                   lambda: os.kill(pid, signal.SIGKILL))
