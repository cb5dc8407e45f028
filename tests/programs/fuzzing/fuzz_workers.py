"""Worker processes of the random programs: what each program came to, also where its worker ends in it.

A worker is forked from a process that has loaded torch. It writes a line of JSON before each of a program's runs
("eager", "compiled") and one with its outcome. Each run has its own allowance of processor time, which the kernel
enforces: a loop inside of C hears no signal handler.
"""
from __future__ import annotations

import gc
import json
import math
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NoReturn
from unittest import mock

_MEMORY = 4 << 30  # address space of a worker beyond what it has once torch is loaded, in bytes
PROCESSOR = 100  # seconds of processor time after which one run of a program ends with its worker
_PATIENCE = 5  # times as long may take what runs in a worker of its own
_WARM = range(20)
"""Seeds of programs that CI knows to agree, run before workers are forked: what torch and SymPy load in their first
calls takes as long as a dozen programs."""
_STUCK = 45.0  # seconds by the clock in which a worker that is alive uses some processor, or waits for itself
_OUT = "out of time or memory"


@dataclass(frozen=True)
class Outcome:
    """What a program came to. `kind` of the difference, with its `detail`; or why it was `skipped`; or it agrees."""

    seed: int
    kind: str = ""
    detail: str = ""
    skipped: str = ""


@dataclass(frozen=True)
class _Death:
    """A worker ended in a program. `run` is what it was running: "eager", "compiled" or "" (between the two)."""

    seed: int
    run: str
    how: str
    stderr: str


def load() -> None:
    """In the process that workers are forked from: load what a program needs, torch with one thread above all.

    Autograd's threads end in a fork: where there are any, each backward in a worker would be an error, in eager, too,
    and nothing of it compared. So no backward runs here.

    Raises RuntimeError where a worker cannot run one."""
    import torch

    from .differ import verdict
    from .generate import program

    with mock.patch.object(torch.autograd.Variable, "_execution_engine", _NoBackward()):
        for seed in _WARM:
            verdict(program(seed))
    torch.set_grad_enabled(True)  # which a program may have left off
    if in_a_fork(lambda: torch.ones((), requires_grad=True).exp().backward()) != 0:
        raise RuntimeError("no backward runs in a worker: autograd has started threads before the fork")
    gc.freeze()  # what is loaded by now is no garbage: each full collection would take as long as a program to see it


class _NoBackward:
    """In place of autograd's engine."""

    def run_backward(self, *_: object, **__: object) -> NoReturn:
        raise RuntimeError("no backward before the fork")


def in_a_fork(action: Callable[[], object]) -> int:
    """The exit code of a process forked from this one that does `action`: 1 where it raises."""
    worker = os.fork()
    if worker == 0:
        code = 1
        try:
            action()
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])


def work(first: int, count: int, engine: int, patience: int = 1) -> None:
    """In a worker: run the programs up to one that is not compared, and write what each came to. `engine`: each how
    manieth with the real engine; `patience`: how many times as long as usual each may take."""
    from .differ import Skipped, verdict
    from .generate import program

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, used + _MEMORY))
    report = sys.stdout
    for seed in range(first, first + count):
        sys.stdout = report  # where memory or time runs out, it may have been left redirected

        def entering(run: str, seed: int = seed) -> None:
            print(json.dumps({"seed": seed, "run": run}), file=report, flush=True)
            allow_processor(PROCESSOR * patience)

        entering("")
        found = verdict(program(seed), with_engine(seed, engine), 60.0 * patience, entering)
        if found is None:
            outcome = Outcome(seed)
        elif isinstance(found, Skipped):
            outcome = Outcome(seed, skipped=found.reason)
        else:
            outcome = Outcome(seed, found.kind, found.detail)
        print(json.dumps(asdict(outcome)), file=report, flush=True)
        if outcome.skipped:  # cut short in what eager compiles itself (`torch.cond`), torch is not as it was
            break


def with_engine(seed: int, every: int) -> bool:
    """Whether the program is compiled to machine code: each `every`-th is, none where it is 0."""
    return bool(every) and seed % every == 0


