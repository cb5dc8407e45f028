"""FSDP1 and FSDP2 on two processes: losses as in eager, equal blocks compiled once, breaks at their boundaries."""
from __future__ import annotations

from pathlib import Path

from tests.two_ranks import found_by_two_ranks

PROGRAM = """
import ptdebug
from ptdebug.artifacts.summary import summary
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp import (
    CPUOffloadPolicy, FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
    def forward(self, x):
        return x + self.down(self.up(x).tanh())

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Block() for _ in range(3)])
        self.embed, self.head = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

def sharded(model, checkpoints=False, **options):
    if checkpoints:
        apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
    for layer in model.layers:
        fully_shard(layer, **options)
    return fully_shard(model, **options)

def wrapped(model, **options):
    return FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({Block}),
                                    device_id=torch.device("cpu"), **options)

low = torch.bfloat16
VARIANTS = {
    "fully_shard": sharded,
    "kept": lambda m: sharded(m, reshard_after_forward=False),
    "mixed precision": lambda m: sharded(m, mp_policy=MixedPrecisionPolicy(param_dtype=low)),
    "offloaded": lambda m: sharded(m, offload_policy=CPUOffloadPolicy(pin_memory=False)),
    "checkpoints": lambda m: sharded(m, checkpoints=True),
    "FSDP1": lambda m: wrapped(m, use_orig_params=True),
    "FSDP1, flat": wrapped,
    "FSDP1, mixed precision": lambda m: wrapped(m, mixed_precision=MixedPrecision(param_dtype=low)),
}

def losses(model, call, rank):
    optimizer, found = torch.optim.AdamW(model.parameters(), lr=1e-2), []
    for step in range(6):
        x = torch.rand(4, 8, generator=torch.Generator().manual_seed(2 * step + rank))
        loss = (call(x).float() - x.flip(-1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found

def work(rank, folder):
    found = {}
    for name, wrap in VARIANTS.items():
        torch.manual_seed(0)
        eager, compiled = wrap(Model()), None
        torch.manual_seed(0)
        compiled = wrap(Model())
        with ptdebug.record(f"{name}-{rank}", out=folder) as recording:
            call = ptdebug.compile(compiled)
            pair = losses(eager, eager, rank), losses(compiled, call, rank)
        found[name] = {
            "losses": pair, "keys": [list(m.state_dict()) for m in (eager, compiled)],
            "compiled": [info.function for info in recording.compiles() if info.status == "compiled"],
            "breaks": [(b["file"], b["source"], b["message"]) for b in summary(recording)["graph_breaks"]],
            "recompiles": summary(recording)["counts"]["recompiles"],
        }
    return found
"""


def test_two_processes_train_as_in_eager(tmp_path: Path) -> None:
    for variants in found_by_two_ranks(PROGRAM, tmp_path):
        for name, found in variants.items():
            near = 1e-3 if "mixed" in name else 1e-6
            assert max(abs(a - b) for a, b in zip(*found["losses"])) < near, name
            assert found["keys"][0] == found["keys"][1] and not found["recompiles"], name
            block = "CheckpointWrapper.forward" if name == "checkpoints" else "Block.forward"
            assert found["compiled"].count(block) == 1 and len(found["compiled"]) <= 5, (name, found["compiled"])
            places = {(Path(file).name, source.strip()) for file, source, _ in found["breaks"]}
            assert places == {
                ("program.py", "x = layer(x)"), ("program.py", "for layer in self.layers:")}, name
            assert "FSDP gathers the parameters of a wrapped module" in found["breaks"][0][2]
