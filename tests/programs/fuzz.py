"""Runs random programs in eager and compiled, and reports each distinct difference with a small program.

    python tests/programs/fuzz.py --count 20000 --seed 0 --jobs 2

Worker processes run some hundred programs each and are then replaced; one that crashes or hangs is a failure of the
program that it had started. Exit code 1 when any program differed.
"""
from __future__ import annotations

import argparse
import collections
import faulthandler
import json
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    __package__ = "tests.programs"

CHUNK = 250
"""How many programs a worker runs: it imports torch and more first, which takes as long as twenty programs."""
_MEMORY = 6 << 30  # address space of a worker, in bytes: a program that runs away ends
_STUCK = 150.0  # seconds after which a worker ends that no signal can stop


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="how many programs")
    parser.add_argument("--seed", type=int, default=0, help="the first program's seed")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--engine", type=int, default=500, help="every N-th program with the real engine; 0 for none")
    parser.add_argument("--no-shrink", action="store_true", help="print failing programs as they are")
    parser.add_argument("--show", type=int, metavar="SEED", help="print one program and stop")
    parser.add_argument("--only", type=int, metavar="SEED", help="run one program, shrink it and stop")
    parser.add_argument("--eager", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.show is not None:
        from .generate import program

        print(program(options.show))
        return 0
    if options.worker:
        return _work(options)
    if options.only is not None:
        return _only(options.only)
    return _run(options)


def _work(options: argparse.Namespace) -> int:
    """In a worker: one JSON line before and one after each program."""
    from .differ import difference, run_in_eager
    from .generate import program

    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    report = sys.stdout
    for seed in range(options.seed, options.seed + options.count):
        engine = bool(options.engine) and seed % options.engine == 0
        sys.stdout = report  # where memory or time runs out, it may have been left redirected
        print(json.dumps({"started": seed}), file=report, flush=True)
        faulthandler.dump_traceback_later(_STUCK, exit=True)
        if options.eager:
            run_in_eager(program(seed))
            continue
        found = difference(program(seed), engine)
        entry = {"seed": seed, "kind": found and found.kind, "detail": found and found.detail}
        print(json.dumps(entry), file=report, flush=True)
    return 0


def _chunk(options: argparse.Namespace, first: int, count: int) -> list[dict[str, object]]:
    """Run programs `first`, `first + 1`, ... in worker processes; what differed."""
    failures: list[dict[str, object]] = []
    end = first + count
    while first < end:
        command = [sys.executable, __file__, "--worker", "--seed", str(first), "--count", str(end - first),
                   "--engine", str(options.engine)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        started = finished = first - 1
        for line in done.stdout.splitlines():
            if not line.startswith("{"):
                continue
            entry = json.loads(line)
            started, finished = entry.get("started", started), entry.get("seed", finished)
            if entry.get("kind"):
                failures.append(entry)
        if done.returncode == 0 and finished == end - 1:
            return failures
        last = done.stderr.strip().splitlines()[-1:] or [""]
        if not _dies_in_eager(started):
            kind = f"worker died ({done.returncode}) {last[0][:100]}"
            failures.append({"seed": started, "kind": kind, "detail": done.stderr[-2000:]})
        first = started + 1
    return failures


def _dies_in_eager(seed: int) -> bool:
    """Whether the program ends the process, or hangs, without us too. One that doubles a list without end takes all the
    memory that a worker may have, and where an allocation of the interpreter then fails is nobody's promise; nor does
    Python 3.13.0 notice each recursion without end."""
    command = [sys.executable, __file__, "--worker", "--eager", "--seed", str(seed), "--count", "1"]
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=120).returncode != 0
    except subprocess.TimeoutExpired:
        return True


def _run(options: argparse.Namespace) -> int:
    start = time.perf_counter()
    firsts = range(options.seed, options.seed + options.count, CHUNK)
    end = options.seed + options.count
    kinds: dict[str, list[dict[str, object]]] = collections.defaultdict(list)
    done = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        chunks = {pool.submit(_chunk, options, first, min(CHUNK, end - first)): first for first in firsts}
        for chunk in as_completed(chunks):
            done += min(CHUNK, end - chunks[chunk])
            for failure in chunk.result():
                kinds[str(failure["kind"])].append(failure)
                if len(kinds[str(failure["kind"])]) == 1:
                    print(f"NEW seed {failure['seed']}: {failure['kind']}\n{failure['detail']}", flush=True)
            seconds = time.perf_counter() - start
            total = sum(map(len, kinds.values()))
            print(f"{done} programs, {total} failures, {len(kinds)} kinds, {seconds:.0f} s", flush=True)
    for kind, failures in sorted(kinds.items(), key=lambda pair: -len(pair[1])):
        print(f"{len(failures):5}  {kind}  seeds {[failure['seed'] for failure in failures[:6]]}")
    if not options.no_shrink:
        for failures in list(kinds.values())[:10]:
            _only(int(str(failures[0]["seed"])))
    version = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    failed = sum(map(len, kinds.values()))
    print(f"{version}: {options.count} programs, {failed} differences of {len(kinds)} kinds")
    return int(bool(kinds))


def _only(seed: int) -> int:
    """Shrink the program of a seed while it fails in the same way, and print it."""
    from .differ import difference
    from .generate import program
    from .prelude import MARK
    from .shrink import shrink

    text = program(seed)
    found = difference(text)
    if found is None:
        print(f"seed {seed}: no difference")
        return 0
    prefix = found.kind.split(":")[0]

    def fails(candidate: str) -> bool:
        try:
            smaller = difference(candidate, seconds=20)
        except BaseException:
            return False
        return smaller is not None and smaller.kind.split(":")[0] == prefix

    small = shrink(text, fails)
    found = difference(small) or found
    print(f"==== seed {seed}: {found.kind}\n{found.detail}\n{small.rpartition(MARK)[2]}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
