"""Graphs on a GPU kept on disk: what comes back launches the same kernels. Here they are run by `gpu_driver.py`."""
from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.cli import wiring
from ptdebug.dependencies import msgspec
from ptdebug.engine import stages
from ptdebug.engine.codegen.triton import TritonKernel, kernels_for_plan
from ptdebug.engine.codegen.triton.building import begin, canonical, parameter_constants, parameter_types
from ptdebug.engine.codegen.triton.source import Launch, assemble
from ptdebug.engine.compile import compile_graph
from ptdebug.engine.graph_cache import found_kernels, gpu
from ptdebug.engine.graph_cache.half import decode_as, encode
from ptdebug.engine.graph_cache.kernel_data import KernelData
from ptdebug.engine.graph_cache.key import key_of
from ptdebug.engine.ir.ir import KernelSignature
from ptdebug.engine.runtime import triton_launcher
from ptdebug.tracer.frames import dispatch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional as F

from tests.devices import GPU

from .gpu_driver import Driver, gpu_driver, plan_for_gpu
from .programs import Captured, capture

WAYS = [{"cpp_wrapper": True}, {"cpp_wrapper": False}]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A cache of the test's own, switched on; one entry for each graph that was compiled."""
    made: list[Any] = []

    def counted(*args: Any) -> Any:
        made.append(args[0])
        return compile_graph(*args)

    monkeypatch.setenv("PTDEBUG_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PTDEBUG_GRAPH_CACHE", "1")
    monkeypatch.setattr(wiring, "_compiler", lambda: counted)
    return made


@pytest.fixture
def driver(cache: list[Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """All kernels are Triton's, as on a GPU, also those of graphs from disk."""
    monkeypatch.setattr(stages, "_device_kinds", lambda plan: {"cuda"})
    with gpu_driver() as driver:
        yield driver


def anew(function: Callable[..., Any], **options: Any) -> Any:
    """What a second process would have: nothing compiled in memory."""
    dispatch.reset()
    return ptdebug.compile(function, **options)


def layer(x: torch.Tensor, weight: torch.Tensor, count: torch.Tensor) -> Any:
    """A product, kernels of several launches, a library call without a C function, a view, a write to an input."""
    count.add_(1)
    y = F.gelu(F.layer_norm(x @ weight, (6,)))
    return y, y.sum(), torch.linalg.cholesky(weight @ weight.t() + torch.eye(4)), x.t(), 3


@pytest.mark.parametrize("options", WAYS)
def test_a_graph_from_disk_launches_the_same_kernels(driver: Driver, cache: list[Any], options: Any) -> None:
    inputs = torch.randn(5, 4), torch.randn(4, 6), torch.zeros(3)
    found, launched = [], []
    for call in (layer, anew(layer, options=options), anew(layer, options=options)):
        before, own = driver.launched, [x.clone() for x in inputs]
        with torch.no_grad():
            found.append((call(*own), own))
        launched.append(driver.launched - before)
    assert len(cache) == 1
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[1], rtol=0, atol=0)
    assert launched[1] == launched[2] and (launched[1] >= 2) == options["cpp_wrapper"]


@pytest.mark.parametrize("options", WAYS)
def test_training_and_sizes_that_vary(driver: Driver, cache: list[Any], options: Any) -> None:
    network = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.GELU(), nn.Dropout(0.5), nn.Linear(6, 2))
    found = []
    for _ in range(2):
        call = anew(network, dynamic=True, options=options)
        for rows in (3, 5):
            torch.manual_seed(0)
            network.zero_grad()
            call(torch.ones(rows, 4)).square().sum().backward()
            found.append([p.grad.clone() for p in network.parameters()])
    assert len(cache) == 1
    torch.testing.assert_close(found[2:], found[:2], rtol=0, atol=0)


def test_an_optimizer_over_a_table(driver: Driver, cache: list[Any]) -> None:
    found = []
    for _ in range(2):
        parameters = [torch.full((k + 1,), 2.0, requires_grad=True) for k in range(12)]
        optimizer = torch.optim.AdamW(parameters, lr=0.1, foreach=True)
        for p in parameters:
            p.grad = torch.ones_like(p)
        step = anew(optimizer.step)
        step()
        step()
        found.append([p.detach().clone() for p in parameters])
    assert len(cache) <= 2  # the first step makes the states
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)


