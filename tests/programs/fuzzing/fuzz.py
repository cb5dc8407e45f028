"""Runs random programs in eager and compiled, and reports each distinct difference with a small program.

    python tests/programs/fuzzing/fuzz.py --count 20000 --seed 0 --jobs 2

Worker processes run some hundred programs each and are then replaced; each is forked from one that has loaded torch. A
program that differs, or in which its worker ends, is run once more in a worker of its own, which decides
(`fuzz_workers.py`). The last line is the verdict: how many programs agree, differ, and could not be compared, and why.
Exit code 0: none differs; 1: some do; 2: stopped early.
"""
from __future__ import annotations

import argparse
import collections
import os
import platform
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    __package__ = "tests.programs.fuzzing"

from .fuzz_workers import PROCESSOR, Outcome, allow_processor, chunk, load, with_engine

CHUNK = 250
"""How many programs a worker runs, at most."""


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="how many programs")
    parser.add_argument("--seed", type=int, default=0, help="the first program's seed")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--engine", type=int, default=500, help="every N-th program with the real engine; 0 for none")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing new after so long")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write each failing program to a file there")
    parser.add_argument("--no-shrink", action="store_true", help="print failing programs as they are")
    parser.add_argument("--shrink-seconds", type=float, default=float("inf"), help="processor time to shrink in")
    parser.add_argument("--show", type=int, metavar="SEED", help="print one program and stop")
    parser.add_argument("--only", metavar="SEED|FILE", help="run one program, shrink it and stop")
    options = parser.parse_args()
    if options.show is not None:
        from .generate import program

        print(program(options.show))
        return 0
    if options.only is not None:
        return _only(options.only, options)
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    start = time.perf_counter()
    end = options.seed + options.count
    outcomes: list[Outcome] = []

    stop = time.time() + options.seconds
    # no GPU: CUDA cannot be used in a forked process, and eager's autograd and torch.cond ask for it where there is one
    os.environ.update(OMP_NUM_THREADS="1", MALLOC_ARENA_MAX="2", CUDA_VISIBLE_DEVICES="")
    with ProcessPoolExecutor(options.jobs, get_context("spawn"), load) as pool:
        firsts = range(options.seed, end, CHUNK)
        submitted = [pool.submit(chunk, first, min(CHUNK, end - first), options.engine, stop) for first in firsts]
        for done in as_completed(submitted):
            for outcome in done.result():
                if outcome.kind and all(outcome.kind != other.kind for other in outcomes):
                    print(f"NEW seed {outcome.seed}: {outcome.kind}\n{outcome.detail}", flush=True)
                    print(_own(outcome.seed), flush=True)
                if outcome.kind and options.keep is not None:
                    _keep(outcome, options.keep)
                outcomes.append(outcome)
            failed = sum(bool(outcome.kind) for outcome in outcomes)
            print(f"{len(outcomes)} programs, {failed} failures, {time.perf_counter() - start:.0f} s", flush=True)
    return _verdict(outcomes, options)


def _verdict(outcomes: list[Outcome], options: argparse.Namespace) -> int:
    """Print what was found, the verdict last; the exit code."""
    kinds: dict[str, list[int]] = collections.defaultdict(list)
    for outcome in outcomes:
        if outcome.kind:
            kinds[outcome.kind].append(outcome.seed)
    for kind, seeds in sorted(kinds.items(), key=lambda pair: -len(pair[1])):
        print(f"{len(seeds):5}  {kind}  seeds {seeds[:6]}")
    if not options.no_shrink:
        shown = [seeds[0] for seeds in kinds.values()][:10]
        for seed in shown:
            _shrink(seed, options.engine, options.shrink_seconds / len(shown))
    skipped = collections.Counter(outcome.skipped for outcome in outcomes if outcome.skipped)
    for reason, count in skipped.most_common():
        seeds = [outcome.seed for outcome in outcomes if outcome.skipped == reason][:4]
        print(f"{count:5}  not compared: {reason}  seeds {seeds}")
    differ = sum(map(len, kinds.values()))
    agree = len(outcomes) - differ - skipped.total()
    missing = options.count - len(outcomes)
    print(f"Python {platform.python_version()}, seeds from {options.seed}: {len(outcomes)} programs: {agree} agree, "
          f"{differ} differ, {skipped.total()} not compared" + (f"; {missing} NOT RUN" if missing else ""))  # fmt: skip
    return 1 if differ else 2 if missing else 0


def _shrink(seed: int, engine: int, seconds: float) -> None:
    """In a process of its own, which the program may end."""
    command = [sys.executable, __file__, "--only", str(seed), "--engine", str(engine),
               "--shrink-seconds", str(seconds)]  # fmt: skip
    sys.stdout.flush()
    subprocess.run(command, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})


def _own(seed: int) -> str:
    """The program without what all programs share."""
    from .generate import program
    from .prelude import MARK

    return program(seed).rpartition(MARK)[2]


def _keep(outcome: Outcome, folder: Path) -> None:
    from .generate import program

    folder.mkdir(parents=True, exist_ok=True)
    version = "".join(platform.python_version_tuple()[:2])
    (folder / f"py{version}_{outcome.seed}.py").write_text(program(outcome.seed))


def _only(name: str, options: argparse.Namespace) -> int:
    """Shrink the program of a seed, or of a file (`--engine 1`: compiled), while it fails in the same way; print it."""
    from .differ import difference
    from .generate import program
    from .prelude import MARK
    from .shrink import shrink

    if options.shrink_seconds < float("inf"):
        allow_processor(int(options.shrink_seconds) + PROCESSOR)
    text = program(int(name)) if name.isdigit() else Path(name).read_text()
    engine = with_engine(int(name) if name.isdigit() else 1, options.engine)
    found = difference(text, engine)
    if found is None:
        print(f"{name}: no difference")
        return 0
    prefix = found.kind.split(":")[0]

    def fails(candidate: str) -> bool:
        try:
            smaller = difference(candidate, engine, seconds=20)
        except BaseException:
            return False
        return smaller is not None and smaller.kind.split(":")[0] == prefix

    small = shrink(text, fails, seconds=options.shrink_seconds)
    found = difference(small, engine) or found
    print(f"==== {name}: {found.kind}\n{found.detail}\n{small.rpartition(MARK)[2]}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
