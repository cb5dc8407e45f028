"""Exported packages beside AOTInductor's: time of a call, time to load, size of the file, and errors.

    PYTHONPATH=.types python benchmarks/exported.py [--only NAME ...] [--ways WAY ...] [--limit SECONDS] [--threads 1]
        [--device cuda] [--dtype float16]

Each package is made and runs in processes of their own. The one that runs it measures eager as well: medians of 30
calls, the time from before `load` to the first result (torch is imported already; `import_s` and `load_s` are parts of
it), and, for ptdebug, the same of a second process that compiles the model with a warm cache. One line of JSON for each
way, and of its steps with their seconds on stderr; a process that takes longer than the limit ends, and the last lines
that it wrote are told, where it was among them. On a GPU a call is timed by events of its stream, and `host_ms` is what
it takes until it returns, one call after another.
"""
from __future__ import annotations

import argparse
import faulthandler
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

WAYS = ("ptdebug", "aotinductor", "second-process")


class Block(nn.Module):
    """A pre-norm transformer block; with `cache`, of one position after those that it has seen."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("keys", torch.zeros(1, heads, length, width // heads))
        self.register_buffer("values", torch.zeros(1, heads, length, width // heads))

    def forward(self, x: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        self.keys.index_copy_(2, positions, key)
        self.values.index_copy_(2, positions, value)
        seen = nn.functional.scaled_dot_product_attention(query, self.keys, self.values, mask)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class GPT(nn.Module):
    """A small GPT with a cache: `prefill` of a prompt and `decode` of one token are calls of different lengths."""

    def __init__(self, width: int = 256, heads: int = 8, layers: int = 6, length: int = 256, words: int = 5000) -> None:
        super().__init__()
        self.length = length
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, length) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places(positions)
        mask = torch.arange(self.length, device=positions.device)[None] <= positions[:, None]
        for block in self.blocks:
            x = block(x, positions, mask)
        return self.head(self.norm(x[:, -1]))


def residual() -> nn.Module:
    """A ResNet-18-like net."""
    class Unit(nn.Module):
        def __init__(self, a: int, b: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(),
                                      nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b))
            self.skip = nn.Identity() if a == b and stride == 1 else nn.Sequential(
                nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.body(x) + self.skip(x))

    sizes = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2)]
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        *(Unit(*size) for size in sizes), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def bert() -> nn.Module:
    """Four encoder layers of BERT's form."""
    layer = nn.TransformerEncoderLayer(256, 8, 1024, 0.0, "gelu", batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)


def workloads() -> dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]]:
    """Name -> a function that makes (model, arguments)."""
    ids = lambda n: (torch.arange(n)[None] % 5000, torch.arange(n))
    return {
        "gpt-prefill": lambda: (GPT(), ids(64)),
        "gpt-decode": lambda: (GPT(), (torch.tensor([[7]]), torch.tensor([64]))),
        "resnet": lambda: (residual(), (torch.rand(1, 3, 224, 224),)),
        "bert": lambda: (bert(), (torch.rand(2, 128, 256),)),
    }