def jobs_of(kernel: TritonKernel) -> list[Any]:
    """What Triton's compiler is given for each launch: text, types, and the constants in their order."""
    return [(canonical(f"{assemble_text(launch)}\n", launch.name), parameter_types(launch, False),
             parameter_constants(launch, False), launch.warps) for launch in kernel.source.launches]


def assemble_text(launch: Launch) -> str:
    return "\n".join(line.text for line in assemble([launch]))


@pytest.mark.parametrize("graph", [
    lambda x: torch.softmax(x, -1), lambda x: x.sum(0), lambda x: x.t().contiguous() + 1, lambda x: x.sum()])
def test_what_comes_back_is_compiled_alike(graph: Callable[..., Any]) -> None:
    plan = plan_for_gpu(capture(graph, torch.randn(300, 500)), CompileContext()).plan
    kernels = kernels_for_plan(plan, CompileContext())
    kept = tuple([gpu.data_of(kernel) for kernel in kernels.values()])
    again = gpu.kernels_of(decode_as(encode(kept), tuple[KernelData, ...]))
    assert list(again) == list(kernels)
    assert [jobs_of(again[name]) for name in kernels] == [jobs_of(kernel) for kernel in kernels.values()]


def test_machine_code_on_disk_is_launched_without_generating_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what is on disk, whole, is launched so."""
    monkeypatch.setenv("PTDEBUG_CACHE_DIR", str(tmp_path))
    plan = plan_for_gpu(capture(lambda x: torch.softmax(x, -1), torch.randn(3, 70)), CompileContext()).plan
    (kernel,) = kernels_for_plan(plan, CompileContext()).values()
    kept = gpu.data_of(kernel)
    assert [launch.key for launch in kept.launches] == [""] and found_kernels.found([kept]) is None
    build = begin(kernel.source.launches[0], 90, (True,) * len(kernel.source.launches[0].pointers), False)
    binary = build.wait()
    launch = msgspec.structs.replace(kept.launches[0], key=build.job["key"])
    kept = msgspec.structs.replace(kept, launches=(launch,))
    loads: list[Any] = []
    launcher = SimpleNamespace(_load_kernel=lambda *given: loads.append(given) or (0, 77, 0, 0), _launch_kernel=None)
    monkeypatch.setattr(found_kernels, "static_launcher", launcher)
    monkeypatch.setattr(triton_launcher, "static_launcher", launcher)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    again = found_kernels.found([kept, msgspec.structs.replace(kept, name="other")])
    assert again is not None and [one.handle for one in again["other"]] == [(77, 32 * binary.warps, binary.shared)]
    assert loads == [(binary.path, binary.name, binary.shared, 0)] and Path(binary.path).parent.parent == tmp_path
    assert found_kernels.runner(kept, again["other"], print) is print
    Path(binary.path).write_bytes(b"damaged")
    assert found_kernels.found([kept]) is None


def test_a_group_without_a_kernel_is_not_kept() -> None:
    from ptdebug.engine.codegen.triton import InterpretedGroup
    from ptdebug.engine.graph_cache.values import Uncacheable

    group = InterpretedGroup.__new__(InterpretedGroup)
    group.signature = KernelSignature("fused_0", ())
    with pytest.raises(Uncacheable, match="fused_0 has no Triton kernel"):
        gpu.data_of(group)


def test_the_gpu_is_in_the_key(cache: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def key(device: str, **changed: Any) -> str:
        facts = {"name": "H100", "major": 9, "minor": 0, "multi_processor_count": 132, "total_memory": 80 << 30}
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(**facts | changed))
        fake = FakeTensor(FakeTensorMode(), torch.empty(3, device="meta"), torch.device(device))
        return key_of(Captured(capture(lambda x: x + 1, torch.randn(3)).module, (fake,)), CompileContext())

    keys = [key("cuda:0"), key("cuda:1"), key("cuda:0", name="H200"), key("cuda:0", minor=1), key("cpu")]
    assert len(set(keys)) == len(keys) and keys[0] == key("cuda:0")


@pytest.mark.gpu
@GPU[1]
@pytest.mark.parametrize("options", [*WAYS, {"mode": "reduce-overhead"}])
def test_a_step_on_a_gpu(cache: list[Any], options: Any) -> None:
    network = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 8)).cuda()
    found = []
    for _ in range(2):
        call = anew(network, **({"options": options} if "mode" not in options else options))
        for _ in range(4):
            network.zero_grad()
            call(torch.ones(16, 64, device="cuda")).square().sum().backward()
        found.append([p.grad.clone() for p in network.parameters()])
    assert len(cache) == 1
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)
