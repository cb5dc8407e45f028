"""How long extern kernels take on this machine: benchmarked once, kept on disk.

An entry is a small JSON file whose name is a hash of everything that the time depends on: the call and its shapes, the
number of threads, the CPU and the version of torch. Entries are written under a temporary name and renamed, so several
processes may measure the same call at once; a damaged entry is measured again.

When another process takes the CPU from one thread of a parallel call, the other threads spin until it is back: CPU time
includes that wait, and the slower kernel may look the faster. Runs in which this happened are discarded.
"""
from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch

from ...artifacts.records import Option
from .cpp_build import cache_folder, cpu_features

ROUNDS = 6  # of all calls, interleaved
MORE_ROUNDS = 16  # of calls all of whose runs were disturbed
ENOUGH = 0.01  # seconds for one call, after which it is not repeated; the first run, a warm-up, is not counted
PATIENCE = 0.03  # the same, if every run was disturbed
SLOW = 2.0  # times as long as the fastest call: not repeated after
DECIDED = 0.001  # seconds for one call
DISTURBED = 0.05  # share of a run's time spent waiting for a CPU, from which on the run is discarded
ENTRIES = 4096  # kept on disk

TOO_BUSY = "as in eager: not measured, since other processes keep this machine's CPUs busy"

Call = Callable[[], object]


def costs(subject: str, prepare: Callable[[], Mapping[str, Call]]) -> dict[str, float]:
    """Seconds of each call that `prepare()` returns, the fastest of a few runs; `subject` identifies them on disk.

    Empty if the machine is too busy to measure. Read from disk if this machine has measured `subject` before. The calls
    run without gradients on the caller's thread.
    """
    def measure() -> dict[str, float]:
        with torch.no_grad():
            return _measured(prepare())

    return kept(subject, measure)


def kept(subject: str, measure: Callable[[], dict[str, float]]) -> dict[str, float]:
    """What `measure()` returns, or has returned on this machine: of `subject`, unless it was empty."""
    path = _path(subject)
    known = _read(path)
    if known is None:
        known = measure()
        if known:
            with contextlib.suppress(OSError):  # a full disk, say: then the next compilation measures again
                _write(path, known)
    return known


def is_kept(subject: str) -> bool:
    """Whether this machine has measured `subject`."""
    return _read(_path(subject)) is not None


def timed_options(known: Mapping[str, float], names: Iterable[str]) -> list[Option]:
    """The options of a decision by time: what was measured, in microseconds; `names` where nothing was."""
    timed = [Option(name, round(s * 1e6, 1), unit="us", better="lower") for name, s in known.items()]
    return timed or [Option(name) for name in names]


def verdict(known: Mapping[str, float], chosen: str, where: str, otherwise: str) -> str:
    """The reason of a choice: it is the fastest, or so close to the fastest that `otherwise` decides."""
    fastest = min(known, key=known.__getitem__)
    if known[chosen] <= known[fastest]:
        return f"{chosen} is the fastest {where} on this machine"
    behind = 100 * (known[chosen] / known[fastest] - 1)
    return f"{fastest} is the fastest {where} on this machine, but {chosen} takes only {behind:.1f} % more: {otherwise}"


def _measured(calls: Mapping[str, Call]) -> dict[str, float]:
    least = dict.fromkeys(calls, float("inf"))
    spent = dict.fromkeys(calls, 0.0)
    waited = _waited()
    for number in range(MORE_ROUNDS):
        for name, call in calls.items():
            known = least[name] < float("inf")
            if known and spent[name] >= DECIDED and least[name] > SLOW * min(least.values()):
                continue
            if spent[name] >= (ENOUGH if known else PATIENCE) or (known and number >= ROUNDS):
                continue
            start = time.thread_time()  # not wall time: other processes may run in between
            call()
            seconds = time.thread_time() - start
            before, waited = waited, _waited()
            spent[name] += seconds if number else 0.0
            if number and waited - before < DISTURBED * seconds:
                least[name] = min(least[name], seconds)
    return {} if float("inf") in least.values() else least


def _waited() -> float:
    """Seconds for which threads of this process were ready to run and had no CPU (Documentation/scheduler/
    sched-stats.rst of Linux); 0 if the system does not report it."""
    total = 0
    try:
        threads = os.listdir("/proc/self/task")
    except OSError:
        return 0.0
    for thread in threads:
        try:
            with open(f"/proc/self/task/{thread}/schedstat", "rb", buffering=0) as file:
                total += int(file.read().split()[1])
        except (OSError, IndexError, ValueError):  # the thread has ended in the meantime
            continue
    return total / 1e9


def _path(subject: str) -> Path:
    machine = f"{subject}\0{torch.get_num_threads()}\0{cpu_features()}\0{torch.__version__}"
    return cache_folder() / "benchmarks" / f"{hashlib.sha256(machine.encode()).hexdigest()[:32]}.json"


def _read(path: Path) -> dict[str, float] | None:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or not all(isinstance(v, float) for v in found.values()):
        return None
    return found


def _write(path: Path, found: Mapping[str, float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = list(path.parent.glob("*.json"))
    if len(entries) >= ENTRIES:
        for old in entries[: ENTRIES // 4]:
            old.unlink(missing_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix="entry-")
    with os.fdopen(handle, "w") as file:
        json.dump(dict(found), file)
    os.replace(name, path)
