"""Exported packages beside AOTInductor's: time of a call, time to load, size of the file, and errors.

    PYTHONPATH=.types python benchmarks/exported.py [--only NAME ...] [--threads 1]

Each package is made here and runs in a process of its own, which measures eager as well: medians of 30 calls, the time
from before `load` to the first result (torch is imported already), and, for ptdebug, the same of a second process that
compiles the model with a warm cache. One line of JSON for each way.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
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
        mask = torch.arange(self.length)[None] <= positions[:, None]
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


def made(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """The model of a workload, with the same weights each time."""
    torch.manual_seed(0)
    model, args = workloads()[name]()
    return model.eval(), args


def export(name: str, way: str, path: Path) -> float:
    """Make the package; seconds."""
    model, args = made(name)
    start = time.perf_counter()
    if way == "ptdebug":
        import ptdebug

        ptdebug.export(model, args).save(path)
    else:
        torch._inductor.aoti_compile_and_package(torch.export.export(model, args), package_path=str(path))
    return time.perf_counter() - start


def measure(name: str, way: str, path: Path) -> dict[str, Any]:
    """Load and call, in this process."""
    model, args = made(name)
    with torch.no_grad():
        wanted = model(*args)
        if way != "second-process":
            del model
        start = time.perf_counter()
        if way == "ptdebug":
            import ptdebug

            call = ptdebug.load(path)
        elif way == "aotinductor":
            call = torch._inductor.aoti_load_package(str(path))
        else:
            import ptdebug

            call = ptdebug.compile(model)
        result = call(*args)
        loaded = time.perf_counter() - start
        times = []
        for _ in range(40):
            start = time.perf_counter()
            call(*args)
            times.append(time.perf_counter() - start)
        eager, own = made(name)[0], []
        for _ in range(30):
            start = time.perf_counter()
            eager(*args)
            own.append(time.perf_counter() - start)
    return {"workload": name, "way": way, "ms": round(1e3 * statistics.median(times[10:]), 3),
            "eager_ms": round(1e3 * statistics.median(own), 3), "first_result_s": round(loaded, 3),
            "bytes": path.stat().st_size if path.exists() else None,
            "error": float((result - wanted).abs().max())}


def main() -> None:
    """Export, then measure each package in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(workloads()))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.measure:
        name, way, path = options.measure
        print(json.dumps(measure(name, way, Path(path))))
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            for way in WAYS:
                path = Path(folder) / f"{name}-{way}.{'pt2' if way == 'aotinductor' else 'ptd'}"
                command = [sys.executable, __file__, "--threads", str(options.threads), "--measure", name, way]
                command.append(str(path))
                environment = os.environ | {"PTDEBUG_CACHE_DIR": str(Path(folder) / f"cache-{way}")}
                if way == "second-process":
                    subprocess.run(command, env=environment, check=True, capture_output=True)
                    seconds = None
                else:
                    seconds = round(export(name, way, path), 2)
                done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
                print(json.dumps(json.loads(done.stdout.splitlines()[-1]) | {"export_s": seconds}), flush=True)


if __name__ == "__main__":
    main()
