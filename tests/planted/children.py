"""Calls in forked processes: torch and the product are loaded once, and what a call does stays in its process.

A fault may crash or hang the process that it is planted in; a call's end is its exit code, or the signal, and what it
printed.
"""
from __future__ import annotations

import atexit
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HANG = "hang"


@dataclass(frozen=True)
class Ended:
    """How a call ended: its exit code, or the name of a signal, or "hang"."""

    code: int | str
    out: str
    errors: str
    seconds: float


def forked(call: Callable[[], int | None], folder: Path, limit: float = 120.0) -> Ended:
    """Run `call` in a child, in `folder`; after `limit` seconds the child and its children are killed."""
    folder.mkdir(parents=True, exist_ok=True)
    out, errors = folder / "out.txt", folder / "errors.txt"
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        _in_child(call, folder, out, errors)
    code = _waited(child, start + limit)
    return Ended(code, out.read_text(errors="replace"), errors.read_text(errors="replace"), time.perf_counter() - start)


def _in_child(call: Callable[[], int | None], folder: Path, out: Path, errors: Path) -> None:
    os.setsid()
    for number, path in ((1, out), (2, errors)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, number)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
    os.chdir(folder)
    code: int | None = 1
    try:
        code = call()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit((code or 0) & 0xFF)


def _waited(child: int, until: float) -> int | str:
    pause = 0.005
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            break
        if time.perf_counter() > until:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return HANG
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return os.WEXITSTATUS(status)
