"""The other end of `server.py`: starts it when there is something to run, and hands it requests."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

SETTINGS = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
"""Of the server's environment: to ask whether there is a GPU must not start what children cannot use."""

Request = Callable[[Path], dict[str, Any]]
"""Makes a request, from the file that its answer will be in. It has a "limit" of seconds."""


class WorkersError(Exception):
    """No process can be had to run anything in; the message says why."""

    exit_code = 2


class Workers:
    """A server and a folder for what goes to and fro."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ptdebug-workers-"))
        self._server: subprocess.Popen[bytes] | None = None
        self._next = 0

    def close(self) -> None:
        """End all processes."""
        if self._server is not None:
            assert self._server.stdin is not None
            self._server.stdin.close()
            self._server.wait()
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
        assert server.stdin is not None
        try:
            server.stdin.write(json.dumps(request).encode() + b"\n")
            server.stdin.flush()
        except OSError as error:
            raise WorkersError(f"the process that runs cases has ended ({error})") from error

    def _started(self) -> subprocess.Popen[bytes]:
        if self._server is None:
            command = [sys.executable, "-c", f"from {__package__}.server import main; main()"]
            self._server = subprocess.Popen(
                command, env=os.environ | SETTINGS, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._receive()
        return self._server

    def _receive(self) -> dict[str, Any]:
        assert self._server is not None and self._server.stdout is not None
        line = self._server.stdout.readline()
        if not line:
            raise WorkersError("the process that runs cases has ended")
        received: dict[str, Any] = json.loads(line)
        return received
