"""Training steps on a CUDA GPU: eager, stock `torch.compile` and ptdebug, side by side.

    PYTHONPATH=.types python benchmarks/gpu_training.py [--only NAME ...] [--no-stock] [--json FILE]

Prints for each workload: milliseconds of forward and backward (median and minimum of 30, by CUDA events), cold compile
seconds (wall, and of the CPU in this process and those that it started), peak memory of a step in MB (besides
parameters and inputs), and the largest distance of a gradient from float64's, in units of eager's own.
"""
from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

REPEATS = 30
Loss = Callable[..., torch.Tensor]


class Block(nn.Module):
    """A transformer block with causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Language(nn.Module):
    """A small GPT with its loss."""

    def __init__(self, layers: int = 12, width: int = 768, words: int = 32000) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*[Block(width, width // 64) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.norm(self.blocks(self.embed(tokens))))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


class Residual(nn.Module):
    """Two convolutions with batch norm around a sum."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.one, self.two = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norm_one, self.norm_two = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.norm_two(self.two(F.relu(self.norm_one(self.one(x))))))


class Images(nn.Module):
    """A residual convolution net with its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 64, 7, stride=2, padding=3)
        self.body = nn.Sequential(*[Residual(64) for _ in range(4)])
        self.head = nn.Linear(64, 1000)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        features = self.body(F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1))
        return F.cross_entropy(self.head(features.mean((2, 3))).float(), labels)


class Norms(nn.Module):
    """Layer norm and GELU: bound by memory."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[layer for _ in range(4) for layer in (nn.LayerNorm(4096), nn.GELU())])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).float().square().mean()


@dataclass(frozen=True)
class Workload:
    """A module on the GPU whose result is a loss, and its inputs."""

    module: nn.Module
    inputs: tuple[torch.Tensor, ...]


def workloads() -> Iterator[tuple[str, Callable[[], Workload]]]:
    """(name, how to make it); bfloat16 throughout, like the figures that are usually quoted."""
    def on_gpu(module: nn.Module, *inputs: torch.Tensor) -> Workload:
        moved = [t.cuda() if not t.is_floating_point() else t.to("cuda", torch.bfloat16) for t in inputs]
        return Workload(module.to("cuda", torch.bfloat16), tuple(moved))

    yield "norms", lambda: on_gpu(Norms(), torch.randn(8192, 4096))
    yield "language", lambda: on_gpu(Language(), torch.randint(0, 32000, (8, 512)))
    yield "images", lambda: on_gpu(Images(), torch.randn(64, 3, 224, 224), torch.randint(0, 1000, (64,)))
    try:
        from transformers import BertConfig, BertForMaskedLM
    except ImportError:
        print("transformers is not installed: bert is left out")
        return

    class Bert(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = BertForMaskedLM(BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))

        def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            loss: torch.Tensor = self.model(input_ids=tokens, attention_mask=mask, labels=tokens).loss
            return loss

    tokens = torch.randint(0, 30000, (16, 512))
    yield "bert", lambda: on_gpu(Bert(), tokens, torch.ones_like(tokens))


def step(loss: Loss, module: nn.Module, inputs: Sequence[torch.Tensor]) -> None:
    """Forward and backward; gradients are made anew."""
    for parameter in module.parameters():
        parameter.grad = None
    loss(*inputs).backward()


def gradients(loss: Loss, workload: Workload) -> list[torch.Tensor]:
    """The gradients after one step."""
    step(loss, workload.module, workload.inputs)
    return [p.grad.double() for p in workload.module.parameters() if p.grad is not None]


def cpu_seconds() -> float:
    """Of this process and all that descend from it, those that have ended included (Linux)."""
    parents, used = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended
        process = int(folder.name)
        parents[process], used[process] = int(fields[1]), sum(map(int, fields[11:15]))
    mine = {os.getpid()}
    while more := {p for p, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(used[p] for p in mine) / os.sysconf("SC_CLK_TCK")


def measured(loss: Loss, workload: Workload) -> dict[str, float]:
    """Cold seconds (the first step), milliseconds of a step, peak MB of a step."""
    used, start = cpu_seconds(), time.perf_counter()
    step(loss, workload.module, workload.inputs)
    torch.cuda.synchronize()
    cold = time.perf_counter() - start
    used = cpu_seconds() - used
    for _ in range(5):
        step(loss, workload.module, workload.inputs)
    torch.cuda.synchronize()
    for parameter in workload.module.parameters():
        parameter.grad = None
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(REPEATS)]
    for begin, end in pairs:
        begin.record()
        step(loss, workload.module, workload.inputs)
        end.record()
    torch.cuda.synchronize()
    times = [b.elapsed_time(e) for b, e in pairs]
    return {"cold_s": cold, "cold_cpu_s": used, "ms": statistics.median(times), "min_ms": min(times),
            "peak_mb": (torch.cuda.max_memory_allocated() - before) / 2**20}


def distance(actual: Sequence[torch.Tensor], eager: Sequence[torch.Tensor], wide: Sequence[torch.Tensor]) -> float:
    """The largest over all gradients of (ours - float64) / (eager - float64), norms of whole gradients.

    A gradient that is nothing but rounding noise (a key's bias) is measured against the largest gradient.
    """
    floor = 1e-4 * max(float(w.norm()) for w in wide)
    triples = zip(actual, eager, wide, strict=True)
    return max(float((a - w).norm()) / max(float((e - w).norm()), floor) for a, e, w in triples)


def report(name: str, workload: Workload, compilers: dict[str, Callable[[nn.Module], Loss]]) -> list[dict[str, Any]]:
    """Measure one workload with each compiler and print its rows."""
    wide = Workload(
        copy.deepcopy(workload.module).double(),
        tuple(t.double() if t.is_floating_point() else t for t in workload.inputs),
    )
    reference = gradients(wide.module, wide)
    eager = gradients(workload.module, workload)
    rows = []
    for compiler, compile_with in compilers.items():
        torch.cuda.empty_cache()
        try:
            loss = compile_with(workload.module)
            row = {"workload": name, "compiler": compiler, **measured(loss, workload)}
            row["distance"] = distance(gradients(loss, workload), eager, reference)
        except Exception:  # one compiler's failure is a row of the report
            traceback.print_exc()
            row = {"workload": name, "compiler": compiler, "failed": True}
        rows.append(row)
        figures = "  ".join(f"{k} {v:9.3f}" for k, v in row.items() if isinstance(v, float))
        print(f"{name:10}{compiler:8}{figures or 'failed'}", flush=True)
    return rows


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--no-stock", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    import ptdebug

    compilers: dict[str, Callable[[nn.Module], Loss]] = {"eager": lambda module: module, "ptdebug": ptdebug.compile}
    if not arguments.no_stock:
        compilers["stock"] = lambda module: torch.compile(module)
    rows = []
    for name, make in workloads():
        if not arguments.only or name in arguments.only:
            torch.manual_seed(0)
            rows += report(name, make(), compilers)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