@dataclass(frozen=True)
class Place:
    """Where the models are, and in which dtype."""

    device: str
    dtype: str

    def made(self, name: str) -> tuple[nn.Module, tuple[Any, ...]]:
        """The model of a workload, with the same weights each time, and its arguments."""
        torch.manual_seed(0)
        model, args = workloads()[name]()
        dtype = getattr(torch, self.dtype)
        moved = [x.to(self.device, dtype if x.is_floating_point() else None) for x in args]
        return model.eval().to(self.device, dtype), tuple(moved)

    def finish(self) -> None:
        """Wait for what was launched."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def milliseconds(self, call: Callable[[], Any]) -> float:
        """The median time of 30 calls, after 10."""
        return statistics.median([self._one(call) for _ in range(40)][10:])

    def _one(self, call: Callable[[], Any]) -> float:
        if self.device == "cuda":
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            call()
            end.record()
            end.synchronize()
            return start.elapsed_time(end)
        begun = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - begun)

    def host_milliseconds(self, call: Callable[[], Any]) -> float | None:
        """The median time until one of 30 calls returns, where a GPU may be behind."""
        if self.device != "cuda":
            return None
        times = []
        for _ in range(30):
            begun = time.perf_counter()
            call()
            times.append(1e3 * (time.perf_counter() - begun))
        self.finish()
        return round(statistics.median(times), 3)


def export(name: str, way: str, path: Path, place: Place) -> float:
    """Make the package; seconds."""
    model, args = place.made(name)
    start = time.perf_counter()

    def step(told: str) -> None:
        print(f"{name} {way}: {told} at {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)

    step("the model is there")
    if way == "ptdebug":
        import ptdebug

        made = ptdebug.export(model, args)
        step("exported")
        made.save(path)
    else:
        with torch.no_grad():
            program = torch.export.export(model, args)
            step("torch.export is done")
            torch._inductor.aoti_compile_and_package(program, package_path=str(path))
    step("saved")
    return time.perf_counter() - start


def loaded(way: str, path: Path, model: nn.Module) -> Callable[..., Any]:
    """What is measured."""
    if way == "aotinductor":
        return torch._inductor.aoti_load_package(str(path))
    import ptdebug

    return ptdebug.load(path) if way == "ptdebug" else ptdebug.compile(model)


def measure(name: str, way: str, path: Path, place: Place) -> dict[str, Any]:
    """Load and call, in this process."""
    model, args = place.made(name)
    with torch.no_grad():
        wanted = model(*args)
        place.finish()
        start = time.perf_counter()
        if way != "aotinductor":
            import ptdebug

            getattr(ptdebug, "load" if way == "ptdebug" else "compile")  # which is imported when it is named
        imported = time.perf_counter() - start
        call = loaded(way, path, model)
        ready = time.perf_counter() - start - imported
        result = call(*args)
        place.finish()
        seconds = time.perf_counter() - start
        ms, host = place.milliseconds(lambda: call(*args)), place.host_milliseconds(lambda: call(*args))
        eager = place.made(name)[0]
        own = place.milliseconds(lambda: eager(*args))
    return {"workload": name, "way": way, "ms": round(ms, 3), "eager_ms": round(own, 3), "host_ms": host,
            "first_result_s": round(seconds, 3), "import_s": round(imported, 3), "load_s": round(ready, 3),
            "bytes": path.stat().st_size if path.exists() else None,
            "error": float((result - wanted).abs().max()), **vars(place)}


def main() -> None:
    """Export, then measure each package in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(workloads()))
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=WAYS)
    parser.add_argument("--limit", type=float, help="seconds that one process may take")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), default="float32")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--export", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    place = Place(options.device, options.dtype)
    if given := options.measure or options.export:
        if options.limit:
            faulthandler.dump_traceback_later(0.75 * options.limit)  # where it is so late
        name, way, path = given
        print(json.dumps((measure if options.measure else export)(name, way, Path(path), place)))
        return
    settings = ["--threads", str(options.threads), "--device", place.device, "--dtype", place.dtype]
    settings += ["--limit", str(options.limit)] if options.limit else []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            for way in options.ways:
                try:
                    told = in_processes(name, way, Path(folder), settings, options.limit)
                except Failed as error:  # AOTInductor's may need what is not there
                    told = {"workload": name, "way": way, "failed": str(error)}
                print(json.dumps(told), flush=True)


class Failed(Exception):
    """A process failed, or took too long; the message ends with what it wrote last."""


def in_processes(name: str, way: str, folder: Path, settings: Sequence[str], limit: float | None) -> dict[str, Any]:
    """The export in one process, and what another one measures. Raises Failed."""
    path = folder / f"{name}-{way}.{'pt2' if way == 'aotinductor' else 'ptd'}"
    caches = {"PTDEBUG_CACHE_DIR": str(folder / f"cache-{way}"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    seconds = None

    def run(task: str) -> Any:
        command = [sys.executable, __file__, *settings, task, name, way, str(path)]
        return in_a_process(command, os.environ | caches, limit)

    if way == "second-process":
        run("--measure")
    else:
        seconds = round(run("--export"), 2)
    return {**run("--measure"), "export_s": seconds}


def in_a_process(command: Sequence[str], environment: dict[str, str], limit: float | None) -> Any:
    """What a process prints last, as JSON; it writes to this one's stderr too. Raises Failed."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True,
                                   start_new_session=True)
        try:
            output, _ = process.communicate(timeout=limit)
            why = "" if process.returncode == 0 else f"it ended with {process.returncode}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with the compilers that it has begun
            output, why = process.communicate()[0], f"it took longer than {limit:g} s"
        errors.seek(0)
        written = errors.read()
    sys.stderr.write(written)
    if why:
        raise Failed(f"{why}\n{written[-2000:]}")
    return json.loads(output.splitlines()[-1])


if __name__ == "__main__":
    main()
