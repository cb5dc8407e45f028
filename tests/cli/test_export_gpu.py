"""Exported packages of graphs on a GPU: their kernels are machine code, which the driver launches. Without a GPU, the
tests let `gpu_driver.py` stand in for the driver."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.dependencies import msgspec
from ptdebug.engine.codegen.cpp_wrapper.gpu import launches, writer
from ptdebug.engine.package import InputError, PackageError, archive, gpus
from ptdebug.engine.runtime import cuda_driver, cuda_kernels
from ptdebug.engine.unsupported import NoCppWrapper
from torch import nn
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional as F

from tests.devices import GPU
from tests.engine.gpu_driver import Driver, package_driver


class Net(nn.Module):
    """A product, kernels of several launches, a library call without a C function, a write to a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 6), nn.LayerNorm(6)
        self.register_buffer("count", torch.zeros(6))

    def forward(self, x: torch.Tensor) -> Any:
        y = F.gelu(self.norm(self.linear(x)))
        self.count.add_(y.sum(0))
        weight = self.linear.weight
        return y, y.sum(), torch.linalg.cholesky(weight @ weight.t() + 6 * torch.eye(6)), self.count


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(64, 256), nn.LayerNorm(256), nn.Linear(256, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.norm(self.up(x)))).softmax(-1)


