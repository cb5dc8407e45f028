"""Replays in a child process, which a compiled kernel may crash or never leave: a finding, like a wrong value."""
from __future__ import annotations

import os
import pickle
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..program.program import TIMEOUT_SECONDS
from ..recorded.graphs import ReplayError
from ..verdicts.compare import Comparison
from .options import MAKING
from .report import Difference, Report, Rung

Told = Callable[[str, Sequence[Rung], Difference | None], None]
"""Is told each stage before it runs, with the rungs so far and the first difference; "" where what follows is none."""
Climb = Callable[[Told], Report]
COMPILED = ("kernels", "wrapper")
"""Stages that run compiled code, which takes no time that a person would notice."""


@dataclass
class _Heard:
    """What a child has said of the replay that it is at."""

    stage: str = ""
    rungs: list[Rung] = field(default_factory=list)
    first: Difference | None = None


def contained(
    climbs: Sequence[Callable[[], tuple[str, str, Climb]]], limit: float, fork: bool = True
) -> Iterator[Report | ReplayError]:
    """The reports of replays, in order, or the error of one that cannot be replayed. Each entry of `climbs` gives
    (selector, device, replay). Compiled code that takes longer than `limit` seconds has never ended. Without `fork` (a
    GPU's context has no copy, nor have torch's threads) they run in this process."""
    if not fork:
        yield from map(_here, climbs)
        return
    done = 0
    while done < len(climbs):
        for end in _one_child(climbs[done:], limit):
            done += 1
            yield end


def _here(make: Callable[[], tuple[str, str, Climb]]) -> Report | ReplayError:
    try:
        return make()[2](lambda *_: None)
    except ReplayError as error:
        return error


def _one_child(climbs: Sequence[Callable[[], tuple[str, str, Climb]]], limit: float) -> Iterator[Report | ReplayError]:
    """As many replays as one child lives through, and that in which it died."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _in_child(climbs, writer)
    os.close(writer)
    heard, name, device, finished = _Heard(), "", "cpu", 0
    try:
        while finished < len(climbs):
            own = 2 * TIMEOUT_SECONDS if heard.stage == "program" else 0  # which ends by itself
            message = _message(reader, limit + own)
            if message is None:
                yield _died(heard, name, device, *_how(child))
                return
            kind, value = message
            if kind == "begins":
                heard, (name, device) = _Heard(), value
            elif kind == "stage":
                heard = _Heard(*value)
            else:
                finished, heard = finished + 1, _Heard()
                yield value
        _how(child)
    finally:
        os.close(reader)


def _in_child(climbs: Sequence[Callable[[], tuple[str, str, Climb]]], writer: int) -> None:
    def say(kind: str, value: Any) -> None:
        data = pickle.dumps((kind, value))
        _write(writer, struct.pack("q", len(data)) + data)

    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for make in climbs:
            try:
                selector, device, climb = make()
                say("begins", (selector, device))
                say("end", climb(lambda stage, rungs, first: say("stage", (stage, list(rungs), first))))
            except ReplayError as error:
                say("end", ReplayError(str(error)))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data):]


def _message(reader: int, limit: float) -> tuple[str, Any] | None:
    """The next message; None where the child ended, or says nothing for so long."""
    head = _read(reader, 8, limit)
    body = _read(reader, struct.unpack("q", head)[0], limit) if head is not None else None
    found: tuple[str, Any] | None = None if body is None else pickle.loads(body)  # which this very program has written
    return found


def _read(reader: int, count: int, limit: float) -> bytes | None:
    data, until = b"", time.monotonic() + limit
    while len(data) < count:
        if not select.select([reader], [], [], max(0.0, until - time.monotonic()))[0]:
            return None
        more = os.read(reader, count - len(data))
        if not more:
            return None
        data += more
    return data


def _how(child: int) -> tuple[str, str]:
    """How a child ended that says nothing any more, in words; it is killed if it has not. And what that is: "crash",
    "killed" (from outside: where memory is short, say) or "other"."""
    for _ in range(20):
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            if not os.WIFSIGNALED(status):
                return f"the process ended with exit code {os.WEXITSTATUS(status)}", "other"
            number = os.WTERMSIG(status)
            return (f"the process was killed by {signal.Signals(number).name}",
                    "killed" if number == signal.SIGKILL else "crash")
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "it did not end within the limit (--limit)", "other"


def _died(heard: _Heard, name: str, device: str, how: str, kind: str) -> Report | ReplayError:
    """Of the stage at which a child ended: different, where it crashed or compiled code had no end, or making it had
    none in the recording either. What else is slow, or short of memory, is no difference. A crash just after compiled
    code ran is a crash of that."""
    stage, rungs = heard.stage, heard.rungs
    unended, stage = stage.startswith(MAKING), stage.removeprefix(MAKING)
    if not stage and kind == "crash" and rungs and rungs[-1].stage in COMPILED:
        stage, rungs = rungs[-1].stage, rungs[:-1]
    if not stage:
        return ReplayError(f"{how} {'between stages' if rungs else 'before any stage ran'}")
    if kind == "killed" or (kind == "other" and stage not in COMPILED and not unended):
        return Report(name, (*rungs, Rung(stage, device, "absent", why=f"{how}, and no later stage ran")), heard.first)
    found = Comparison("different", why=how)
    first = heard.first or Difference(stage, "results", None, found)
    return Report(name, (*rungs, Rung(stage, device, "different", found)), first)