def allow_processor(seconds: int) -> None:
    """Have the kernel end this process after so much more processor time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def chunk(first: int, count: int, engine: int, stop: float = math.inf) -> list[Outcome]:
    """What `count` programs came to, run in worker processes, each failure once more in one of its own. None are run
    after `stop`, in seconds since the epoch."""
    outcomes: list[Outcome] = []
    end = first + count
    while first < end and time.time() < stop:
        found, death = _worker(first, end - first, engine)
        outcomes += [_confirmed(outcome, engine) if outcome.kind else outcome for outcome in found]
        first += len(found)
        if death is not None:
            outcomes.append(_alone(death, engine))
            first = death.seed + 1
    return outcomes


def _worker(first: int, count: int, engine: int, patience: int = 1) -> tuple[list[Outcome], _Death | None]:
    """Run programs in one worker until it is done, one is not compared, or the worker ends."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        sys.stdout.flush()
        sys.stderr.flush()
        worker = os.fork()
        if worker == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            _work_and_exit(first, count, engine, patience)
        code = _until_its_end(worker)
        out.seek(0)
        err.seek(0)
        lines, stderr = out.read().splitlines(), err.read()
    outcomes: list[Outcome] = []
    last, run = first, ""
    for line in lines:
        entry = json.loads(line) if line.startswith('{"seed"') else {}
        if "run" in entry:
            last, run = entry["seed"], entry["run"]
        elif entry:
            outcomes.append(Outcome(**entry))
    if code == 0 and outcomes and (len(outcomes) == count or outcomes[-1].skipped):
        return outcomes, None
    return outcomes, _Death(last, run, _how(code, stderr), stderr[-2000:])


def _work_and_exit(first: int, count: int, engine: int, patience: int) -> NoReturn:
    """What a worker does after the fork: the interpreter's own end would be the end of what its parent has loaded."""
    code = 1
    try:
        work(first, count, engine, patience)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _until_its_end(worker: int) -> int:
    """A worker's exit code, minus the signal that ended it. One whose threads wait for each other is killed."""
    used = -1.0
    ended = os.pidfd_open(worker)
    try:
        while not select.select([ended], [], [], _STUCK)[0]:
            before, used = used, _used(worker)
            if used == before:
                os.kill(worker, signal.SIGKILL)
    finally:
        os.close(ended)
    return os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])


def _used(pid: int) -> float:
    """Processor time of a process and its ended children, in ticks of the kernel; -1 where it is gone (proc(5))."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1.0
    return float(sum(map(int, fields[11:15])))


def _how(code: int, stderr: str) -> str:
    """How a worker ended, in words."""
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return _OUT
    if any(word in stderr for word in ("MemoryError", "bad_alloc", "not enough memory", "TooSlow")):
        return _OUT
    last = stderr.strip().splitlines()[-1:] or [""]
    return f"{signal.Signals(-code).name if code < 0 else f'exit code {code}'} {last[0][:100]}".strip()


def _alone(death: _Death, engine: int) -> Outcome:
    """What a program comes to whose worker ended, in a worker of its own. Where eager ends it too, nothing can be
    compared: one that doubles a list without end takes all the memory that a worker may have, and where an allocation
    of the interpreter then fails is nobody's promise; nor does Python 3.13.0 notice each recursion without end."""
    found, again = _worker(death.seed, 1, engine, _PATIENCE)
    if again is None:
        if found[0].kind or found[0].skipped:
            return found[0]
        if death.how == _OUT:
            return Outcome(death.seed)
        return Outcome(death.seed, f"after other programs only: worker ends: {death.how}", death.stderr)
    if again.run != "compiled":
        return Outcome(death.seed, skipped=f"eager ends the process: {again.how}")
    return Outcome(death.seed, f"compiled ends the process: {again.how}", again.stderr)


def _confirmed(outcome: Outcome, engine: int) -> Outcome:
    """A difference, run once more in a worker of its own, which has more time. One that only comes after other programs
    is one too, unless it is that memory or time ran out."""
    found, death = _worker(outcome.seed, 1, engine, _PATIENCE)
    if death is not None:
        return _alone(death, engine)
    if found[0].kind or found[0].skipped:
        return found[0]
    if "MemoryError" in outcome.detail or outcome.kind == "too slow":
        return found[0]
    return replace(outcome, kind=f"after other programs only: {outcome.kind}")
