"""How compile time and memory grow with the graph: 1, 10 and 100 transformer layers, cold and from the cache on disk.

    python benchmarks/layers.py [--layers 1,10,100] [--train] [--compilers ptdebug,torch]

Each measurement is a process of its own, the cold one with empty caches. CPU seconds: of the process from the first
call on, without its imports; of the C++ compiler beside it; of ours by stage, which for "kernels" is waiting only. Peak
MiB are those of the process over what it held before the first call.
"""
from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from types import SimpleNamespace
from typing import Any

STAGES = ("capture", "cache", "joint", "passes", "lowering", "scheduling", "codegen", "kernels")


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", default="1,10,100")
    parser.add_argument("--compilers", default="ptdebug,torch")
    parser.add_argument("--train", action="store_true", help="forward and backward")
    parser.add_argument("--one", nargs=2, metavar=("COMPILER", "LAYERS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one[0], int(arguments.one[1]), arguments.train)))
        return
    print(f"{'':22}{'CPU s':>8}{'of g++':>8}{'MiB':>7}  " + "".join(f"{stage:>11}" for stage in STAGES))
    for compiler in arguments.compilers.split(","):
        for layers in arguments.layers.split(","):
            with tempfile.TemporaryDirectory() as caches:
                for start in ("cold", "warm"):
                    found = in_a_process(compiler, layers, arguments.train, caches)
                    stages = "".join(f"{found['stages'].get(s, 0):11.3f}" for s in STAGES) if found["stages"] else ""
                    name = f"{compiler} {layers} {start}"
                    print(f"{name:22}{found['cpu']:8.2f}{found['child']:8.2f}{found['mib']:7.0f}  {stages}", flush=True)


def in_a_process(compiler: str, layers: str, train: bool, caches: str) -> dict[str, Any]:
    """One measurement in a process of its own, with its caches in the folder `caches`."""
    environment = {
        **os.environ, "PTDEBUG_CACHE_DIR": f"{caches}/ptdebug", "TORCHINDUCTOR_CACHE_DIR": f"{caches}/torch",
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "1", "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
    }
    command = [sys.executable, __file__, "--one", compiler, layers, *(["--train"] if train else [])]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
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
    compiled, seconds = compiled_by(compiler, model)
    before, start, child = peak(), time.process_time(), children()
    result = step(compiled)
    spent = time.process_time() - start
    torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-3)
    found: dict[str, float] = {}
    for one in seconds:
        for stage, value in one.items():
            found[stage] = found.get(stage, 0.0) + value
    child = children() - child
    return {"cpu": spent + child, "child": child, "mib": peak() - before, "stages": found}


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
    from ptdebug.tracer import convert

    context.time = convert.time = SimpleNamespace(perf_counter=time.process_time)  # type: ignore[assignment]
    seconds: list[dict[str, float]] = []
    new_context = session.Session.context

    def noting(self: session.Session, compile_id: context.CompileId) -> context.CompileContext:
        made = new_context(self, compile_id)
        seconds.append(made.seconds)
        return made

    session.Session.context = noting  # type: ignore[method-assign]
    return ptdebug.compile(model), seconds


def peak() -> float:
    """The most memory that this process held, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def children() -> float:
    """CPU seconds of processes that this one started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
