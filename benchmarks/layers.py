"""How compile time and memory grow with the graph: 1, 10 and 100 transformer layers, cold and from the cache on disk.

    python benchmarks/layers.py [--layers 1,10,100] [--train] [--compilers ptdebug,torch] [--limit SECONDS]

Each measurement is a process of its own, the cold one with empty caches, but for what stock builds once for a machine
(the probes of its vector instructions, a header), which is there before. "CPU s" is what the process and its children
took from the first call on, and "wall" the same on the clock; "import" is what the compiler's own imports took before,
torch's not counted. "g++" is the part of the CPU seconds that processes beside it took. "MiB" is the peak of the
process over what it held before the first call, "child" the peak of its largest child, which counts this process's own
until the child's program starts. Of ours the CPU seconds by stage follow, which for "kernels" is waiting only. The last
lines say how the CPU seconds grew for each layer.
"""
from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

STAGES = ("capture", "cache", "joint", "passes", "lowering", "scheduling", "codegen", "kernels")


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", default="1,10,100")
    parser.add_argument("--compilers", default="ptdebug,torch")
    parser.add_argument("--train", action="store_true", help="forward and backward")
    parser.add_argument("--limit", type=float, default=300, help="seconds after which a process is left out")
    parser.add_argument("--machine", help="a folder that keeps what stock builds once for a machine")
    parser.add_argument("--one", nargs=2, metavar=("COMPILER", "LAYERS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one[0], int(arguments.one[1]), arguments.train)))
        return
    columns = [f"{name:>8}" for name in ("CPU s", "wall", "import", "g++", "MiB", "child")]
    print(f"{'':20}{''.join(columns)}  " + "".join(f"{stage:>11}" for stage in STAGES))
    rows: dict[str, dict[int, float]] = {}
    with tempfile.TemporaryDirectory() as new:
        machine = arguments.machine or new
        if "torch" in arguments.compilers.split(",") and not os.path.exists(f"{machine}/torch"):
            prepare(machine)
        for layers in map(int, arguments.layers.split(",")):
            for compiler in arguments.compilers.split(","):
                for start, found in of_model(compiler, layers, arguments.train, machine, arguments.limit):
                    print(f"{f'{compiler} {layers} {start}':20}{shown(found)}", flush=True)
                    if found is not None:
                        rows.setdefault(f"{compiler} {start}", {})[layers] = found["cpu"]
    for name, seconds in rows.items():
        print(f"{name:20}{growth(seconds)}")


def shown(found: dict[str, Any] | None) -> str:
    """The columns of one measurement."""
    if found is None:
        return "  left out: over the limit"
    times = "".join(f"{found[name]:8.2f}" for name in ("cpu", "wall", "import", "child_cpu"))
    stages = "".join(f"{found['stages'].get(stage, 0):11.3f}" for stage in STAGES) if found["stages"] else ""
    return f"{times}{found['mib']:8.0f}{found['child_mib']:8.0f}  {stages}"


def growth(seconds: dict[int, float]) -> str:
    """CPU seconds for each further layer, between each two sizes: where these stay the same, the cost is linear."""
    slopes = [
        f"{less} to {more}: {(seconds[more] - seconds[less]) / (more - less):.3f}"
        for less, more in pairwise(sorted(seconds))
    ]
    return "CPU s for each further layer, " + ", ".join(slopes) if slopes else ""


def prepare(machine: str) -> None:
    """Have stock build in the folder `machine` what it builds once for a machine."""
    program = "import torch; torch.compile(lambda x: x.sin() + 1)(torch.randn(100))"
    environment = {**os.environ, "TMPDIR": machine, "TORCHINDUCTOR_CACHE_DIR": f"{machine}/torch"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


def of_model(compiler: str, layers: int, train: bool, machine: str, limit: float) -> Iterator[
        tuple[str, dict[str, Any] | None]]:
    """The cold and the warm start of a model, each None where it took more than `limit` seconds."""
    with tempfile.TemporaryDirectory() as caches:
        if compiler == "torch":
            shutil.copytree(f"{machine}/torch", f"{caches}/torch")
        for start in ("cold", "warm"):
            try:
                found = in_a_process(compiler, layers, train, caches, machine, limit)
            except subprocess.TimeoutExpired:
                yield start, None
                return
            yield start, found


def in_a_process(compiler: str, layers: int, train: bool, caches: str, machine: str, limit: float) -> dict[str, Any]:
    """One measurement in a process of its own, with its caches in the folder `caches`."""
    environment = {
        **os.environ, "PTDEBUG_CACHE_DIR": f"{caches}/ptdebug", "TORCHINDUCTOR_CACHE_DIR": f"{caches}/torch",
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "1", "TORCHINDUCTOR_AUTOGRAD_CACHE": "1", "TMPDIR": machine,
    }
    command = [sys.executable, __file__, "--one", compiler, str(layers), *(["--train"] if train else [])]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=limit)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(compiler: str, layers: int, train: bool) -> dict[str, Any]:
    """CPU seconds and peak MiB of the first call."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    layer = torch.nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
    model = torch.nn.Sequential(*[type(layer)(32, 2, 64, 0.0, batch_first=True) for _ in range(layers)])
    x = torch.randn(2, 8, 32)

    def step(run: Any) -> torch.Tensor:
        if not train:
            with torch.no_grad():
                return run(x)
        model.zero_grad()
        out = run(x)
        out.square().mean().backward()
        return out

    expected = step(model)
    start = time.process_time()
    compiled, seconds = compiled_by(compiler, model)
    imports = time.process_time() - start
    before, child, clock, start = peak(), children(), time.perf_counter(), time.process_time()
    result = step(compiled)
    spent, wall, held = time.process_time() - start, time.perf_counter() - clock, peak()
    torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-3)
    found: dict[str, float] = {}
    for one in seconds:
        for stage, value in one.items():
            found[stage] = found.get(stage, 0.0) + value
    child = children() - child
    return {
        "cpu": spent + child, "wall": wall, "import": imports, "child_cpu": child, "mib": held - before,
        "child_mib": peak(resource.RUSAGE_CHILDREN), "stages": found,
    }


def compiled_by(compiler: str, model: Any) -> tuple[Any, list[dict[str, float]]]:
    """The compiled model, and where ours leaves the CPU seconds of its stages. All is imported."""
    import torch

    if compiler == "torch":
        import torch._dynamo
        import torch._inductor.compile_fx

        return torch.compile(model), []
    import ptdebug
    import ptdebug.engine.compile
    from ptdebug.artifacts import context
    from ptdebug.cli import session
    from ptdebug.tracer.frames import convert

    context.time = convert.time = SimpleNamespace(perf_counter=time.process_time)  # type: ignore[assignment]
    seconds: list[dict[str, float]] = []
    new_context = session.Session.context

    def noting(self: session.Session, compile_id: context.CompileId) -> context.CompileContext:
        made = new_context(self, compile_id)
        seconds.append(made.seconds)
        return made

    session.Session.context = noting  # type: ignore[method-assign]
    return ptdebug.compile(model), seconds


def peak(who: int = resource.RUSAGE_SELF) -> float:
    """The most memory that this process, or its largest child, held, in MiB."""
    return resource.getrusage(who).ru_maxrss / 1024


def children() -> float:
    """CPU seconds of processes that this one started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
