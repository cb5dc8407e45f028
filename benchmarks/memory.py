"""Memory and time of a training step: eager, saving everything, the partitioner's choice, and under memory budgets.

    python benchmarks/memory.py [--stock] [--threads N] [MODEL ...]

For each the highest number of bytes in use during the step (beside parameters and inputs), as torch's profiler counts
the allocations, beside what the partitioner predicted; what is held for the backward; and the fastest of some steps.
`--stock` measures stock torch.compile too.
"""
from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import ptdebug
import torch
from ptdebug.artifacts.records import Partition
from torch import nn
from torch.nn import functional as F


class MLP(nn.Module):
    """Blocks of linear, GELU and layer norm."""

    def __init__(self, width: int = 512, depth: int = 4) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(depth)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x


class Transformer(nn.Module):
    """An encoder with attention written out, dropout and SwiGLU."""

    def __init__(self, width: int = 256, heads: int = 4, depth: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.layers = nn.ModuleList(
            nn.ModuleDict({"n1": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width), "o": nn.Linear(width, width),
                           "n2": nn.LayerNorm(width), "up": nn.Linear(width, 4 * width), "gate": nn.Linear(
                               width, 4 * width), "down": nn.Linear(4 * width, width)}) for _ in range(depth)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        for layer in self.layers:
            q, k, v = layer["qkv"](layer["n1"](x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            weights = F.dropout((q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1), 0.1)
            x = x + layer["o"]((weights @ v).transpose(1, 2).reshape(batch, length, width))
            h = layer["n2"](x)
            x = x + layer["down"](F.silu(layer["gate"](h)) * layer["up"](h))
        return x


class ConvNet(nn.Module):
    """Residual blocks of convolution, batch norm and ReLU."""

    def __init__(self, width: int = 32, depth: int = 4) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                          nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))
            for _ in range(depth)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = (x + block(x)).relu()
        return x


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (MLP, (512, 512)),
    "transformer": (Transformer, (4, 128, 256)),
    "convnet": (ConvNet, (8, 32, 32, 32)),
}


def peak_bytes(step: Callable[[], None]) -> int:
    """The highest number of bytes in use during `step`, beside those in use before."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = highest = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        highest = max(highest, now)
    return highest


def held_bytes(function: Callable[[torch.Tensor], torch.Tensor], model: nn.Module, x: torch.Tensor) -> int:
    """Bytes that autograd keeps for the backward, beside parameters and the input; each storage once."""
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers(), x)}
    storages: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function(x)
    del result
    return sum(storages.values())


def measure(label: str, function: Callable[[torch.Tensor], torch.Tensor], model: nn.Module, x: torch.Tensor,
            predicted: dict[str, int] | None = None) -> None:
    """Print one line."""

    def step() -> None:
        for p in model.parameters():
            p.grad = None
        function(x).square().mean().backward()

    step()
    step()
    fastest = float("inf")
    for _ in range(12):
        start = time.perf_counter()
        step()
        fastest = min(fastest, time.perf_counter() - start)
    for p in model.parameters():
        p.grad = None
    texts = [f"{label:<18}", f"{1000 * fastest:8.2f} ms", f"held {held_bytes(function, model, x) / 1e6:7.2f} MB",
             f"peak {peak_bytes(step) / 1e6:7.2f} MB"]
    if predicted is not None:
        highest = max(predicted["forward"], predicted["backward"])
        texts.append(f"(predicted: held {predicted['saved'] / 1e6:.2f}, peak {highest / 1e6:.2f})")
    print("  ".join(texts), flush=True)


def compiled(label: str, model: nn.Module, x: torch.Tensor, overrides: dict[str, str], **options: float) -> None:
    """Compile, recorded for the sake of the prediction, and measure."""
    torch.compiler.reset()
    with ptdebug.record(f"memory-{label.replace(' ', '-')}", overrides=overrides) as recording:
        function = ptdebug.compile(model, options=dict(options))
        function(x)
    partitions = [record for _, record in recording.records(Partition)]
    measure(label, function, model, x, partitions[0].predicted if partitions else None)


def main() -> None:
    """Measure the models that were named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for name in arguments.models or MODELS:
        make, shape = MODELS[name]
        torch.manual_seed(0)
        model, x = make(), torch.randn(shape)
        print(f"{name}: {sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters, input {list(shape)}")
        measure("eager", model, model, x)
        if arguments.stock:
            measure("stock", torch.compile(model), model, x)
        compiled("everything saved", model, x, {"save-for-backward:*": "save"})
        compiled("chosen", model, x, {})
        for budget in (0.5, 0.0):
            compiled(f"budget {budget}", model, x, {}, memory_budget=budget)


if __name__ == "__main__":
    main()
