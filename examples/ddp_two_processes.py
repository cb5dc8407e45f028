"""DistributedDataParallel, compiled, on two processes of this CPU: `ptdebug run examples/ddp_two_processes.py`.

Or under a launcher: `ptdebug run torchrun --nproc-per-node 2 examples/ddp_two_processes.py`. Then `ptdebug ranks`.
"""
from __future__ import annotations

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def train(rank: int, world: int, method: str) -> None:
    """One rank: a few steps on batches of its own, with the gradients of all."""
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=world)
    torch.manual_seed(0)
    layers = [torch.nn.Linear(256, 256) for _ in range(4)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers, torch.nn.GELU()), bucket_cap_mb=0.5)
    step, optimizer = torch.compile(model), torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(5):
        x = torch.rand(32, 256, generator=torch.Generator().manual_seed(2 * number + rank))
        loss = (step(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.all_reduce(loss.detach())
    if rank == 0:
        print(f"loss, mean over ranks: {loss.item() / world:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
    else:
        mp.spawn(train, args=(2, f"file://{tempfile.mkdtemp()}/store"), nprocs=2)
