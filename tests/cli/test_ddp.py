"""DistributedDataParallel on two processes: the graph is cut where buckets end, and trains as in eager, with no_sync,
join, communication hooks, static graphs and unused parameters."""
from __future__ import annotations

from pathlib import Path

from tests.two_ranks import found_by_two_ranks

PROGRAM = """
import contextlib, ptdebug
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, fp16_compress_hook
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

class Rare(Layers):
    def __init__(self):
        super().__init__()
        self.unused, self.norm = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(32)
    def forward(self, x):
        return self.norm(super().forward(x))

def steps(name, wrapped, call, rank):
    optimizer, found = torch.optim.SGD(wrapped.parameters(), lr=0.1), []
    def backward(seed):
        x = torch.rand(4, 32, generator=torch.Generator().manual_seed(2 * seed + rank))
        loss = (call(x) - x.flip(-1)).square().mean()
        loss.backward()
        found.append(loss.item())
    with wrapped.join() if name == "join" else contextlib.nullcontext():
        for step in range(3 if name == "join" and rank else 4):
            optimizer.zero_grad()
            if name == "accumulation":
                with wrapped.no_sync():
                    backward(100 + step)
            backward(step)
            optimizer.step()
    return found + [value.double().sum().item() for value in wrapped.state_dict().values()]

VARIANTS = {"accumulation": {}, "join": {}, "compressed": {}, "static": {"static_graph": True},
            "unused": {"find_unused_parameters": True}, "views": {"gradient_as_bucket_view": True}}

def variant(name, rank):
    found = []
    for compiler in (lambda it: it, ptdebug.compile):
        torch.manual_seed(0)
        model = Rare() if name in ("static", "unused") else Layers()
        wrapped = DistributedDataParallel(model, bucket_cap_mb=0.004, **VARIANTS[name])
        if name == "compressed":
            wrapped.register_comm_hook(None, fp16_compress_hook)
        found.append(steps(name, wrapped, compiler(wrapped), rank))
    return found

def work(rank, folder):
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
    found["variants"] = {name: variant(name, rank) for name in VARIANTS}
    found["cuts"] = [d.why for _, d in recording.decisions() if d.kind == "ddp-bucket"]
    found["graphs"] = [info.function for info in recording.compiles()]
    found["breaks"] = ptdebug.stats()["graph_breaks"]
    return found
"""


def test_two_processes_train_as_in_eager(tmp_path: Path) -> None:
    for found in found_by_two_ranks(PROGRAM, tmp_path):
        assert max(abs(a - b) for a, b in zip(found["eager"], found["compiled"])) < 1e-6
        assert found["graphs"] == ["Layers.forward"] and found["breaks"] == 0
        for name, (eager, compiled) in found["variants"].items():
            assert max(abs(a - b) for a, b in zip(eager, compiled)) < 1e-4, name
        assert len(found["cuts"]) == 2 and "fill a bucket of" in found["cuts"][0]
        assert found["compiled events"][0] == "bucket", "no bucket is ready before the backward ends"
        assert sorted(found["compiled events"]) == sorted(found["eager events"])
