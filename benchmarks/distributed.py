"""Steps of training on two processes, DDP and FSDP2: eager, stock `torch.compile` and ptdebug in one run.

    PYTHONPATH=.types python benchmarks/distributed.py [--only NAME ...] [--backend gloo] [--json FILE] [--profile DIR]

Each way of each workload is a run of its own: 20 steps whose losses are compared with eager's, then the median, over 30
more, of a step's milliseconds as rank 0 sees it (all kernels finished), cold compile in CPU seconds of rank 0 (with its
children), and the share of the communication's time in which other kernels ran (NCCL, by torch's profiler). --profile
keeps Chrome traces, and what Python did on the host during ten steps. Processes on a CPU have one thread each.
"""
from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

WAYS = ("eager", "stock", "ptdebug")
STEPS = 20


class Block(nn.Module):
    """A pre-norm transformer block with causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (batch, length, width)."""
        batch, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class Language(nn.Module):
    """A GPT of some layers, which gives its loss."""

    def __init__(self, layers: int, width: int, words: int = 32000) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """tokens: int64 (batch, length); the mean cross entropy of the next token."""
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        scores = self.head(self.norm(x))[:, :-1]
        return nn.functional.cross_entropy(scores.flatten(0, 1).float(), tokens[:, 1:].flatten())


