"""Every operator of PyTorch's own operator database through `ptdebug.compile`, against eager.

    python tests/operators/sweep.py [--backward] [--dtype DTYPE] [--only NAME ...] [--samples N] [--dynamic]

prints a line for each operator: whether all its sample inputs gave eager's results (values, dtypes, strides, shared
memory, inputs after the call; with --backward, gradients of all results and of the first alone), and how they were
computed. A wrong result, or an exception that eager does not raise, is a failure. What ran in eager is compared too,
and counted apart, with the reason. Samples are compiled together in one function, and in halves where that goes wrong.
"""
from __future__ import annotations

import argparse
import collections
import itertools
import logging
import multiprocessing
import multiprocessing.connection
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ptdebug
import ptdebug.engine.compile
import torch
from ptdebug.artifacts.records import Break, Breaks, Decision
from ptdebug.cli import session
from ptdebug.engine.toolchain import cpp_build as compiler
from ptdebug.tracer.frames import dispatch
from torch.utils._pytree import tree_leaves

if __name__ in ("__main__", "__mp_main__"):  # run as a file, or its worker: its siblings are found beside it
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    __package__ = Path(__file__).resolve().parent.name

from .compare import Seen, difference
from .samples import MOST_USED, Sample, differentiable, full_name, operators, samples

KINDS = {
    "kernels": "compiled, all in kernels of ours",
    "library": "compiled, with calls of ATen in the graph for some operators",
    "empty": "nothing to compute: the result is an input, a view of one, or no tensor",
    "break": "right, but the tracer breaks the graph at the operator, which runs in eager",
    "eager": "right, but the engine gave up the graph, or the tracer the function, which runs in eager",
    "failed": "a wrong result, or an exception that eager does not raise",
}

BATCH = 24  # samples of one function
SHARES = {"cpu": 1, "cuda": 0}  # operators of one process, 0: as many as there are for it; a GPU takes long to begin


@dataclass(frozen=True)
class Outcome:
    """How a sample went: `kind` is one of `KINDS`."""

    sample: str
    kind: str
    why: str = ""


class Watch:
    """A recorder that keeps why something of a function was not compiled, and what was left to ATen."""

    def __init__(self) -> None:
        self.breaks: list[Break] = []
        self.calls: list[str] = []
        self.eager: list[str] = []
        self.kernels = 0

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: None  # the other messages to a recorder

    def record(self, compile_id: str, stage: str, name: str, record: Any) -> None:
        """Keep breaks, and count what has kernels."""
        if isinstance(record, Breaks):
            self.breaks += record.breaks
        self.kernels += stage == "kernels"

    def decision(self, compile_id: str, decision: Decision) -> None:
        """Keep the reasons of library calls, and of graphs that run in eager."""
        if decision.kind == "fallback":
            self.calls.append(decision.why)
        elif decision.kind == "engine":
            self.eager.append(decision.why)

    def end(self, compile_id: str, status: str, reason: str, seconds: Any) -> None:
        """Keep why a frame was left alone by an error of ours."""
        if status in ("eager", "failed"):
            self.eager.append(reason)


# ---- running ---------------------------------------------------------------------------------------------------------
_numbers = itertools.count()


def program_of(group: Sequence[Sample]) -> Callable[[list[Any]], list[Any]]:
    """A function that makes all calls of `group`, one on each line from the second on."""
    lines = [f"    r{i} = f{i}(*calls[{i}][0], **calls[{i}][1])" for i in range(len(group))]
    returned = ", ".join(f"r{i}" for i in range(len(group)))
    text = "\n".join(["def program(calls):", *lines, f"    return [{returned}]"])
    scope: dict[str, Any] = {f"f{i}": sample.function for i, sample in enumerate(group)}
    exec(compile(text, f"/operators/program_{next(_numbers)}.py", "exec"), scope)
    program: Callable[[list[Any]], list[Any]] = scope["program"]
    return program


def observe(
    group: Sequence[Sample], program: Callable[..., Any], dtype: torch.dtype | None = None, seed: int = 1
) -> list[Seen]:
    """Run the program on new inputs, twice where gradients are looked at, and sort what it gives by sample."""
    tracked = any(sample.tracked for sample in group)
    inputs, results, everything = _call(group, program, dtype, seed)
    gradients = [_gradients(everything, inputs, first=False)] if tracked else []
    if tracked:
        again, _, values = _call(group, program, dtype, seed)
        gradients.append(_gradients(values, again, first=True))
    return [
        Seen(results[i], inputs[i], tuple(kind[i] for kind in gradients)) for i in range(len(group))
    ]


def _call(group: Sequence[Sample], program: Callable[..., Any], dtype: torch.dtype | None, seed: int) -> Any:
    inputs = [sample.inputs(dtype) for sample in group]
    torch.manual_seed(seed)
    with torch.set_grad_enabled(any(sample.tracked for sample in group)):
        made = program([sample.arguments(tensors) for sample, tensors in zip(group, inputs)])
    results = [tree_leaves(value) for value in made]
    return inputs, results, results


