"""DistributedDataParallel: the graph is cut where a bucket of gradients is full: it is sent during the backward."""
from __future__ import annotations

import copy

import ptdebug
import pytest
import torch
import torch.distributed as dist
from ptdebug.artifacts.recording import Recording
from ptdebug.cli.main import main
from ptdebug.tracer.frames import dispatch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


@pytest.fixture
def alone(tmp_path):
    """A group of this process alone."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_gradients_are_sent_while_the_backward_runs(alone, tmp_path, capsys):
    dispatch.reset()
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(32, 32), nn.ReLU())]
    plain = nn.Sequential(*layers)
    model = DistributedDataParallel(copy.deepcopy(plain), bucket_cap_mb=0.004)
    events = []

    def sent(state, bucket):
        events.append(bucket.index())
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    model.register_comm_hook(None, sent)
    with ptdebug.record("r", out=tmp_path):
        compiled = ptdebug.compile(model)
        for _ in range(2):  # DDP builds its buckets anew after the first backward
            events.clear()
            model.zero_grad()
            x = torch.randn(5, 32, requires_grad=True)
            x.register_hook(lambda gradient: events.append("input"))
            compiled(x).sum().backward()
    assert ptdebug.stats()["graphs"] == 1 and not ptdebug.stats()["reasons"]
    assert len(events) == 5 and events.index("input") >= 3  # of four buckets the last may follow
    plain(x).sum().backward()
    for ours, eager in zip(model.module.parameters(), plain.parameters()):
        torch.testing.assert_close(ours.grad, eager.grad)
    with Recording.open(tmp_path / "r") as recording:
        cuts = [d for _, d in recording.decisions() if d.kind == "ddp-bucket"]
        names = [info.name for info in recording.artifacts(None, "forward")]
    assert [d.chosen for d in cuts] == ["cut"] * 3 and "fill a bucket of 4,194" in cuts[0].why
    assert names == [f"segment_{number}" for number in range(4)]
    assert main(["replay", str(tmp_path / "r"), "--no-program"]) == 0
    report = capsys.readouterr().out
    assert report.split()[1] in ("equal", "rounding"), report


def test_a_graph_is_whole_where_torch_is_told_so(alone, tmp_path):
    dispatch.reset()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), bucket_cap_mb=0.0001)
    with torch._dynamo.config.patch(optimize_ddp=False), ptdebug.record("r", out=tmp_path):
        ptdebug.compile(model)(torch.randn(2, 8)).sum().backward()
    with Recording.open(tmp_path / "r") as recording:
        assert [info.name for info in recording.artifacts(None, "forward")] == [""]