class Images(nn.Module):
    """A residual net of `stages` stages of two blocks, which gives its loss."""

    def __init__(self, width: int = 64, stages: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.blocks = nn.ModuleList()
        for stage in range(stages):
            into, out = width << max(0, stage - 1), width << stage
            for place in range(2):
                stride = 2 if stage and not place else 1
                self.blocks.append(nn.ModuleList([
                    nn.Conv2d(out if place else into, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out),
                    nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out),
                    nn.Conv2d(out if place else into, out, 1, stride, bias=False)]))
        self.head = nn.Linear(width << (stages - 1), 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """images: (batch, 3, height, width); a mean of squares of the ten scores."""
        x = torch.relu(self.stem(images))
        for first, norm, second, other, skip in self.blocks:
            x = torch.relu(other(second(torch.relu(norm(first(x))))) + skip(x))
        return self.head(x.mean((2, 3))).float().square().mean()


def small(device: str, rank: int) -> tuple[nn.Module, torch.Tensor]:
    """A transformer whose step is mostly the host's time."""
    return Language(6, 512, 8000), torch.randint(8000, (4, 128), generator=seeded(rank)).to(device)


def large(device: str, rank: int) -> tuple[nn.Module, torch.Tensor]:
    """A GPT-2 of 12 layers."""
    return Language(12, 768), torch.randint(32000, (8, 512), generator=seeded(rank)).to(device)


def images(device: str, rank: int) -> tuple[nn.Module, torch.Tensor]:
    """A residual net with batch norms, whose statistics each rank has for itself."""
    return Images(), torch.randn(64, 3, 64, 64, generator=seeded(rank)).to(device)


Model = Callable[[str, int], tuple[nn.Module, torch.Tensor]]
MODELS: dict[str, Model] = {"small": small, "large": large, "images": images}
WORKLOADS = [(model, kind) for kind in ("ddp", "fsdp2") for model in MODELS if (model, kind) != ("images", "fsdp2")]


def seeded(rank: int) -> torch.Generator:
    """The generator of a rank's data."""
    return torch.Generator().manual_seed(17 + rank)


def wrapped(model: nn.Module, kind: str, way: str) -> tuple[nn.Module, Callable[..., torch.Tensor]]:
    """The parallel module (the owner of the parameters), and what is called."""
    compiler: Callable[[Any], Any] = lambda module: module
    if way == "stock":
        compiler = torch.compile
    elif way == "ptdebug":
        import ptdebug

        compiler = ptdebug.compile
    if kind == "ddp":
        from torch.nn.parallel import DistributedDataParallel

        parallel: nn.Module = DistributedDataParallel(model)
        return parallel, compiler(parallel)
    from torch.distributed.fsdp import fully_shard

    for block in getattr(model, "blocks", ()):
        fully_shard(block)
    fully_shard(model)
    return model, compiler(model)


def cpu_seconds() -> float:
    """Of this process and its children that have ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def train(rank: int, model: str, kind: str, way: str, backend: str, folder: str) -> None:
    """One rank: its losses and times, written to FOLDER by rank 0."""
    device = f"cuda:{rank}" if backend == "nccl" else "cpu"
    if backend == "nccl":
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(1)
    dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=rank, world_size=2)
    torch.manual_seed(0)
    module, data = MODELS[model](device, rank)
    dtype = torch.bfloat16 if backend == "nccl" else torch.float32
    parallel, called = wrapped(module.to(device, dtype), kind, way)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05)
    data = data.to(dtype) if data.is_floating_point() else data

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = called(data)
        loss.backward()
        optimizer.step()
        return loss.detach()

    finish = torch.cuda.synchronize if backend == "nccl" else lambda: None
    found: dict[str, Any] = {"model": model, "kind": kind, "way": way, "backend": backend}
    start = cpu_seconds()
    losses = [step(), step()]
    finish()
    found["cold_cpu"] = round(cpu_seconds() - start, 2)
    losses += [step() for _ in range(STEPS - 2)]
    found["losses"] = [loss.item() for loss in losses]
    times = []
    for _ in range(30):
        finish()
        begin = time.perf_counter()
        step()
        finish()
        times.append(1e3 * (time.perf_counter() - begin))
    found["ms"], found["min_ms"] = round(statistics.median(times), 3), round(min(times), 3)
    if backend == "nccl":
        found |= profiled(step, f"{folder}/{model}-{kind}-{way}-{rank}")
    if rank == 0:
        Path(folder, "result").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def profiled(step: Callable[[], torch.Tensor], path: str) -> dict[str, float]:
    """Milliseconds of kernels and of communication in a step, and which part of the latter other kernels overlap."""
    from torch.profiler import ProfilerActivity, profile

    host = cProfile.Profile()
    host.enable()
    for _ in range(10):
        step()
    host.disable()
    with open(f"{path}.host.txt", "w") as out:
        pstats.Stats(host, stream=out).sort_stats("tottime").print_stats(40)
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as ran:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    ran.export_chrome_trace(f"{path}.json")
    events = [event for event in ran.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    spans = [(event.time_range.start, event.time_range.end, "nccl" in event.name.lower()) for event in events]
    sent = [span[:2] for span in spans if span[2]]
    computed = merged([span[:2] for span in spans if not span[2]])
    whole = sum(end - start for start, end in sent)
    covered = sum(max(0, min(end, other) - max(start, begin)) for start, end in sent for begin, other in computed)
    return {"kernel_ms": round(sum(end - start for start, end in computed) / 3e3, 3),
            "communication_ms": round(whole / 3e3, 3), "overlapped": round(covered / whole, 3) if whole else 0.0}


def merged(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The union of intervals, in order."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def in_processes(model: str, kind: str, way: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """One way of one workload, in processes of its own with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        kept = arguments.profile or folder
        caches = {name: f"{folder}/{name}" for name in (
            "PTDEBUG_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
        command = [sys.executable, __file__, "--one", model, kind, way, folder, "--backend", arguments.backend]
        ran = subprocess.run(command, env=os.environ | caches, capture_output=True, text=True)
        result = Path(folder, "result")
        if not result.exists():
            return {"model": model, "kind": kind, "way": way, "error": ran.stderr[-1500:]}
        for file in Path(folder).glob("*-0.*"):
            if kept != folder:
                file.rename(Path(kept, file.name))
        return json.loads(result.read_text())


def main() -> None:
    """Measure and print a line for each way of each workload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", metavar="NAME", help="such as small-ddp")
    default = "nccl" if torch.cuda.device_count() > 1 else "gloo"
    parser.add_argument("--backend", default=default, choices=("nccl", "gloo"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--profile", help="a folder for traces and profiles")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        model, kind, way, folder = arguments.one
        mp.spawn(train, args=(model, kind, way, arguments.backend, folder), nprocs=2)
        return
    results = []
    for model, kind in WORKLOADS:
        if arguments.only and f"{model}-{kind}" not in arguments.only:
            continue
        eager: list[float] = []
        for way in WAYS:
            found = in_processes(model, kind, way, arguments)
            losses = found.pop("losses", [])
            eager = eager or losses
            errors = [abs(one - other) / abs(other) for one, other in zip(losses, eager)]
            found["loss_error"] = max(errors, default=None)
            results.append(found)
            print(json.dumps(found), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
