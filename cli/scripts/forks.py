"""Forks this process for each run of a script: several at once, each with a limit of seconds; a crash stays there.

A task gets an empty folder, which is removed when it has ended, in whatever way.
"""
from __future__ import annotations

import json
import os
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Answer = dict[str, Any]
Task = Callable[[Path], Answer]

IN_EAGER = "in-eager"
"""A file in the folder of a task that is there while eager runs: what is late then is no hang of what is compiled."""


@dataclass
class _Child:
    index: int
    pid: int
    deadline: float
    folder: Path
    received: bytes = b""


def forked(tasks: Sequence[Task], workers: int, limit: float) -> list[Answer]:
    """What each task returns, run in a fork. {"kind": "signal" | "hang" | "lost", "detail": ...} where it does not;
    "invalid" where it is late in eager."""
    answers: list[Answer] = [{}] * len(tasks)
    waiting = list(enumerate(tasks))
    running: dict[int, _Child] = {}
    with selectors.DefaultSelector() as selector, tempfile.TemporaryDirectory(
            prefix="ptdebug-run-", ignore_cleanup_errors=True) as scratch:
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    index, task = waiting.pop(0)
                    folder = Path(scratch, str(index))
                    folder.mkdir()
                    end, pid = _fork(task, folder)
                    running[end] = _Child(index, pid, time.monotonic() + limit, folder)
                    selector.register(end, selectors.EVENT_READ)
                for end in _ended(selector, running):
                    child = running.pop(end)
                    selector.unregister(end)
                    os.close(end)
                    answers[child.index] = _answer(child, limit)
                    shutil.rmtree(child.folder, ignore_errors=True)
        finally:
            for child in running.values():
                _kill(child.pid)
                os.waitpid(child.pid, 0)
    return answers


def _fork(task: Task, folder: Path) -> tuple[int, int]:
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(writer)
        return reader, pid
    code = 1
    try:
        os.setpgid(0, 0)
        os.close(reader)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the search
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        answer = json.dumps(task(folder)).encode() + b"\n"
        while answer:
            answer = answer[os.write(writer, answer) :]
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _ended(selector: selectors.BaseSelector, running: dict[int, _Child]) -> list[int]:
    """The pipes of children that have answered, died or run out of time."""
    patience = max(0.0, min(child.deadline for child in running.values()) - time.monotonic())
    ended = []
    for key, _ in selector.select(patience):
        child = running[key.fd]
        data = os.read(key.fd, 1 << 16)
        child.received += data
        if not data or child.received.endswith(b"\n"):
            ended.append(key.fd)
    ended += [end for end, child in running.items() if end not in ended and time.monotonic() > child.deadline]
    return ended


def _answer(child: _Child, limit: float) -> Answer:
    late = time.monotonic() > child.deadline and not child.received.endswith(b"\n")
    if child.received.endswith(b"\n") or late:
        _kill(child.pid)
    status = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
    with suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)  # what it started
    if late:
        kind, who = ("invalid", "eager takes ") if (child.folder / IN_EAGER).exists() else ("hang", "")
        return {"kind": kind, "detail": f"{who}longer than {limit:g} s", "late": True}
    if child.received.endswith(b"\n"):
        answer: Answer = json.loads(child.received)
        return answer
    if status < 0:
        return {"kind": "signal", "detail": signal.Signals(-status).name}
    return {"kind": "lost", "detail": f"the process ended with {status}"}


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:  # it has not made its group yet, or all is gone
        try:
            os.kill(group, signal.SIGKILL)
        except OSError:
            pass
