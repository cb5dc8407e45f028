"""DTensors on a mesh of one process: graphs that are compiled whole, values and gradients as in eager."""
# mypy: ignore-errors
from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from ..checking import Programs
from .test_wrapper_tensors import check, in_eager  # noqa: F401  (a fixture)

OF_ONE = Programs()
WHOLE = Programs()


@pytest.fixture(scope="module", autouse=True)
def mesh():
    if not dist.is_available():
        pytest.skip("torch without torch.distributed")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def spread(mesh, *sizes, tracked=False, placement=Shard(0)):  # noqa: B008
    return distribute_tensor(torch.randn(*sizes), mesh, [placement]).requires_grad_(tracked)


def shown(value):
    """Without the mesh, which is no constant."""
    if isinstance(value, (tuple, list)):
        return [shown(part) for part in value]
    return [value._local_tensor, value._spec.placements, value.requires_grad] if isinstance(value, DTensor) else value


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))


@OF_ONE
def operators(x):
    return (x @ x.t() * 2).sin()


@OF_ONE
def to_plain_tensors(x):
    return x.to_local() * 2 + x.full_tensor()


@OF_ONE
def to_another_placement(x):
    return (x @ x).redistribute(x.device_mesh, [Replicate()]).to_local().relu()


@OF_ONE
def by_what_it_says(x):
    y = DTensor.from_local(x.to_local() * 3, x.device_mesh, x.placements)
    return x * (2 if x.placements[0].is_shard() else 3) * x.device_mesh.ndim + y


@WHOLE
def from_plain_tensors(compile, mesh):
    f = compile(lambda x: DTensor.from_local(x, mesh, [Shard(0)], run_check=False) * 2)
    return shown(f(torch.randn(4, 4)))


@WHOLE
def sizes(compile, mesh):
    f = compile(lambda x: x * 2 + x.sum())
    return [shown(f(spread(mesh, n, 4))) for n in (2, 3, 4, 5)]


@WHOLE
def a_module(compile, mesh):
    made, found = model(), []
    distribute_module(made, mesh)
    f = compile(made)
    for n in (2, 3, 4):
        out = f(spread(mesh, n, 4, placement=Replicate()))
        out.to_local().sum().backward()
        found.append(shown(out))
    return found, shown([p.grad for p in made.parameters()])


@WHOLE
def a_tensor_parallel_module(compile, mesh):
    made, found = model(), []
    parallelize_module(made, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    f = compile(made)
    for n in (2, 4, 6):
        out = f(torch.randn(n, 4))
        out.sum().backward()
        found.append(out)
    return found, shown([p.grad for p in made.parameters()])


@pytest.mark.parametrize("name", OF_ONE)
def test_a_function_of_a_distributed_tensor_is_compiled_whole(name, mesh, in_eager):  # noqa: F811
    def program(compile):
        f, found = compile(OF_ONE[name]), []
        for tracked in (False, True):
            x = spread(mesh, 4, 4, tracked=tracked)
            out = f(x)
            if tracked:
                (out.to_local() if isinstance(out, DTensor) else out).sum().backward()
            found.append(shown([out, x.grad]))
        return found

    check(program)
    assert not in_eager


@pytest.mark.parametrize("name", WHOLE)
def test_a_program_with_distributed_tensors_is_compiled_whole(name, mesh, in_eager):  # noqa: F811
    check(lambda compile: WHOLE[name](compile, mesh))
    assert not in_eager
