"""The process that children are forked from: it has imported torch and the engine, and never runs anything itself.

It reads requests from stdin, a JSON object a line, forks a child for each, and answers with a line on stdout when that
has ended. A request is a case ({"id", "answer", "limit", "header", "tensors", "ask", "load"}; `load` are modules that
are imported before the fork) or a script ({"id", "answer", "limit", "argv", "entry", "folder"}). The child of a case
writes what it found into the file `answer`; one that dies, or takes longer than its limit, leaves none. When stdin
ends, all children are killed.
"""
from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import json
import os
import selectors
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open

from ...dependencies import msgspec
from ..failures.case import Case
from ..failures.decisions import Decisions
from ..failures.observe import observe
from .in_child import run_script
from .warm import warm_up

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
LAST_WORDS = 2000  # bytes of what a child that died had written to stderr


@dataclass
class Child:
    """A case that is running."""

    id: int
    started: float
    limit: float
    answer: Path


def main(warm: bool = True) -> None:
    """Serve until stdin ends. `warm`: compile something first, so that children need not load what that takes."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a case prints is not an answer
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the search: it closes stdin
    if warm:
        warm_up()
    gc.collect()
    gc.freeze()  # a collection in a child would copy what it shares
    children: dict[int, Child] = {}
    out.write('{"ready": true}\n')
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(reader, selectors.EVENT_READ)
        rest = b""
        while True:
            ready = [key.fd for key, _ in selector.select(_patience(children))]
            if reader in ready:
                os.read(reader, 4096)
            if 0 in ready:
                data = os.read(0, 1 << 20)
                if not data:
                    break
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    _start(json.loads(line), children)
            _end_late(children)
            for answer in _ended(children):
                out.write(json.dumps(answer) + "\n")
    for pid in children:
        _kill(pid)
    os._exit(0)  # there is nothing to tidy up


def _patience(children: dict[int, Child]) -> float | None:
    """Seconds until the first child is late."""
    if not children:
        return None
    return max(0.0, min(c.started + c.limit for c in children.values()) - time.monotonic()) + 0.01


def _start(request: dict[str, Any], children: dict[int, Child]) -> None:
    for module in request.get("load", ()):
        if module not in sys.modules:
            with suppress(Exception):  # the child will say it
                importlib.import_module(module)
    answer = Path(request["answer"])
    server = os.getpid()
    pid = os.fork()
    if pid == 0:
        _end_with(server)
        _run(request, answer)
    children[pid] = Child(request["id"], time.monotonic(), request["limit"], answer)


def _end_with(server: int) -> None:
    """In the child: end with the server, also one that was killed, and could not end what hangs."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)


def _run(request: dict[str, Any], answer: Path) -> None:
    """In the child: never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        words = os.open(answer.with_suffix(".err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(words, 1)
        os.dup2(words, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        code = run_script(request) if "argv" in request else _run_case(request, answer)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _run_case(request: dict[str, Any], answer: Path) -> int:
    faulthandler.enable()
    with safe_open(request["tensors"], "pt") as file:
        flats = {key: file.get_tensor(key) for key in file.keys()}
    case = Case.of_header(Path(request["header"]).read_bytes(), flats)
    decisions = _telling(case, answer.with_suffix(".decisions")) if request["ask"] else None
    found: dict[str, Any] = {"outcome": asdict(observe(case, decisions))}
    if decisions is not None:
        found["made"] = decisions.made()
    unfinished = answer.with_suffix(".part")
    unfinished.write_bytes(msgspec.json.encode(found))
    unfinished.rename(answer)
    return 0


def _telling(case: Case, path: Path) -> Decisions:
    """A recorder of decisions that writes each at once."""
    file = path.open("wb", buffering=0)
    return Decisions(case.graph, lambda decision: file.write(msgspec.json.encode(decision) + b"\n"))


def _end_late(children: dict[int, Child]) -> None:
    for pid, child in children.items():
        if time.monotonic() > child.started + child.limit:
            _kill(pid)


def _kill(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except OSError:  # it has not made its group yet, or is gone
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def _ended(children: dict[int, Child]) -> list[dict[str, Any]]:
    """The answers for children that have ended."""
    answers = []
    for pid in list(children):
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if not done:
            continue
        child = children.pop(pid)
        with suppress(OSError):
            os.killpg(pid, signal.SIGKILL)  # what it has started
        took = time.monotonic() - child.started
        answers.append({
            "id": child.id, "code": os.waitstatus_to_exitcode(status), "late": took > child.limit, "seconds": took,
            "cpu": usage.ru_utime + usage.ru_stime, "words": _last_words(child.answer.with_suffix(".err")),
        })
    return answers


def _last_words(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError:
        return ""
    return data[-LAST_WORDS:].decode(errors="replace")
