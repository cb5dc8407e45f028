"""DistributedDataParallel: the graph is cut where a bucket of gradients is full: it is sent during the backward."""
from __future__ import annotations

import copy

import ptdebug
import pytest
import torch
import torch.distributed as dist
from ptdebug.artifacts.recording import Recording
from ptdebug.cli.main import main
from ptdebug.engine.aot.autograd.eager import EagerForm
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


class Residual(nn.Module):
    """Two values go from each part to the next, one computed from the other; `shown`: one of them is a result, too."""

    def __init__(self, shown=False):
        super().__init__()
        self.layers, self.shown = nn.ModuleList(nn.Linear(32, 32) for _ in range(4)), shown

    def forward(self, x):
        between = []
        for layer in self.layers:
            y = layer(x).tanh()
            between.append(y)
            x = x + y.sin() * y
        return (x, between[1]) if self.shown else x


def nodes_behind(result):
    """The names of the nodes of autograd's graph."""
    seen, stack = set(), [result.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            stack += [behind for behind, _ in node.next_functions]
    return [node.name() for node in seen]


def parts(model, x):
    """(what a compiled call returns, the model in eager, its inputs), once DDP has its buckets."""
    plain = copy.deepcopy(model)
    compiled = ptdebug.compile(DistributedDataParallel(model, bucket_cap_mb=0.004))
    for _ in range(2):
        model.zero_grad()
        result = compiled(x)
        (result[0] if model.shown else result).sum().backward()
    model.zero_grad()
    return compiled(x), plain, [*model.parameters()]


def test_between_parts_there_are_no_edges_for_gradients_that_nobody_asks_for(alone, monkeypatch):
    dispatch.reset()
    monkeypatch.setattr(EagerForm, "gradients", None)  # the backward is not repeated in eager
    x = torch.randn(5, 32)
    result, plain, parameters = parts(Residual(), x)
    names = nodes_behind(result)
    assert names.count("CompiledGraphBackward") > 2 and "LeadBackward" not in names
    expected = torch.autograd.grad(plain(x).sum(), plain.parameters())
    for ours, eager in zip(torch.autograd.grad(result.sum(), parameters, retain_graph=True), expected):
        torch.testing.assert_close(ours, eager)
    result.sum().backward(inputs=parameters[2:4])
    assert [p.grad is not None for p in parameters] == [False, False, True, True] + [False] * 4
    torch.testing.assert_close(parameters[2].grad, expected[2])


def test_a_value_between_parts_that_is_a_result_has_its_gradient(alone):
    dispatch.reset()
    x = torch.randn(5, 32)
    (result, between), plain, parameters = parts(Residual(shown=True), x)
    asked, weight = torch.autograd.grad(result.sum() + between.sum(), [between, parameters[0]])
    eager_result, eager_between = plain(x)
    wanted = torch.autograd.grad(eager_result.sum() + eager_between.sum(), [eager_between, plain.layers[0].weight])
    torch.testing.assert_close(asked, wanted[0])
    torch.testing.assert_close(weight, wanted[1])


def test_attention_that_drops_nothing_reads_no_random_state(monkeypatch):
    dispatch.reset()
    query = torch.randn(1, 2, 8, 16, requires_grad=True)
    attend = ptdebug.compile(lambda q, p: nn.functional.scaled_dot_product_attention(q, q, q, dropout_p=p).sin(),
                             dynamic=False)
    read = []
    state = torch.get_rng_state
    monkeypatch.setattr(torch, "get_rng_state", lambda: read.append(1) or state())
    attend(query, 0.0).sum().backward()
    read.clear()
    attend(query, 0.0).sum().backward()
    assert not read
