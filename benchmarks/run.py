"""Eager, stock torch.compile and ptdebug side by side: `python benchmarks/run.py [WORKLOAD ...] [--json FILE]`.

Each pair of workload and compiler has a process of its own with empty caches. There, after the first call (the cold
compile: wall seconds, and CPU seconds of the process and its children), eager and compiled calls alternate in blocks,
and medians are compared: so both see the same machine, whatever else it does. Values are compared with float64.
"""
from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

COMPILERS = ("torch", "ptdebug")
BLOCKS = 9
BLOCK_SECONDS = 0.1


def main() -> int:
    """Measure and print the table; 1 where ptdebug failed, or was further from float64 than twice eager."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", help="default: all")
    parser.add_argument("--json", metavar="FILE", help="write the measurements there")
    parser.add_argument("--one", nargs=2, metavar=("WORKLOAD", "COMPILER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(*arguments.one)))
        return 0
    from workloads import WORKLOADS

    names = arguments.workloads or list(WORKLOADS)
    results: dict[str, dict[str, Any]] = {}
    print(f"{'':18}{'eager':>9}   {'speed-up':^17}   {'cold compile, CPU s':^28}")
    sides = f"{'stock':>8} {'ptdebug':>8}"
    print(f"{'workload':18}{'ms':>9}   {sides}   {sides} {'ratio':>8}   correct")
    for name in names:
        results[name] = {compiler: in_process(name, compiler) for compiler in COMPILERS}
        print(row(name, results[name]), flush=True)
    print(totals(results))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1))
    ours = [result["ptdebug"] for result in results.values()]
    return int(any("error" in result or not result["correct"] for result in ours))


def in_process(name: str, compiler: str) -> dict[str, Any]:
    """Measure in a new process with caches of its own; {"error": ...} where it fails."""
    with tempfile.TemporaryDirectory() as caches:
        environment = {
            **os.environ, "TORCHINDUCTOR_CACHE_DIR": f"{caches}/stock", "PTDEBUG_CACHE_DIR": f"{caches}/ours",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # in one process, so that its CPU seconds are counted
        }
        done = subprocess.run([sys.executable, __file__, "--one", name, compiler], env=environment,
                              capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or ["?"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def measure(name: str, compiler: str) -> dict[str, Any]:
    """Compile one workload and time it against eager, in this process."""
    import torch
    from workloads import WORKLOADS

    torch.manual_seed(0)
    function, arguments = WORKLOADS[name]()
    with torch.no_grad():
        expected = function(*arguments)
        wall, cpu = time.perf_counter(), cpu_seconds()
        if compiler == "torch":
            compiled = torch.compile(function)
        else:
            import ptdebug

            compiled = ptdebug.compile(function)
        result = compiled(*arguments)
        wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
        eager_ms, compiled_ms = alternate(lambda: function(*arguments), lambda: compiled(*arguments))
        exact = in_float64(function, arguments)
    error, eager_error = distance(result, exact), distance(expected, exact)
    measured = {"eager_ms": eager_ms, "compiled_ms": compiled_ms, "compile_wall_s": wall, "compile_cpu_s": cpu,
                "error": error, "eager_error": eager_error}
    measured["correct"] = error <= 2 * eager_error + 1e-7 and result.stride() == expected.stride()
    measured["max_error"] = measured.pop("error")
    return measured


def cpu_seconds() -> float:
    """Of this process and of the children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def alternate(first: Any, second: Any) -> tuple[float, float]:
    """Median milliseconds of a call of each, in alternating blocks of about the same time."""
    calls = []
    for call in (first, second):
        call()
        start = time.perf_counter()
        call()
        calls.append(max(1, min(10_000, round(BLOCK_SECONDS / max(time.perf_counter() - start, 1e-6)))))
    measured: tuple[list[float], list[float]] = ([], [])
    for _ in range(BLOCKS):
        for call, count, into in zip((first, second), calls, measured):
            start = time.perf_counter()
            for _ in range(count):
                call()
            into.append((time.perf_counter() - start) / count * 1000)
    return statistics.median(measured[0]), statistics.median(measured[1])


def in_float64(function: Any, arguments: tuple[Any, ...]) -> Any:
    """The same in double precision."""
    import copy

    import torch

    wide = [a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in arguments]
    if isinstance(function, torch.nn.Module):
        return copy.deepcopy(function).double()(*wide)
    return function(*wide)


def distance(result: Any, exact: Any) -> float:
    """The largest difference, in units of the largest exact value."""
    return ((result.double() - exact.double()).abs().max() / exact.double().abs().max().clamp(min=1e-30)).item()


def row(name: str, result: dict[str, dict[str, Any]]) -> str:
    """One line of the table."""
    failed = [f"{compiler}: {r['error']}" for compiler, r in result.items() if "error" in r]
    if failed:
        return f"{name:18} {'; '.join(failed)}"
    stock, ours = result["torch"], result["ptdebug"]
    correct = " ".join(f"{c}={'yes' if r['correct'] else 'NO'}" for c, r in result.items())
    return (f"{name:18}{ours['eager_ms']:9.3f}   {speedup(stock):8.2f} {speedup(ours):8.2f}   "
            f"{stock['compile_cpu_s']:8.2f} {ours['compile_cpu_s']:8.2f} "
            f"{ours['compile_cpu_s'] / stock['compile_cpu_s']:8.2f}   {correct}")


def speedup(result: dict[str, Any]) -> float:
    """How many times faster than eager in the same process."""
    return result["eager_ms"] / result["compiled_ms"]


def totals(results: dict[str, dict[str, Any]]) -> str:
    """Geometric means over the workloads that worked with both compilers."""
    whole = [r for r in results.values() if not any("error" in one for one in r.values())]
    if not whole:
        return "nothing to compare"
    stock = geometric_mean([speedup(r["torch"]) for r in whole])
    ours = geometric_mean([speedup(r["ptdebug"]) for r in whole])
    ratio = geometric_mean([r["ptdebug"]["compile_cpu_s"] / r["torch"]["compile_cpu_s"] for r in whole])
    return f"{'geometric mean':18}{'':9}   {stock:8.2f} {ours:8.2f}   {'':8} {'':8} {ratio:8.2f}"


def geometric_mean(values: list[float]) -> float:
    """The mean for ratios."""
    return math.exp(statistics.fmean(math.log(value) for value in values))


if __name__ == "__main__":
    raise SystemExit(main())