def _gradients(results: list[list[Any]], inputs: list[tuple[torch.Tensor, ...]], first: bool) -> list[list[Any]]:
    """For each sample the gradients of its inputs that require grad, all from one backward, for fixed gradients of the
    results; with `first` only of the first result of each sample, and that as an expanded number, as of a sum."""
    source = torch.Generator().manual_seed(2)
    roots, tangents = [], []
    for mine, given in zip(results, inputs):
        made = [r for r in mine if isinstance(r, torch.Tensor) and r.requires_grad and not any(r is t for t in given)]
        for r in made[:1] if first else made:
            shape = () if first else r.shape
            values = torch.randn(shape, generator=source, dtype=torch.complex128 if r.is_complex() else torch.float64)
            roots.append(r)
            tangents.append(values.to(r).expand(r.shape))
    wanted = [t for given in inputs for t in given if t.requires_grad]
    if not roots:
        return [[] for _ in inputs]
    found = iter(torch.autograd.grad(roots, wanted, tangents, allow_unused=True))
    return [[next(found) for t in given if t.requires_grad] for given in inputs]


def run(group: Sequence[Sample], dynamic: bool | None = None) -> list[Outcome]:
    """Compile the samples as one function, run it, and compare; one by one where that does not work."""
    program = program_of(group)
    known = observe(group, program)
    exact = _exact(group, program)
    watch = Watch()
    inside = session.enter(session.Session(recorder=watch))
    try:
        got = observe(group, ptdebug.compile(program, dynamic=dynamic))
    except Exception as error:
        if len(group) > 1:
            return _halves(group, dynamic)
        return [Outcome(group[0].name, "failed", f"raised {type(error).__name__}: {error}")]
    finally:
        session.leave(inside)
        reasons = ptdebug.stats()["reasons"]
        dispatch.reset()
    again = [reason for reason in reasons if reason.startswith("run again")]
    whys = [difference(s.operator, *seen) for s, *seen in zip(group, got, known, exact)]
    if len(group) > 1 and (watch.eager or again or any(whys)):
        return _halves(group, dynamic)
    broken = _broken(watch.breaks)
    calls = "; ".join(dict.fromkeys(watch.calls))
    outcomes = []
    for i, (sample, why) in enumerate(zip(group, whys)):
        eager = "; ".join(watch.eager + again).strip()
        if why:
            outcomes.append(Outcome(sample.name, "failed", why))
        elif eager:
            outcomes.append(Outcome(sample.name, "eager", _first_line(eager)))
        elif i in broken:
            outcomes.append(Outcome(sample.name, "break", broken[i]))
        else:
            kind = "library" if calls else "kernels" if watch.kernels else "empty"
            outcomes.append(Outcome(sample.name, kind, calls))
    return outcomes


def _first_line(text: str) -> str:
    """The first line of a reason; of a traceback the last."""
    lines = text.splitlines()
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]


def _halves(group: Sequence[Sample], dynamic: bool | None) -> list[Outcome]:
    half = len(group) // 2
    return run(group[:half], dynamic) + run(group[half:], dynamic)


def _broken(breaks: Sequence[Break]) -> dict[int, str]:
    """Position of the sample -> why the graph broke in its call."""
    found = {}
    for each in breaks:
        for place in (each.location, *each.stack):
            if place.file.startswith("/operators/"):
                found.setdefault(place.line - 2, f"{each.message} [{each.code}]")
    return found


def _exact(group: Sequence[Sample], program: Callable[..., Any]) -> list[Seen | None]:
    """Eager's results for float64 inputs; None for what draws random numbers, or takes no float64."""
    try:
        return list(observe(group, program, torch.float64))
    except Exception:
        if len(group) == 1:
            return [None]
    return [each for sample in group for each in _exact([sample], program_of([sample]))]


# ---- the sweep -------------------------------------------------------------------------------------------------------
def runs(sample: Sample) -> bool:
    """Whether eager runs the sample, and differentiates it where gradients are looked at."""
    try:
        observe([sample], program_of([sample]))
    except Exception:
        return False
    return True


def sweep(
    op: Any, limit: int = 0, backward: bool = False, dtype: torch.dtype = torch.float32, dynamic: bool | None = None,
    device: str = "cpu",
) -> list[Outcome]:
    """How the samples of an operator go, with gradients where asked for."""
    wanted = (s for s in samples(op, dtype, backward, device) if bool(s.tracked) == backward and runs(s))
    group = list(itertools.islice(wanted, limit or None))
    return [o for start in range(0, len(group), BATCH) for o in run(group[start : start + BATCH], dynamic)]


