"""DistributedDataParallel on two processes: the graph is cut where buckets end, and trains as in eager."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import json, sys, torch, ptdebug
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (torch.nn.Linear(32, 32) for _ in range(3))
    def forward(self, x):
        return self.third(self.second(self.first(x).tanh()).tanh())

def losses(wrapped, call, rank, events):
    optimizer, found = torch.optim.SGD(wrapped.parameters(), lr=0.1), []
    for step in range(20):
        x = torch.rand(4, 32, generator=torch.Generator().manual_seed(2 * step + rank))
        loss = (call(x) - x.flip(-1)).square().mean()
        optimizer.zero_grad()
        events.clear()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found

def work(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    found = {}
    for name in ("eager", "compiled"):
        torch.manual_seed(0)
        wrapped, events = DistributedDataParallel(Layers(), bucket_cap_mb=0.004), []
        def hook(state, bucket, events=events):
            events.append("bucket")
            return allreduce_hook(state, bucket)
        wrapped.register_comm_hook(None, hook)
        wrapped.module.first.weight.register_post_accumulate_grad_hook(lambda _, e=events: e.append("first layer"))
        with ptdebug.record(f"{name}-{rank}", out=folder) as recording:
            call = wrapped if name == "eager" else ptdebug.compile(wrapped)
            found[name] = losses(wrapped, call, rank, events)
        found[f"{name} events"] = list(events)
    found["cuts"] = [d.why for _, d in recording.decisions() if d.kind == "ddp-bucket"]
    found["graphs"] = [info.function for info in recording.compiles()]
    found["breaks"] = ptdebug.stats()["graph_breaks"]
    with open(f"{folder}/{rank}.json", "w") as file:
        json.dump(found, file)
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(work, args=(sys.argv[1],), nprocs=2)
"""


def test_two_processes_train_as_in_eager(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, "program.py", str(tmp_path)], cwd=tmp_path, capture_output=True, text=True,
                          timeout=240)
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert max(abs(a - b) for a, b in zip(found["eager"], found["compiled"])) < 1e-6
        assert found["graphs"] == ["Layers.forward"] and found["breaks"] == 0
        assert len(found["cuts"]) == 2 and "fill a bucket of" in found["cuts"][0]
        assert found["compiled events"][0] == "bucket", "no bucket is ready before the backward ends"
        assert sorted(found["compiled events"]) == sorted(found["eager events"])
