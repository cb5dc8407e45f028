"""A step of an optimizer over the parameters of a BERT: eager, a kernel for each parameter, one for all, and stock.

    python benchmarks/optimizers.py [--device cuda] [--width N] [--ways apart,foreach,stock] [NAME ...]

For each optimizer the fastest of some steps in milliseconds, in turn with eager's; the processor seconds of a cold
first step (caches empty, all children counted, but those that still run) and how long it took; and how many kernels it
has. "apart" keeps ptdebug from fusing horizontally (`"horizontal-fusion:*" = "separate"`). A line of JSON each, as they
come.
"""
from __future__ import annotations

import argparse
import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

OPTIMIZERS = {
    "sgd": ("SGD", {"lr": 0.01, "momentum": 0.9}), "adam": ("Adam", {"lr": 0.001}),
    "adamw": ("AdamW", {"lr": 0.001, "weight_decay": 0.01}),
}
STEPS, WARM = 15, 3
LAYERS = 12


def shapes(width: int) -> Iterator[tuple[int, ...]]:
    """The sizes of the 199 parameters of BERT base (width 768)."""
    yield from ((30522 * width // 768, width), (512, width), (2, width), (width,), (width,))
    for _ in range(LAYERS):
        for _ in range(4):
            yield from ((width, width), (width,))
        yield from ((width,), (width,), (4 * width, width), (4 * width,), (width, 4 * width), (width,))
        yield from ((width,), (width,))
    yield from ((width, width), (width,))


def make(name: str, foreach: bool, device: str, width: int) -> Any:
    """An optimizer with gradients set."""
    import torch

    params = [torch.nn.Parameter(torch.randn(s, device=device)) for s in shapes(width)]
    for p in params:
        p.grad = torch.randn_like(p)
    kind, options = OPTIMIZERS[name]
    return getattr(torch.optim, kind)(params, **options, foreach=foreach)


def milliseconds(step: Callable[[], object], device: str) -> float:
    """One step, until the GPU is done."""
    import torch

    start = time.perf_counter()
    step()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1000


def compiled(way: str, step: Callable[[], object]) -> tuple[Callable[[], object], Callable[[], int]]:
    """The step compiled (when it is called) in one of the ways, and what counts its kernels."""
    import ptdebug
    import torch
    from ptdebug.cli import api, session
    from ptdebug.engine import compile as engine
    from ptdebug.engine.ir.ir import Group

    api.reset()  # of both compilers
    if way == "stock":
        from torch._inductor import metrics

        metrics.reset()
        return torch.compile(step), lambda: metrics.generated_kernel_count
    counted: list[int] = []
    wrapped = engine.scheduler.schedule

    def schedule(*args: Any) -> Any:
        plan = wrapped(*args)
        counted.append(sum(isinstance(item, Group) for item in plan.items))
        return plan

    engine.scheduler.schedule = schedule
    current = session.current()
    overrides = {"horizontal-fusion:*": "separate"} if way == "apart" else {}
    current.settings = dataclasses.replace(current.settings, overrides=overrides)

    def count() -> int:
        engine.scheduler.schedule = wrapped
        return sum(counted)

    return ptdebug.compile(step), count


def measure(name: str, foreach: bool, way: str, device: str, width: int) -> dict[str, Any]:
    """One way to run one optimizer, beside eager."""
    import torch

    optimizer = make(name, foreach, device, width)
    for _ in range(WARM):
        milliseconds(optimizer.step, device)
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {f"{n}_CACHE_DIR": f"{folder}/{n}" for n in ("PTDEBUG", "TORCHINDUCTOR", "TRITON")}
        step, count = compiled(way, optimizer.step)
        start, before = time.perf_counter(), sum(os.times()[:4])
        milliseconds(step, device)
        cold, used = time.perf_counter() - start, sum(os.times()[:4]) - before
        kernels = count()
        for _ in range(WARM):
            milliseconds(step, device)
        pairs = [(milliseconds(optimizer.step, device), milliseconds(step, device)) for _ in range(STEPS)]
    eager, ours = (min(column) for column in zip(*pairs))
    return {
        "optimizer": name, "foreach": foreach, "way": way, "device": device, "width": width,
        "threads": torch.get_num_threads(), "eager_ms": round(eager, 3), "ms": round(ours, 3),
        "speedup": round(eager / ours, 2), "kernels": kernels, "cold_s": round(cold, 2), "cold_cpu_s": round(used, 2),
    }


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(OPTIMIZERS), metavar="NAME")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--width", type=int, default=0, help="768 on a GPU, 128 on the CPU, unless given")
    parser.add_argument("--ways", default="apart,foreach,stock")
    parser.add_argument("--foreach", choices=("both", "yes", "no"), default="both")
    parser.add_argument("--limit", type=float, default=1e9, help="begin nothing after so many seconds")
    arguments = parser.parse_args()
    start = time.perf_counter()
    width = arguments.width or (768 if arguments.device == "cuda" else 128)
    for foreach in {"both": (True, False), "yes": (True,), "no": (False,)}[arguments.foreach]:
        for way in arguments.ways.split(","):
            for name in arguments.names:
                if time.perf_counter() - start < arguments.limit:
                    print(json.dumps(measure(name, foreach, way, arguments.device, width)), flush=True)


if __name__ == "__main__":
    main()
