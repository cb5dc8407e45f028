"""Collectives in compiled functions on two processes: nodes of graphs, values and gradients as in eager."""
from __future__ import annotations

from pathlib import Path

import ptdebug
import pytest
import torch

from tests.two_ranks import found_by_two_ranks

PROGRAM = """
import ptdebug, warnings
import torch.distributed._functional_collectives as functional
from ptdebug.artifacts.diff.ranks import collectives
from ptdebug.artifacts.summary import breaks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

def all_reduce(x):
    y = x + 1
    dist.all_reduce(y, op=dist.ReduceOp.MAX)
    z = y * 2
    dist.all_reduce(z)
    return y, z

def all_gather(x):
    out = x.new_empty(2 * x.shape[0], x.shape[1])
    dist.all_gather_into_tensor(out, x * 2)
    return out + 1

def reduce_scatter(x):
    out = x.new_empty(x.shape[0] // 2, x.shape[1])
    dist.reduce_scatter_tensor(out, x * 3)
    return out + 1

def broadcast(x):
    y = x * (dist.get_rank() + 2) * dist.get_world_size()
    dist.broadcast(y, 0)
    return y + x

def to_an_input(x):
    dist.all_reduce(x)
    return x * 2

def in_functional_form(x):
    group = dist.group.WORLD
    y = functional.all_reduce(x * x, "sum", group)
    gathered = functional.all_gather_tensor(y, 1, group)
    return functional.reduce_scatter_tensor(gathered * x.sum(), "sum", 1, group)

def in_flight(x):  # the buffer of a collective is read until the wait
    y = x * 2
    out = x.new_empty(2 * x.shape[0], x.shape[1])
    work = dist.all_gather_into_tensor(out, y, async_op=True)
    z = x * 3
    work.wait()
    return out, z

def parallel(mesh):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))
    return parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})

def numbers(value):
    return [part.tolist() for part in (value if isinstance(value, tuple) else (value,))]

def run(function, rank):
    x = torch.arange(8.0).reshape(4, 2) + rank
    found = [*numbers(function(x)), x.tolist()]
    if function.__name__ == "in_functional_form":
        x.requires_grad_()
        function(x).sum().backward()
        found.append(x.grad.tolist())
    return found

def train(model, call):
    optimizer, found = torch.optim.SGD(model.parameters(), lr=0.1), []
    for step in range(4):
        loss = (call(torch.rand(3, 4, generator=torch.Generator().manual_seed(step))) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found

def work(rank, folder):
    warnings.simplefilter("ignore")
    found = {}
    for function in (all_reduce, all_gather, reduce_scatter, broadcast, to_an_input, in_functional_form, in_flight):
        with ptdebug.record(f"{function.__name__}-{rank}", out=folder) as recording:
            compiled = ptdebug.compile(function)
            compiled.__name__ = function.__name__
            pair = run(function, rank), run(compiled, rank)
        found[function.__name__] = pair, len(breaks(recording)), len(collectives(recording))
    mesh = init_device_mesh("cpu", (2,))
    with ptdebug.record(f"parallel-{rank}", out=folder) as recording:
        eager, model = parallel(mesh), parallel(mesh)
        pair = train(eager, eager), train(model, ptdebug.compile(model))
    found["parallel"] = pair, len(breaks(recording)), len(collectives(recording))
    return found
"""
NODES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "broadcast": 1, "to_an_input": 1,
         "in_functional_form": 9, "in_flight": 0, "parallel": 1}


def test_two_processes_compute_as_in_eager(tmp_path: Path) -> None:
    for found in found_by_two_ranks(PROGRAM, tmp_path):
        for name, ((eager, compiled), breaks, nodes) in found.items():
            assert _numbers(compiled) == _numbers(eager), name
            assert (breaks, nodes) == (2 if name == "in_flight" else 0, NODES[name]), (name, breaks, nodes)


def test_before_a_process_group_is_made_eager_raises_its_error(caplog: pytest.LogCaptureFixture) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            x = x * torch.distributed.get_rank()
            torch.distributed.all_reduce(x)
        except ValueError:
            x = x + 5
        return x * 2

    assert ptdebug.compile(program)(torch.ones(2)).tolist() == [12.0, 12.0]
    assert "internal error" not in caplog.text


def _numbers(value: object) -> list[float]:
    if isinstance(value, list):
        return [number for part in value for number in _numbers(part)]
    assert isinstance(value, float)
    return [round(value, 4)]
