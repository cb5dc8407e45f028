"""How long it takes to find and to shrink one wrong relu in a graph of 67 operators, here and with stock's own tools.

    python benchmarks/wrong_relu.py [--stock] [--times N] [--keep]

Ours: `ptdebug run`, then `bisect` and `minify` of the recording (first with nothing remembered, then `--times` more).
Stock: its minifier (TORCHDYNAMO_REPRO_AFTER=aot, level 4: the run that notices, and the launcher that it writes), and
`torch._inductor.compiler_bisector` around a script that judges itself. The same operator is wrong for both: relu(x) is
x + 1, planted in ours by `--import`, in stock's by `inject_relu_bug_TESTING_ONLY`. Each command is a process of its
own, with new caches; wall seconds, and CPU seconds with all children. Stock takes some 15 minutes.
"""
from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

MODEL = """\
import torch
import torch.nn.functional as F


def program(x, *weights):
    for i in range(11):
        y = x @ weights[i % 4]
        y = torch.relu(y) if i == 6 else F.gelu(y)
        y = torch.tanh(y + x)
        x = y + torch.sin(x)
    return x.sum()


def inputs():
    torch.manual_seed(0)
    return torch.randn(16, 32), *(torch.randn(32, 32) * 0.2 for _ in range(4))
"""
RUN = """\
import torch
from model import inputs, program

print(torch.compile(program)(*inputs()).item())
"""
JUDGED = """\
import torch
from model import inputs, program

torch.testing.assert_close(torch.compile(program)(*inputs()), program(*inputs()))
"""
STOCK = "import torch._inductor.config as c\n\nc.cpp.inject_relu_bug_TESTING_ONLY = 'accuracy'\n"
OURS = """\
import os


def plant():
    import torch
    from ptdebug.engine.lowering import LOWERINGS
    from dataclasses import replace

    relu, add = torch.ops.aten.relu.default, torch.ops.aten.add.Tensor
    lowered = LOWERINGS[add].function
    LOWERINGS[relu] = replace(LOWERINGS[relu], function=lambda lower, node, x: lowered(lower, node, x, 1.0))
"""


@dataclass(frozen=True)
class Took:
    """A command's time, and what it said last."""

    wall: float
    cpu: float
    code: int
    output: str


def run(folder: Path, *words: str, **environment: str) -> Took:
    """Run a command to its end."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(words, cwd=folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(wall, cpu, done.returncode, done.stdout)


def report(name: str, took: Took, words: str) -> None:
    """One line, and the matching line of the output."""
    lines = took.output.strip().splitlines()
    found = [line.strip() for line in lines if words in line] or lines[-1:]
    print(f"{name:<34} {took.wall:7.1f} s wall {took.cpu:7.1f} s CPU   {' '.join(found[-1:])[:90]}", flush=True)


def ours(folder: Path, times: int) -> None:
    """`ptdebug run`, `bisect` and `minify`."""
    (folder / "sitecustomize.py").write_text("")  # not another's
    (folder / "planted.py").write_text(OURS)
    ptdebug = [sys.executable, "-m", "ptdebug"]
    where = {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
             "PTDEBUG_HOME": str(folder / "recordings")}
    cache = {"PTDEBUG_CACHE_DIR": str(folder / "cache")}
    report("ptdebug run", run(folder, *ptdebug, "run", "--name", "r", "run.py", **where, **cache), "graph")
    for turn in range(1 + times):
        cache = {"PTDEBUG_CACHE_DIR": str(folder / f"cache{turn}")}
        found = run(folder, *ptdebug, "bisect", "r", "--import", "planted:plant", **where, **cache)
        report("ptdebug bisect", found, " = ")
        found = run(folder, *ptdebug, "minify", "r", "--import", "planted:plant", "-o", "repro.py", **where, **cache)
        report("ptdebug minify", found, "operators")


def stock(folder: Path) -> None:
    """The minifier, and the bisector."""
    (folder / "sitecustomize.py").write_text("")
    (folder / "run_stock.py").write_text(STOCK + RUN)
    (folder / "judged.py").write_text(STOCK + JUDGED)
    python = sys.executable
    where = {"PYTHONPATH": str(folder), "TORCHDYNAMO_REPRO_AFTER": "aot", "TORCHDYNAMO_REPRO_LEVEL": "4",
             "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "TORCH_COMPILE_DEBUG_DIR": str(folder)}
    noticed = run(folder, python, "run_stock.py", **where)
    report("stock minifier: run", noticed, "Error")
    launchers = sorted(folder.rglob("minifier_launcher.py"))
    if launchers:
        found = run(folder, python, str(launchers[0]), **where)
        report("stock minifier: launcher", found, "nodes")
    bisected = run(folder, python, "-m", "torch._inductor.compiler_bisector", "run", python, "judged.py",
                   PYTHONPATH=str(folder), TORCHINDUCTOR_CACHE_DIR=str(folder / "bisector"))
    report("stock bisector", bisected, "BisectionResult")


def main() -> None:
    """A line for each command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stock", action="store_true", help="also stock's minifier and bisector")
    parser.add_argument("--times", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="leave the folder")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="wrong-relu-"))
    (folder / "model.py").write_text(MODEL)
    (folder / "run.py").write_text(RUN)
    ours(folder, arguments.times)
    if arguments.stock:
        stock(folder)
    if arguments.keep:
        print(folder)


if __name__ == "__main__":
    main()
