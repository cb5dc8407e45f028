"""Differential fuzz of the engine alone: random ATen programs, compiled, against eager.

    python tests/engine/fuzz_graphs.py --count 50000 --jobs 16 --seed 1

builds programs from the seeds SEED, SEED+1, ..., compiles several side by side as one graph, and compares results,
changed inputs, strides, dtypes and shared memory with eager's; what the reference interpreter makes of the loop IR is
compared too. Workers are processes: a crash or a hang is a failure of the programs that were running. A failing
program is shrunk and printed. After `--limit` seconds no more are run: the last lines say how many were. Exit code 1 if
any failed.

    python tests/engine/fuzz_graphs.py --show SEED        # that program, and how it differs
    python tests/engine/fuzz_graphs.py --device cuda --count 10000 --jobs 4     # Triton kernels on a GPU
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import queue
import random
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from ptdebug.artifacts.context import CompileContext, run_stages
from ptdebug.engine.ir.interpreter import run as run_loops
from ptdebug.engine.runtime.entry import EntryFacts, entry
from ptdebug.engine.stages import INFERENCE
from ptdebug.engine.toolchain import cpp_build as compiler
from ptdebug.engine.unsupported import EngineUnsupported

if __name__ == "__main__":  # run as a file: its siblings are found beside it
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    __package__ = Path(__file__).resolve().parent.name

from . import (  # noqa: F401  (they add rules)
    fuzz_backward_operators,
    fuzz_layer_operators,
    fuzz_movement_operators,
    fuzz_operators,
    fuzz_rare_operators,
)
from .fuzz_capture import captured, faked, varied
from .fuzz_compare import difference, execute, random_states, said
from .fuzz_devices import PLACES, choose, here
from .fuzz_programs import Builder, Input, Program, apply, needs_another_device, refs
from .fuzz_rules import step
from .fuzz_triton import in_tritons_interpreter, results_in
from .gpu_driver import gpu_driver, in_cpp

BATCH = 8  # programs of one graph
DYNAMIC = 0.1  # share of the graphs whose sizes vary
CHUNK = 1024  # programs of one worker, which loads torch first
SHRINKS = 80  # attempts to make a failing program smaller
OVERRIDES = (
    {},
    {},
    {"intermediate-precision:*": "eager"},
    {"fuse:*": "separate"},
    {"fuse:*": "fuse"},
    {"variance:*": "welford"},
    {"concat:*": "parts"},
    {"realize:*": "realize"},
    {"realize:*": "inline"},
    {"lowering:*": "extern"},
    {"decompose:*": "keep"},
    {"wrapper:*": "cpp"},
    {"sdpa:*": "ptdebug"},
)


OF_A_GPU = ({"cudagraphs:*": "capture"},) * 2
"""What is forced on a GPU in the place of the last, attention of ours. Captured graphs run several times, the last of
them from the capture."""

DEVICES = '"interpreter" runs the kernels of a GPU on the CPU, in Triton\'s interpreter'

LEFT: collections.Counter[str] = collections.Counter()
"""Why programs were left to eager, and how many."""


@dataclass(frozen=True)
class Failure:
    """A program that went wrong, and how."""

    program: Program
    what: str
    overrides: tuple[tuple[str, str], ...] = ()
    dynamic: bool = False


# ---- programs --------------------------------------------------------------------------------------------------------
def build(seed: int) -> Program:
    """The program of a seed."""
    b = Builder(seed)
    wanted = b.rng.choice((1, 2, 3, 5, 8, 12, 16))
    for _ in range(6 * wanted):
        if len(b.calls) >= wanted:
            break
        step(b)
    return b.finish()


# ---- compiling -------------------------------------------------------------------------------------------------------
def results_of(
    programs: Sequence[Program], overrides: dict[str, str], dynamic: bool = False
) -> Iterator[tuple[str, Sequence[Program], list[Any], list[Any]]]:
    """(who, what ran, results, inputs afterwards): of the compiled graph, of the interpreter for what the graph
    computes and, where sizes vary, of the compiled graph on other sizes."""
    made = faked(programs, dynamic)
    LEFT["fake tensors refuse it, as they would a tracer's"] += len(programs) - len(made)
    if not made:
        return
    graph = captured(made)
    context = CompileContext(overrides=overrides)
    ran = [one.program for one in made]
    if here() == PLACES["interpreter"]:
        yield "Triton's interpreter", ran, *_run(in_tritons_interpreter(graph, context), ran)
        with gpu_driver(), torch.no_grad():
            call = in_cpp(graph, context) if "wrapper:*" in overrides else None
            if call is not None:
                yield "C++ wrapper", ran, *_run(lambda inputs: list(call(*inputs)), ran)
        return
    work = run_stages(INFERENCE, graph, context)
    call = entry(work.call, EntryFacts.of(work.aten), graph)
    with torch.no_grad():
        for who in ("kernels", "again", "captured")[: 3 if "cudagraphs:*" in overrides else 1]:
            yield who, ran, *_run(lambda inputs: list(call(*inputs)), ran)
        if here().tensors.type == "cpu":
            interpreted = partial(run_loops, work.program)
            yield "interpreter", ran, *_run(lambda inputs: results_in(work.aten, interpreted(inputs)), ran)
        if dynamic and (others := varied(made)) != ran:
            yield "other sizes", others, *_run(lambda inputs: list(call(*inputs)), others)


def _run(function: Callable[[list[Any]], list[Any]], programs: Sequence[Program]) -> tuple[list[Any], list[Any]]:
    """(results, inputs afterwards) of a function on new inputs of programs."""
    inputs = [t for program in programs for t in program.tensors()]
    torch.manual_seed(programs[0].seed)
    return function(inputs), inputs


def check(programs: Sequence[Program], overrides: dict[str, str], dynamic: bool = False) -> list[Failure]:
    """The failures among programs that are compiled together, then each alone where something is wrong."""
    forced = tuple(overrides.items())
    try:
        found = _compare(programs, overrides, dynamic)
    except EngineUnsupported as left:  # the graph would run in eager
        if len(programs) > 1:
            return [failure for program in programs for failure in check([program], overrides, dynamic)]
        LEFT[str(left)] += 1
        return []
    except Exception as error:
        if len(programs) > 1:
            alone = [failure for program in programs for failure in check([program], overrides, dynamic)]
            if alone or _raised(programs) == str(error) or any(str(error) in said(program) for program in programs):
                return alone
            return [Failure(programs[0], f"together only: {_summary(error)}", forced, dynamic)]
        if str(error) in said(programs[0]):
            return []
        return [Failure(programs[0], f"raised {_summary(error)}", forced, dynamic)]
    if not found or len(programs) == 1:
        return found
    alone = [failure for f in found for failure in check([_by_seed(programs, f)], overrides, dynamic)]
    return alone or [replace(f, what=f"together only: {f.what}") for f in found]


def _raised(programs: Sequence[Program]) -> str:
    """What eager says where the random numbers of programs that run one after the other make it raise."""
    try:
        random_states(programs)
    except Exception as error:
        return str(error)
    return ""


def _by_seed(programs: Sequence[Program], failure: Failure) -> Program:
    return next(program for program in programs if program.seed == failure.program.seed)


def _summary(error: Exception) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    said = str(error).split("\n")
    lines = " | ".join(said if isinstance(error, compiler.BuildFailed) else said[:1])[:600]
    return f"{type(error).__name__}: {lines} ({Path(where.filename).name}:{where.name})"


def _compare(programs: Sequence[Program], overrides: dict[str, str], dynamic: bool) -> list[Failure]:
    failures = []
    blamed = set()
    for who, ran, results, inputs in results_of(programs, overrides, dynamic):
        rest, memory = iter(results), iter(inputs)
        for program, state in zip(ran, random_states(ran)):
            got = [next(rest) for _ in program.results]
            mine = [next(memory) for _ in program.inputs]
            if program.seed in blamed:
                continue
            what = difference(program, got, mine, overrides.get("intermediate-precision:*", ""), state)
            if what:
                blamed.add(program.seed)
                failures.append(Failure(program, f"{who}: {what}", tuple(overrides.items()), dynamic))
    return failures


# ---- shrinking -------------------------------------------------------------------------------------------------------
def shrink(failure: Failure) -> Failure:
    """A smaller program that fails too: fewer results, calls replaced by inputs with their values, simpler inputs."""
    best = failure
    tries = 0
    while tries < SHRINKS:
        for candidate in _smaller(best.program):
            tries += 1
            smaller = _fails(candidate, best)
            if smaller is not None:
                best = smaller
                break
            if tries >= SHRINKS:
                break
        else:
            break
    return best


def _fails(program: Program, like: Failure) -> Failure | None:
    try:
        with torch.no_grad():
            execute(program, program.tensors())
        found = check([program], dict(like.overrides), like.dynamic)
    except Exception:
        return None
    return found[0] if found and found[0].what[:9] == like.what[:9] else None


def _smaller(program: Program) -> Iterator[Program]:
    made = {call.name: call for call in program.calls}
    for name in program.results:
        for read in refs((made[name].args, made[name].kwargs)) if name in made else ():
            if read.name in made:
                yield _without_dead(replace(program, results=(read.name,)))
    for name in program.results:
        if len(program.results) > 1:
            yield _without_dead(replace(program, results=(name,)))
            yield _without_dead(replace(program, results=tuple(r for r in program.results if r != name)))
    for position, call in enumerate(program.calls):
        if call.name not in program.results:
            yield _without_dead(replace(program, calls=program.calls[:position] + program.calls[position + 1 :]))
    for position in reversed(range(len(program.calls))):
        cut = _cut(program, position)
        if cut is not None:
            yield cut
    for position, given in enumerate(program.inputs):
        dense = replace(given, stride=torch.empty(given.shape).stride(), offset=0)
        if dense != given and given.data is None:
            yield replace(program, inputs=program.inputs[:position] + (dense,) + program.inputs[position + 1 :])


def _cut(program: Program, position: int) -> Program | None:
    """The program with the result of a call as an input that holds its value."""
    call = program.calls[position]
    if call.name in program.results:
        return None
    values: dict[str, Any] = dict(zip([i.name for i in program.inputs], program.tensors()))
    with torch.no_grad():
        for earlier in program.calls[: position + 1]:
            values[earlier.name] = apply(earlier, values)
    value = values[call.name]
    if not isinstance(value, torch.Tensor) or value.dtype.is_complex:
        return None
    span = 0 if value.numel() == 0 else 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride()))
    data = value.as_strided((span,), (1,), value.storage_offset()).clone()
    made = Input(call.name, tuple(value.shape), value.stride(), 0, value.dtype, "", 0, 0, data)
    calls = program.calls[:position] + program.calls[position + 1 :]
    return _without_dead(replace(program, inputs=(*program.inputs, made), calls=calls))


def _without_dead(program: Program) -> Program:
    needed, kept = set(program.results), []
    for call in reversed(program.calls):
        if call.name in needed or call.function.endswith("_"):
            kept.append(call)
            needed |= {r.name for r in refs((call.args, call.kwargs))}
    inputs = tuple(i for i in program.inputs if i.name in needed)
    return replace(program, calls=tuple(reversed(kept)), inputs=inputs)


# ---- running many ----------------------------------------------------------------------------------------------------
def fuzz(first: int, count: int, report: Callable[[int, int, list[Failure]], None]) -> None:
    """Programs of `count` seeds from `first`, in batches; `report(first seed, seeds, failures)` after each."""
    for start in range(first, first + count, BATCH):
        seeds = range(start, min(start + BATCH, first + count))
        report(start, 0, [])
        chosen = random.Random(start)
        options = OVERRIDES[:-1] + OF_A_GPU if here() == PLACES["cuda"] else OVERRIDES
        overrides, dynamic = chosen.choice(options), chosen.random() < DYNAMIC
        programs = [program for program in map(build, seeds) if program.calls and not needs_another_device(program)]
        report(start, len(seeds), check(programs, overrides, dynamic) if programs else [])


def worker(first: int, count: int, shrinks: bool) -> None:
    """Run seeds and write a line of JSON for each batch, before and after it."""

    def report(start: int, done: int, failures: list[Failure]) -> None:
        found = []
        left = {why: count for why, count in LEFT.items() if count}
        for failure in failures:
            small = shrink(failure) if shrinks else failure
            found.append(
                {
                    "seed": failure.program.seed,
                    "what": small.what,
                    "program": str(small.program),
                    "overrides": dict(failure.overrides) | ({"sizes": "vary"} if failure.dynamic else {}),
                }
            )
        print(json.dumps({"start": start, "done": done, "failures": found, "left": left}), flush=True)
        LEFT.clear()

    warnings.simplefilter("ignore")
    fuzz(first, count, report)


def supervise(
    first: int, count: int, jobs: int, seconds: float, limit: float, options: list[str]
) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """Run workers over all seeds; (programs that were run, failures by what went wrong)."""
    chunks: queue.Queue[tuple[int, int]] = queue.Queue()
    for start in range(first, first + count, CHUNK):
        chunks.put((start, min(CHUNK, first + count - start)))
    failures: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    done = [0]
    began, lock = time.time(), threading.Lock()

    def loop() -> None:
        while True:
            try:
                start, size = chunks.get_nowait()
            except queue.Empty:
                return
            if time.time() >= began + limit:
                return
            try:
                reached, made, found = _watch(start, size, seconds, began + limit, options)
            except (OSError, RuntimeError):  # no memory for a process or a thread: later there may be
                chunks.put((start, size))
                time.sleep(10)
                continue
            with lock:
                done[0] += made
                for failure in found:
                    failures[_kind(failure["what"])].append(failure)
                    print(f"\n{failure['program']}\n# {failure['overrides'] or ''} {failure['what']}", flush=True)
                print(
                    f"{done[0]} of {count} programs, {sum(map(len, failures.values()))} failures, "
                    f"{time.time() - began:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
            if reached < start + size:  # the worker died: go on after the batch that it was at
                chunks.put((reached, start + size - reached))

    threads = [threading.Thread(target=loop) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done[0], failures


def _kind(what: str) -> str:
    return " ".join(w for w in what.split() if not any(c.isdigit() for c in w))[:90]


def _watch(
    start: int, size: int, seconds: float, end: float, options: list[str]
) -> tuple[int, int, list[dict[str, Any]]]:
    """Run one worker until the time `end`; (seed to go on from, programs done, failures), its crash or hang among them.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "2"),
                   "PYTHONFAULTHANDLER": "1",  # tells where a worker that aborts was
                   "MALLOC_PERTURB_": "165"}  # memory that nothing was written to holds no zeros by chance
    command = [sys.executable, __file__, "--worker", "--seed", str(start), "--count", str(size), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    lines: queue.Queue[str | None] = queue.Queue()
    errors: list[str] = []
    assert process.stdout is not None and process.stderr is not None
    readers = [
        threading.Thread(target=lambda: ([lines.put(x) for x in process.stdout], lines.put(None)), daemon=True),
        threading.Thread(target=lambda: errors.extend(process.stderr), daemon=True),
    ]
    for reader in readers:
        reader.start()
    made, at, open_batch, found = 0, start, False, []
    while True:
        try:
            line = lines.get(timeout=max(0.0, min(seconds, end - time.time())))
        except queue.Empty:
            process.kill()
            if time.time() >= end:
                process.wait()
                return start + size, made, found
            line, reason = None, f"hangs for {seconds:.0f} s"
        else:
            reason = ""
        if line is None:
            break
        if not line.startswith('{"start": '):  # what a library prints
            continue
        try:
            news = json.loads(line)
        except ValueError:  # the worker ended within the line
            continue
        at, open_batch = news["start"], news["done"] == 0
        made += news["done"]
        found += news["failures"]
        LEFT.update(news["left"])
        if not open_batch:
            at += news["done"]
    code = process.wait()
    if code == 0:
        return start + size, made, found
    what = reason or f"worker ended with {code} {''.join(errors[-3:]).strip() if code > 0 else ''}"
    told = "".join([f"\n#   {line.rstrip()}" for line in errors[-40:]] if code < 0 and not reason else [])
    program = f"# one of the seeds {at} to {at + BATCH - 1}, in a worker from seed {start} on{told}"
    found.append({"seed": at, "what": what, "program": program, "overrides": {}})
    return min(at + BATCH, start + size), made, found


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    parser.add_argument("--seconds", type=float, default=180, help="after which a batch hangs")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no more programs run")
    parser.add_argument("--no-shrink", action="store_true", help="print failing programs as they are")
    parser.add_argument("--device", choices=PLACES, default="cpu", help="where kernels, and eager, run; " + DEVICES)
    parser.add_argument("--fast", action="store_true", help="let g++ optimize nothing, which takes a third of the time")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--show", type=int, help="print the program of this seed and check it alone")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    choose(arguments.device)
    if arguments.fast:
        compiler.FLAGS = tuple("-O0" if flag == "-O2" else flag for flag in compiler.FLAGS)
    if arguments.worker:
        worker(arguments.seed, arguments.count, not arguments.no_shrink)
        return 0
    if arguments.show is not None:
        program = build(arguments.show)
        found = [f for o in OVERRIDES for vary in (False, True) for f in check([program], o, vary)]
        print(program, *[f"# {f.overrides} {'sizes vary ' * f.dynamic}{f.what}" for f in found], sep="\n")
        return 1 if found else 0
    options = [f"--{name}" for name in ("fast", "no-shrink") if getattr(arguments, name.replace("-", "_"))]
    options += ["--device", arguments.device]
    began = time.time()
    done, failures = supervise(
        arguments.seed, arguments.count, arguments.jobs, arguments.seconds, arguments.limit, options)
    failed = sum(map(len, failures.values()))
    rate = f"{done / max(time.time() - began, 1e-9):.1f} a second"
    print(f"\n{done} of {arguments.count} programs from seed {arguments.seed} ran on {arguments.device}, {rate}: "
          f"{failed} failed")
    if LEFT:
        print(f"{sum(LEFT.values())} left to eager: " + "; ".join(f"{n} {why}" for why, n in LEFT.most_common()))
    for what, cases in sorted(failures.items(), key=lambda item: -len(item[1])):
        print(f"  {len(cases):5}  {what}   seeds {', '.join(str(c['seed']) for c in cases[:6])}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
