"""How many breaks and graphs ptdebug's capture and stock TorchDynamo's make of the same workloads, side by side.

    python benchmarks/breaks.py [WORKLOAD ...] [--suite FILE] [--reasons] [--json FILE]

Captured graphs run as they are: nothing is compiled. Each workload has one process for each of the two, with fresh
weights in both. Ours is compared with eager: a program that asks whether it is
compiled may compute otherwise then. `--suite` is a Python file with `names()`, `build(name)`,
`make_step(workload, fn)` and `observe(workload, result)`, as in the shared bench; without it the workloads are those of
`workloads.py`.
"""
from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

COMPILERS = ("ptdebug", "torch")
LIMIT_SECONDS = 600


class OwnSuite:
    """`workloads.py` in the form of a suite."""

    def __init__(self) -> None:
        from workloads import WORKLOADS

        self.made = WORKLOADS

    def names(self) -> list[str]:
        """All of them."""
        return list(self.made)

    def build(self, name: str) -> Any:
        """The callable and its arguments."""
        torch.manual_seed(0)
        return self.made[name]()

    def make_step(self, workload: Any, fn: Callable[..., Any] | None = None) -> Callable[[], Any]:
        """One call without gradients."""

        def step() -> Any:
            with torch.no_grad():
                return (fn or workload[0])(*workload[1])

        return step

    def observe(self, workload: Any, result: Any) -> list[tuple[str, torch.Tensor]]:
        """The tensors of the result."""
        return [("out", result)]


def load_suite(path: str) -> Any:
    """The suite in the file, or our own."""
    if not path:
        return OwnSuite()
    spec = importlib.util.spec_from_file_location("suite", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["suite"] = module
    spec.loader.exec_module(module)
    return module


# ---- one workload, in a process of its own ---------------------------------------------------------------------------
def step_of(suite: Any, name: str, compile: Callable[[Any], Any]) -> tuple[Any, list[tuple[str, torch.Tensor]]]:
    """Run one step of the workload, and observe it."""
    workload = suite.build(name)
    torch.manual_seed(0)
    fn = workload[0]
    result = suite.make_step(workload, compile(fn))()
    return workload, suite.observe(workload, result)


def ours(suite: Any, name: str) -> dict[str, Any]:
    """Breaks, graphs, why, and whether all values are eager's."""
    import ptdebug
    from ptdebug.cli import wiring
    from torch.fx._lazy_graph_module import _LazyGraphModule

    def as_it_is(captured: Any, context: Any) -> Callable[..., Any]:
        context.restartable = True  # as the engine's graphs are
        _LazyGraphModule.force_recompile(captured.module)
        forward: Callable[..., Any] = captured.module.forward
        return forward

    wiring.engine_backend = as_it_is
    _, expected = step_of(suite, name, lambda fn: fn)
    _, got = step_of(suite, name, ptdebug.compile)
    stats = ptdebug.stats()
    reasons = {why: times for why, times in stats["reasons"].items() if not why.startswith("skipped: it has no tensor")}
    return {
        "breaks": stats["graph_breaks"], "graphs": stats["graphs"], "reasons": reasons,
        "difference": math.inf if [label for label, _ in got] != [label for label, _ in expected]
        else max((difference(a, b) for (_, a), (_, b) in zip(got, expected)), default=0.0),
    }


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest absolute difference; 0 where all are equal bit for bit or both NaN, infinite for another shape."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return math.inf
    if torch.equal(a, b) or not a.numel():
        return 0.0
    apart = torch.where(a.isnan() & b.isnan(), 0.0, (a.double() - b.double()).abs())
    return float(apart.nan_to_num(math.inf).max())


def stock(suite: Any, name: str) -> dict[str, Any]:
    """Breaks, graphs and why. TorchDynamo's counter of reasons leaves out branches on data; what makes it end a graph
    (as `torch._dynamo.explain` counts) leaves out frames that it gives up. The larger of the two is taken."""
    from torch._dynamo.output_graph import OutputGraph
    from torch._dynamo.utils import counters

    logging.disable(logging.WARNING)
    ended: list[str] = []
    end = OutputGraph.compile_subgraph

    def noted(self: Any, tx: Any, reason: Any, *args: Any, **kwargs: Any) -> Any:
        if reason.graph_break:
            ended.append(reason.reason.partition("\n")[0][:160])
        return end(self, tx, reason, *args, **kwargs)

    OutputGraph.compile_subgraph = noted  # type: ignore[method-assign]
    step_of(suite, name, lambda fn: torch.compile(fn, backend="eager"))
    counted = {why.partition("\n")[0][:160]: times for why, times in counters["graph_break"].items()}
    reasons = max(Counter(ended), Counter(counted), key=Counter.total)
    return {"breaks": reasons.total(), "graphs": counters["stats"]["unique_graphs"], "reasons": reasons}


# ---- all of them -----------------------------------------------------------------------------------------------------
def measure(name: str, compiler: str, suite: str) -> dict[str, Any]:
    """What the process for `name` and `compiler` printed, or its error."""
    command = [sys.executable, __file__, "--suite", suite, "--one", compiler, name]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, env=environment)
    except subprocess.TimeoutExpired:
        return {"error": f"more than {LIMIT_SECONDS} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def line(name: str, found: dict[str, dict[str, Any]]) -> str:
    """A row of the table."""
    cells = []
    for compiler in COMPILERS:
        one = found[compiler]
        cells.append("   failed  " if "error" in one else f"{one['breaks']:4d} {one['graphs']:6d}")
    mine, theirs = found["ptdebug"], found["torch"]
    notes = [f"{compiler}: {found[compiler]['error'][:80]}" for compiler in COMPILERS if "error" in found[compiler]]
    if not notes and mine["breaks"] and mine["breaks"] >= theirs["breaks"]:
        notes.append("not fewer")
    if mine.get("difference", 0.0):
        notes.append(f"values differ by {mine['difference']:.1e}")
    return f"{name:28s} {'   '.join(cells)}   {', '.join(notes)}".rstrip()


def main() -> None:
    """The table; totals at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*")
    parser.add_argument("--suite", default="")
    parser.add_argument("--reasons", action="store_true", help="print why each of them breaks")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", choices=COMPILERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    suite = load_suite(options.suite)
    if options.one:
        torch.set_num_threads(1)
        measured = (ours if options.one == "ptdebug" else stock)(suite, options.workloads[0])
        print(json.dumps(measured))
        return
    table: dict[str, dict[str, Any]] = {}
    totals: Counter[str] = Counter()
    print(f"{'':28s} {'ptdebug':>11s}   {'torch':>11s}\n{'workload':28s} breaks graphs  breaks graphs")
    for name in options.workloads or suite.names():
        table[name] = {compiler: measure(name, compiler, options.suite) for compiler in COMPILERS}
        print(line(name, table[name]), flush=True)
        for compiler in COMPILERS:
            totals[compiler] += table[name][compiler].get("breaks", 0)
            for why, times in table[name][compiler].get("reasons", {}).items() if options.reasons else ():
                print(f"      {compiler:8s} {times:3d}  {why[:150]}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(table, indent=1))
    print(f"{'breaks in all':28s} {totals['ptdebug']:4d} {'':6s}   {totals['torch']:4d}")


if __name__ == "__main__":
    main()