class CachedAttention(nn.Module):
    """A decoder of one layer, whose cache two entry points write: a prompt from its start, and one token."""

    def __init__(self, width: int = 64, heads: int = 4, length: int = 32, batch: int = 8) -> None:
        super().__init__()
        self.heads, self.length = heads, length
        self.words, self.norm = nn.Embedding(100, width), nn.LayerNorm(width)
        self.qkv, self.out, self.head = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 100)
        self.register_buffer("keys", torch.zeros(batch, heads, length, width // heads))
        self.register_buffer("values", torch.zeros(batch, heads, length, width // heads))

    def forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        batch, length = ids.shape
        x = self.words(ids)
        qkv = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        self.keys[:batch].index_copy_(2, positions, qkv[1])
        self.values[:batch].index_copy_(2, positions, qkv[2])
        mask = torch.arange(self.length, device=ids.device)[None] <= positions[:, None]
        seen = F.scaled_dot_product_attention(qkv[0], self.keys[:batch], self.values[:batch], mask)
        return self.head(x + self.out(seen.transpose(1, 2).reshape(batch, length, -1)))[:, -1]


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        y = torch.cond(x.sum() > 0, lambda x: self.layer(x).relu(), lambda x: x.cos(), (x,))
        _, y = while_loop(lambda k, y: k < steps, lambda k, y: (k + 1, self.layer(y).tanh()),
                          (torch.zeros_like(steps), y))
        return y * 2


def close(got: Any, wanted: Any, dtype: torch.dtype = torch.float32) -> None:
    bound = {torch.float32: 2e-5, torch.float16: 5e-3, torch.bfloat16: 3e-2}[dtype]
    torch.testing.assert_close(got, wanted, rtol=bound, atol=bound)


def decoding(device: str) -> tuple[Callable[[nn.Module], Any], list[Any]]:
    """(the export of a CachedAttention, calls of its entry points)."""
    ids = torch.randint(100, (3, 6), device=device)
    prompt, token = torch.arange(6, device=device), torch.tensor([6], device=device)
    any_batch = {"ids": {0: torch.export.Dim("batch", max=8)}}
    points = {"prefill": ptdebug.EntryPoint((ids, prompt), dynamic_shapes=any_batch),
              "decode": ptdebug.EntryPoint((ids[:, :1], token), dynamic_shapes=any_batch)}
    calls = [("prefill", ids[:2], prompt), ("decode", ids[:2, :1], token), ("decode", ids[:2, 1:2], token + 1),
             ("prefill", ids, prompt)]
    return lambda model: ptdebug.export(model, entry_points=points), calls


def saved_and_loaded(made: Any, folder: Path) -> Any:
    return ptdebug.load(made.save(folder / "m.ptd"))


@pytest.fixture
def driver() -> Iterator[Driver]:
    with package_driver() as driver:
        yield driver


def test_a_package_launches_machine_code(driver: Driver, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Net().eval()
    made = ptdebug.export(model, (torch.randn(3, 4),), dynamic_shapes={"x": {0: "batch"}})
    (entry,) = made.package.entries
    assert entry.half.code and not entry.half.triton and entry.half.native is not None
    program, before = saved_and_loaded(made, tmp_path), driver.launched
    with torch.no_grad():
        for batch in (5, 2):
            x = torch.randn(batch, 4)
            close(program(x), model(x))
    assert driver.launched - before >= 6 and not driver.by_python


def test_addresses_and_sizes_that_are_rare(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "WIDE_FROM", 48)  # so 64 bits are for 24 elements and more
    x = torch.arange(65.0)
    program = saved_and_loaded(ptdebug.export(
        lambda x: (x.sum(0), x * 2), (x[:12].view(3, 4),), dynamic_shapes={"x": {0: "n"}}), tmp_path)
    for given in (x[:20], x[:64], x[1:21], x[1:]):
        driver.names.clear()
        given = given.view(-1, 4)
        close(program(given), (given.sum(0), given * 2))
        assert all(name.endswith("general") == (len(given) > 5 or given.data_ptr() % 16 != 0) for name in driver.names)
    assert not driver.by_python


def test_python_launches_what_has_a_wrapper_of_python(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Net().eval()
    monkeypatch.setattr(launches, "written", refusing)
    made = ptdebug.export(model, (torch.randn(3, 4),), dynamic_shapes={"x": {0: "batch"}})
    assert made.package.entries[0].half.native is None
    program, x = saved_and_loaded(made, tmp_path), torch.randn(21)[1:].view(5, 4)
    with torch.no_grad():
        close(program(x), model(x))
    assert driver.by_python >= 3


def refusing(*unused: object) -> Any:
    raise NoCppWrapper("for a test")


def test_a_library_call_alone(driver: Driver, tmp_path: Path) -> None:
    model, x = nn.Linear(4, 6), torch.randn(3, 4)
    made = ptdebug.export(model, (x,))
    assert made.package.entries[0].half.native is not None and not made.package.entries[0].half.code
    with torch.no_grad():
        close(saved_and_loaded(made, tmp_path)(x), model(x))


def test_a_kernel_over_a_table(driver: Driver, tmp_path: Path) -> None:
    def model(*tensors: torch.Tensor) -> list[torch.Tensor]:
        return list(torch._foreach_mul(torch._foreach_add(tensors, 1), 2))

    tensors = [torch.randn(k + 1) for k in range(12)]
    made = ptdebug.export(model, tensors)
    assert any(code.table is not None for code in made.package.entries[0].half.code)
    program = saved_and_loaded(made, tmp_path)
    for given in (tensors, [torch.randn(k + 2)[1:] for k in range(12)]):
        close(program(*given), model(*given))
    assert driver.by_python == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_entry_points_share_a_cache(driver: Driver, dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, (made, calls) = CachedAttention().eval().to(dtype), decoding("cpu")
    program = saved_and_loaded(made(model), tmp_path)
    with torch.no_grad():
        for name, *given in calls:
            close(program[name](*given), model(*given), dtype)
    close(program.weights["keys"], model.keys, dtype)


def test_graphs_with_branches(driver: Driver, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x, steps = Branching().eval(), torch.rand(4, 16), torch.tensor(3)
    program = saved_and_loaded(ptdebug.export(model, (x, steps)), tmp_path)
    with torch.no_grad():
        for given in ((x, steps), (-x, steps - 1), (x, steps - 3)):
            close(program(*given), model(*given))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A machine with one GPU, as torch and the driver tell of it."""
    here = SimpleNamespace(cuda="12.8", driver=12040, count=1, capability=(9, 0))
    monkeypatch.setattr(torch.version, "cuda", here.cuda)
    monkeypatch.setattr(gpus, "driver", lambda: here.driver and SimpleNamespace(version=lambda: here.driver))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: here.count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: here.count)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: here.capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"GPU {index}")
    return here


@pytest.mark.parametrize("settings, words", [
    ({}, ""), ({"driver": None}, "there is no driver of NVIDIA here"),
    ({"driver": 11080}, "with CUDA 12.8, and the driver here is for CUDA 11.8: it is too old"),
    ({"count": 0}, "a GPU (GPU 0, compute capability 9.0), and torch finds no GPU here"),
    ({"capability": (8, 0)}, "a GPU (GPU 0, compute capability 9.0), and cuda:0 (GPU 0) has 8.0: export it there, or "
                             "with --target cuda:80"),
    ({"capability": (10, 0)}, "a GPU (GPU 0, compute capability 9.0), and cuda:0 (GPU 0) has 10.0"),
    ({"index": 1}, "cuda:1, and this machine has 1 GPU"),
])
def test_another_machine_is_told_before_anything_runs(
    machine: SimpleNamespace, settings: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = ptdebug.export(lambda x: x + 1, (torch.ones(3),)).package
    gpu = gpus.Gpu(settings.pop("index", 0), "GPU 0", 90)
    archive.write(tmp_path / "m.ptd", msgspec.structs.replace(package, gpus=(gpu,)))
    vars(machine).update(settings)
    if not words:
        assert archive.read(tmp_path / "m.ptd").gpus == (gpu,)
        return
    monkeypatch.setattr("ptdebug.engine.package.program.call_of", None)  # nothing is loaded
    with pytest.raises(PackageError, match=r"m\.ptd was compiled for") as caught:
        ptdebug.load(tmp_path / "m.ptd")
    assert words in str(caught.value)


def test_a_torch_without_cuda_is_told(machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "is built without CUDA" in gpus.why_not([gpus.Gpu(0, "GPU 0", 90)], "12.8")


def test_what_the_driver_says_is_told(driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        """A driver that loads no module."""

        def cuModuleLoadData(self, *unused: object) -> int:
            return 209

        def cuGetErrorString(self, code: object, text: Any) -> int:
            text._obj.value = b"no kernel image is available for execution on the device"
            return 0

    path = ptdebug.export(Net().eval(), (torch.randn(3, 4),)).save(tmp_path / "m.ptd")
    monkeypatch.setattr(cuda_kernels, "driver", lambda: cuda_driver.Driver(Library()))
    with pytest.raises(PackageError, match=r"does not load the machine code .*: cuModuleLoadData: no kernel .*\(209\)"):
        ptdebug.load(path)


# ---- on a GPU --------------------------------------------------------------------------------------------------------
LOADING = """
import sys, threading, torch, ptdebug
path, data = sys.argv[1:]
program = ptdebug.load(path)
results = []
def call():
    results.extend([program[name](*args, **kwargs) for name, args, kwargs in torch.load(data)])
thread = threading.Thread(target=call)  # which has no context of CUDA yet
thread.start()
thread.join()
torch.save([results, dict(program.weights)], data)
rooms = ("triton", "ptdebug.tracer.frames", "ptdebug.engine.lowering", "ptdebug.engine.scheduler", "ptdebug.cli.api",
         "ptdebug.engine.compile", "ptdebug.engine.codegen.triton", "torch._inductor.compile_fx")
print([name for name in rooms if name in sys.modules])
"""

Call = tuple[str, tuple[Any, ...], dict[str, Any]]


def elsewhere(path: Path, *calls: Call) -> tuple[list[Any], dict[str, torch.Tensor]]:
    """What a fresh process gets from the package for these calls, and its weights afterwards."""
    data = path.with_suffix(".pt")
    torch.save(list(calls), data)
    done = subprocess.run([sys.executable, "-c", LOADING, str(path), str(data)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"
    results, weights = torch.load(data)
    return results, weights


def on_gpu(model: nn.Module, dtype: torch.dtype = torch.float32) -> nn.Module:
    return model.eval().to("cuda", dtype)


@pytest.mark.gpu
@GPU[1]
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_perceptron_of_any_batch(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = on_gpu(Perceptron(), dtype)
    inputs = [torch.randn(n, 64, device="cuda", dtype=dtype) for n in (8, 5, 300)]
    inputs.append(torch.randn(64 * 6 + 1, device="cuda", dtype=dtype)[1:].view(6, 64))  # at another address
    made = ptdebug.export(model, (inputs[0],), dynamic_shapes=({0: "batch"},))
    results, weights = elsewhere(made.save(tmp_path / "m.ptd"), *[("forward", (x,), {}) for x in inputs])
    assert all(weight.is_cuda for weight in weights.values())
    with torch.no_grad():
        for got, x in zip(results, inputs, strict=True):
            close(got, model(x), dtype)


@pytest.mark.gpu
@GPU[1]
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_a_convolution_net(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = on_gpu(nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, stride=2, bias=False), nn.BatchNorm2d(32), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(32, 10)), dtype)
    x = torch.randn(4, 3, 32, 32, device="cuda", dtype=dtype)
    made = ptdebug.export(model, (x,))
    (got, other), _ = elsewhere(made.save(tmp_path / "m.ptd"), ("forward", (x,), {}),
                                ("forward", (x.to(memory_format=torch.channels_last),), {}))
    with torch.no_grad():
        wanted = model(x)
    bound = 1e-3 if dtype == torch.float32 else 1e-2  # cuDNN's convolutions are in TF32
    torch.testing.assert_close(got, wanted, rtol=bound, atol=bound)
    torch.testing.assert_close(other, wanted, rtol=bound, atol=bound)


@pytest.mark.gpu
@GPU[1]
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_decoder_with_a_cache(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = on_gpu(CachedAttention(), dtype)
    made, calls = decoding("cuda")
    results, weights = elsewhere(made(model).save(tmp_path / "m.ptd"),
                                 *[(name, given, {}) for name, *given in calls])
    with torch.no_grad():
        for got, (_, *given) in zip(results, calls, strict=True):
            close(got, model(*given), dtype)
    close(weights["keys"], model.keys, dtype)


@pytest.mark.gpu
@GPU[1]
def test_branches_and_loops(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = on_gpu(Branching()), torch.rand(4, 16, device="cuda")
    steps = torch.tensor(3, device="cuda")
    made = ptdebug.export(model, (x, steps))
    calls = [(x, steps), (-x, steps - 1), (x, steps - 3)]
    results, _ = elsewhere(made.save(tmp_path / "m.ptd"), *[("forward", given, {}) for given in calls])
    with torch.no_grad():
        for got, given in zip(results, calls, strict=True):
            close(got, model(*given))


@pytest.mark.gpu
@GPU[1]
def test_a_tensor_on_the_cpu_beside_those_on_the_gpu(tmp_path: Path) -> None:
    def model(x: torch.Tensor, scale: torch.Tensor, table: torch.Tensor) -> Any:
        return x * scale, table.softmax(-1), table.to(x.device) + x

    given = torch.randn(4, 8, device="cuda"), torch.tensor(3.0), torch.randn(4, 8)
    (got,), _ = elsewhere(ptdebug.export(model, given).save(tmp_path / "m.ptd"), ("forward", given, {}))
    close(tuple(got), model(*given))


@pytest.mark.gpu
@GPU[1]
def test_calls_are_captured_in_a_cuda_graph(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = on_gpu(Perceptron()), torch.randn(8, 64, device="cuda")
    program = ptdebug.load(ptdebug.export(model, (x,)).save(tmp_path / "m.ptd"))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        program(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        got = program(x)
    x.copy_(torch.randn(8, 64))
    graph.replay()
    with torch.no_grad():
        close(got, model(x))


@pytest.mark.gpu
@GPU[1]
def test_where_its_gpu_is_not_it_says_so(tmp_path: Path) -> None:
    path = ptdebug.export(on_gpu(Perceptron()), (torch.randn(8, 64, device="cuda"),)).save(tmp_path / "m.ptd")
    told = "import sys, ptdebug\ntry: ptdebug.load(sys.argv[1])\nexcept ValueError as error: print(error)"
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", told, str(path)], capture_output=True, text=True, env=environment)
    assert "was compiled for a GPU" in done.stdout and "torch finds no GPU here" in done.stdout, done.stderr
    other = rewritten(path, lambda manifest: manifest["gpus"][0].update(capability=10))
    with pytest.raises(PackageError, match=r"of compute capability 1\.0 \(.*\), and cuda:0 \(.*\) has"):
        ptdebug.load(other)
    with pytest.raises(InputError, match="x has to be a strided float32 tensor on cuda:0"):
        ptdebug.load(path)(torch.randn(8, 64))


def rewritten(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The package with another manifest."""
    made = path.with_name("other.ptd")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "manifest.json":
                manifest = json.loads(content)
                change(manifest)
                content = json.dumps(manifest).encode()
            new.writestr(name, content)
    return made
