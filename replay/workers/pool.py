"""Runs cases: several at once, each in a child of a warm process, with a limit of seconds; what is known is not run.

    with Pool() as pool:
        first, second = pool([case, replace(case, forced={"fuse:*": "separate"})])
"""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from signal import Signals
from types import TracebackType
from typing import IO, Any

from safetensors.torch import save_file

from ...dependencies import msgspec
from ..failures.case import Case, Inputs
from ..failures.decisions import Made, read_told
from ..failures.outcome import Outcome
from .memo import Memo, forget_old

LIMIT = 120.0
"""Seconds for one case."""

Predicate = Callable[[Sequence[Case]], Sequence[Outcome]]
"""Runs cases and says what came of each. Searches hand over all that they would like to know at once."""


class WorkersError(Exception):
    """No process can be had to run cases in; the message says why."""

    exit_code = 2


@dataclass(frozen=True)
class _Answer:
    outcome: Outcome
    made: tuple[Made, ...] = ()


class Pool:
    """A predicate over cases. `workers` at once; `limit` seconds each; `keep` outcomes on disk, for later searches."""

    def __init__(
        self, workers: int = 0, limit: float = LIMIT, keep: bool = True, told: Callable[[], None] | None = None
    ) -> None:
        self.workers = workers or max(2, len(os.sched_getaffinity(0)))
        self.limit = limit
        self.ran = 0
        self.cpu = 0.0
        self._keep = keep
        self._told = told or (lambda: None)
        self._memos: dict[tuple[str, ...], Memo] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="ptdebug-workers-"))
        self._server: subprocess.Popen[bytes] | None = None
        self._next = 0
        self._inputs: dict[str, Path] = {}
        forget_old()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        if self._server is not None:
            assert self._server.stdin is not None
            self._server.stdin.close()
            self._server.wait()
            self._server = None
        shutil.rmtree(self._folder, ignore_errors=True)

    # ---- asking
    def __call__(self, cases: Sequence[Case]) -> list[Outcome]:
        """What comes of each case, in order."""
        keys = [case.key() for case in cases]
        missing: dict[str, Case] = {}
        for key, case in zip(keys, cases):
            if self._memo(case).get(key) is None:
                missing.setdefault(key, case)
        self._run(missing, False)
        found = []
        for key, case in zip(keys, cases):
            outcome = self._memo(case).get(key)
            assert outcome is not None
            found.append(outcome)
        return found

    def decisions(self, case: Case) -> tuple[Outcome, tuple[Made, ...]]:
        """What comes of a case, and the decisions that its compilation makes."""
        answer = self._run({case.key(): case}, True)[case.key()]
        return answer.outcome, answer.made

    def _memo(self, case: Case) -> Memo:
        if case.imports not in self._memos:
            self._memos[case.imports] = Memo("\n".join(case.imports), self._keep and not case.imports)
        return self._memos[case.imports]

    # ---- running
    def _run(self, cases: dict[str, Case], ask: bool) -> dict[str, _Answer]:
        waiting = list(cases.items())
        running: dict[int, str] = {}
        found: dict[str, _Answer] = {}
        while waiting or running:
            while waiting and len(running) < self.workers:
                key, case = waiting.pop(0)
                running[self._send(case, ask)] = key
            line = self._receive()
            key = running.pop(line["id"])
            answer = self._answer(line, cases[key])
            self.ran += 1
            self.cpu += answer.outcome.cpu
            self._memo(cases[key]).put(key, answer.outcome)
            found[key] = answer
            self._told()
        return found

    def _send(self, case: Case, ask: bool) -> int:
        server = self._started()
        self._next += 1
        header = self._folder / f"{self._next}.json"
        header.write_bytes(case.header())
        request = {"id": self._next, "header": str(header), "tensors": str(self._tensors(case.inputs)), "ask": ask,
                   "limit": self.limit, "answer": str(self._answer_file(self._next))}
        assert server.stdin is not None
        try:
            server.stdin.write(json.dumps(request).encode() + b"\n")
            server.stdin.flush()
        except OSError as error:
            raise WorkersError(f"the process that runs cases has ended ({error})") from error
        return self._next

    def _tensors(self, inputs: Inputs) -> Path:
        """The file with the values of the inputs, which many cases share."""
        if inputs.key not in self._inputs:
            path = self._folder / f"{len(self._inputs)}.safetensors"
            save_file({k: v.contiguous() for k, v in inputs.flats.items()}, path)
            self._inputs[inputs.key] = path
        return self._inputs[inputs.key]

    def _answer_file(self, number: int) -> Path:
        return self._folder / f"{number}.answer"

    def _started(self) -> subprocess.Popen[bytes]:
        if self._server is None:
            command = [sys.executable, "-m", f"{__package__}.server"]
            self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._receive()
        return self._server

    def _receive(self) -> dict[str, Any]:
        assert self._server is not None
        out: IO[bytes] | None = self._server.stdout
        assert out is not None
        line = out.readline()
        if not line:
            raise WorkersError("the process that runs cases has ended")
        received: dict[str, Any] = json.loads(line)
        return received

    def _answer(self, line: dict[str, Any], case: Case) -> _Answer:
        file = self._answer_file(line["id"])
        spent = {"seconds": line["seconds"], "cpu": line["cpu"]}
        died = line["late"] or line["code"] < 0
        told = tuple(read_told(file.with_suffix(".decisions"), case.graph)) if died else ()
        if line["late"]:
            return _Answer(Outcome("hang", f"longer than {self.limit:g} s", **spent), told)
        if line["code"] < 0:
            return _Answer(Outcome("signal", Signals(-line["code"]).name, **spent), told)
        try:
            found = msgspec.json.decode(file.read_bytes(), type=_Found)
        except (OSError, msgspec.MsgspecError):
            words = line["words"].strip().rpartition("\n")[2]
            return _Answer(Outcome("invalid", f"the case could not be run: {words}", **spent))
        file.unlink()
        return _Answer(replace(found.outcome, **spent), found.made)


class _Found(msgspec.Struct):
    outcome: Outcome
    made: tuple[Made, ...] = ()