def verdict(outcomes: Sequence[Outcome]) -> str:
    """The worst kind among the outcomes of an operator."""
    return max((o.kind for o in outcomes), key=list(KINDS).index, default="no samples")


def outcomes_of(ops: Sequence[Any], arguments: argparse.Namespace) -> Iterator[tuple[str, list[Outcome]]]:
    """(operator, outcomes) of each, in processes of `SHARES` operators: one that crashes is a failure of the operator
    that it was at."""
    begin = multiprocessing.get_context("fork" if arguments.device == "cpu" else "spawn")
    share = SHARES[arguments.device] or -(-len(ops) // arguments.jobs)
    waiting = [list(ops[start : start + share]) for start in reversed(range(0, len(ops), share))]
    running: dict[Any, tuple[list[Any], Any]] = {}
    while waiting or running:
        while waiting and len(running) < arguments.jobs:
            mine = waiting.pop()
            receiver, sender = begin.Pipe(duplex=False)
            given = mine if arguments.device == "cpu" else [full_name(op) for op in mine]
            process = begin.Process(target=_work, args=(given, arguments, sender))
            process.start()
            sender.close()
            running[receiver] = mine, process
        for receiver in multiprocessing.connection.wait(list(running)):
            mine, process = running[receiver]
            name = full_name(mine[0])
            try:
                outcomes, usable = receiver.recv()
            except EOFError:
                outcomes, usable = [Outcome(name, "failed", "the process ended")], False
            del mine[0]
            yield name, outcomes
            if not usable and mine:
                waiting.append(list(mine))
                mine.clear()
            if not mine:
                del running[receiver]
                process.join()


def _work(ops: Sequence[Any], arguments: argparse.Namespace, sender: Any) -> None:
    dtype, dynamic = getattr(torch, arguments.dtype), True if arguments.dynamic else None
    if arguments.device != "cpu":  # by name: the entries do not go from process to process
        known = {full_name(op): op for op in operators((), dtype, arguments.device)}
        ops = [known[name] for name in ops]
        logging.getLogger("ptdebug").setLevel(logging.ERROR)
        warnings.simplefilter("ignore")
    for op in ops:
        usable = True
        try:
            outcomes = sweep(op, arguments.samples, arguments.backward, dtype, dynamic, arguments.device)
        except Exception:
            outcomes = [Outcome(full_name(op), "failed", traceback.format_exc().strip())]
        if any("CUDA error" in o.why or "device-side assert" in o.why for o in outcomes):
            usable = False  # a device that has failed once fails all that comes after
        sender.send((outcomes, usable))
        if not usable:
            return


def main() -> int:
    """Run the sweep and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=(), help="names of operators, or patterns of them")
    parser.add_argument("--most-used", action="store_true", help="a hundred operators that models use most")
    parser.add_argument("--samples", type=int, default=0, help="at most this many of each operator")
    parser.add_argument("--dtype", default="float32", help="of the inputs, as torch names it")
    parser.add_argument("--device", choices=SHARES, default="cpu", help="of the inputs")
    parser.add_argument("--part", default="1/1", help="K/N: each N-th operator, from the K-th on")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--fast", action="store_true", help="let g++ optimize nothing, which takes a third of the time")
    parser.add_argument("--backward", action="store_true", help="gradients, too, of what has them")
    parser.add_argument("--dynamic", action="store_true", help="with sizes that vary")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("ptdebug").setLevel(logging.ERROR)
    if arguments.fast:
        compiler.FLAGS = tuple("-O0" if flag == "-O2" else flag for flag in compiler.FLAGS)
    dtype = getattr(torch, arguments.dtype)
    counts: collections.Counter[str] = collections.Counter()
    single: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[tuple[str, str]] = collections.Counter()
    start = time.time()
    names = MOST_USED if arguments.most_used else arguments.only
    ops = [op for op in operators(names, dtype, arguments.device)
           if not arguments.backward or differentiable(op, dtype, arguments.device)]
    part, parts = map(int, arguments.part.split("/"))
    ops = ops[part - 1 :: parts]
    for name, outcomes in outcomes_of(ops, arguments):
        kind = verdict(outcomes)
        counts[kind] += 1
        single.update(o.kind for o in outcomes)
        worst = [o for o in outcomes if o.kind == kind]
        first = f"{worst[0].sample} {worst[0].why}" if worst else ""
        note = "" if kind == "kernels" else f"{len(worst)} of {len(outcomes)}: {first}"
        print(f"{kind:10} {name:45} {note}", flush=True)
        reasons.update({(o.kind, o.why) for o in outcomes if o.kind in ("eager", "break")})
    print(f"\noperators, by their worst sample: {dict(counts)}; samples: {dict(single)}; {time.time() - start:.0f} s")
    for (kind, why), count in reasons.most_common():
        print(f"  {kind} in {count} operators: {why}")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
