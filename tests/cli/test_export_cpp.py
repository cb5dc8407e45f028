"""Exported packages called from C++: a program without Python gets what the model computes, or a clear error."""
from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.cli.exporting import ExportError
from ptdebug.dependencies import msgspec
from ptdebug.engine.package import archive
from ptdebug.engine.package.gpus import Gpu
from ptdebug.engine.package.native import write_to
from ptdebug.engine.toolchain.cpp_build import find_compiler
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from tests.devices import GPU
from tests.engine.gpu_driver import driver_library, package_driver

Call = tuple[str, tuple[torch.Tensor | str, ...]]
Run = Callable[..., list[str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Calls a package in a process without Python, and returns the lines that it prints: results, errors."""
    folder = tmp_path_factory.mktemp("cpp")
    write_to(folder / "native")
    torch_folder = Path(torch.__path__[0])
    command = [find_compiler(), "-std=c++17", "-O0", "-Wall", "-Werror", f"-I{folder / 'native'}",
               f"-I{torch_folder / 'include'}", str(Path(__file__).parent / "run_package.cpp"),
               str(folder / "native" / "ptdebug_package.cpp"), "-o", str(folder / "run"), f"-L{torch_folder / 'lib'}",
               f"-Wl,-rpath,{torch_folder / 'lib'}", "-Wl,--no-as-needed", "-ltorch_cpu", "-lc10", "-ldl"]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr

    def call(package: Path, *calls: Call, code: int = 0, environment: dict[str, str] | None = None) -> list[str]:
        lines = []
        for name, inputs in calls:
            lines.append(f"{name} {len(inputs)}")
            for k, tensor in enumerate(inputs):
                if isinstance(tensor, str):
                    lines.append(tensor)
                    continue
                path = folder / f"input{len(lines)}-{k}"
                path.write_bytes(tensor.contiguous().cpu().numpy().tobytes())
                dtype = str(tensor.dtype).removeprefix("torch.")
                place = f"{'@' * tensor.is_cuda}{path}"
                lines.append(" ".join([place, dtype, *map(str, tensor.shape)]))
        done = subprocess.run([folder / "run", package], input="\n".join(lines), capture_output=True, text=True,
                              env=os.environ | (environment or {}))
        assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout.splitlines()

    return call


def numbers(line: str, like: torch.Tensor) -> torch.Tensor:
    return torch.tensor([float(word) for word in line.split()], dtype=like.dtype).reshape(like.shape)


class Decoder(torch.nn.Module):
    """A cache that calls write to, indices that may be out of range, a number of the sizes, and an argument that is
    returned."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(10, 8)
        self.linear = torch.nn.Linear(8, 8)
        self.register_buffer("seen", torch.zeros(8))
        self.table = torch.arange(8.0)

    def forward(self, ids: torch.Tensor, x: torch.Tensor, scale: float = 2.0) -> dict[str, object]:
        y = torch.relu(self.linear(self.words(ids)) * scale + x + self.table)
        self.seen.add_(y.sum((0, 1)))
        return {"y": y, "length": ids.shape[1], "parts": (x, self.seen), "none": None}

    def last(self, ids: torch.Tensor) -> torch.Tensor:
        words = self.words(ids[:, -1])
        return words.softmax(-1) + self.seen + torch.cdist(words, words).sum()  # called through the dispatcher

    def plain(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)  # without a kernel

    def shifted(self, x: torch.Tensor, n: int) -> Any:
        return x[n] * n, n - 7


def test_a_program_without_python_calls_entry_points(run: Run, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Decoder().eval()
    ids, x = torch.randint(10, (3, 4)), torch.randn(3, 4, 8)
    dims = {"ids": {0: torch.export.Dim("batch", max=9), 1: "length"}, "x": {0: "batch", 1: "length"}}
    points = {"forward": ptdebug.EntryPoint((ids, x), {"scale": 3.0}, dims),
              "last": ptdebug.EntryPoint((ids,), method="last"), "plain": ptdebug.EntryPoint((x,), method="plain"),
              "shifted": ptdebug.EntryPoint((x, 2), dynamic_shapes={"n": "n"}, method="shifted")}
    path = ptdebug.export(model, entry_points=points, cpp=True).save(tmp_path / "m.ptd")
    ids2, x2 = torch.randint(10, (5, 6)), torch.randn(5, 6, 8)
    wrong = torch.full((5, 6), 11)
    lines = run(
        path, ("forward", (ids2, x2)), ("last", (ids,)), ("forward", (wrong, x2)), ("forward", (ids2, x2[:4])),
        ("forward", (torch.zeros(10, 6, dtype=torch.int64), torch.zeros(10, 6, 8))), ("forward", (ids2, ids2)),
        ("forward", (ids2.float(), x2)), ("forward", (ids2,)), ("other", ()), ("last", (ids,)),
        ("plain", (x,)), ("shifted", (x, torch.tensor(1))), ("shifted", (x, torch.tensor(3))))
    with torch.no_grad():
        wanted, after = model(ids2, x2, 3.0), model.last(ids)
    assert torch.allclose(numbers(lines[0], wanted["y"]), wanted["y"], atol=1e-6)
    assert lines[1] == "6 " and torch.equal(numbers(lines[2], x2), x2)
    assert torch.allclose(numbers(lines[3], model.seen), model.seen, rtol=1e-5)
    assert torch.allclose(numbers(lines[4], after), after, rtol=1e-5)
    assert lines[5] == "error: forward: index out of range in `embedding`"
    assert lines[6:12] == [
        "error: dimension 0 of x has to be 5, not 4", "error: dimension 0 of ids (batch) has to be 2 to 9, not 10",
        "error: x has to be a strided float32 tensor on cpu", "error: ids has to be a strided int64 tensor on cpu",
        "error: forward takes 2 tensors, not 1", "error: no entry point other: there is forward, last, plain, shifted"]
    assert lines[12] == lines[4]  # nothing that was refused wrote to the buffer
    assert torch.allclose(numbers(lines[13], x), model.linear(x), atol=1e-6)
    assert torch.equal(numbers(lines[14], x[1]), x[1]) and lines[15] == "-6 "
    assert lines[16] == "error: n has to be 0 to 2, not 3"


class Deciding(torch.nn.Module):
    """A branch by a flag, a loop with a branch in it, weights in both, a buffer that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.one, self.two = torch.nn.Embedding(10, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(4))

    def forward(self, ids: torch.Tensor, flag: torch.Tensor, steps: torch.Tensor) -> Any:
        self.calls.add_(1)
        x = self.words(ids)
        x = torch.cond(flag, lambda x: self.one(x).relu(), lambda x: self.words(ids + 5) - self.calls, (x,))

        def body(step: torch.Tensor, x: torch.Tensor) -> Any:
            even = torch.cond(step % 2 == 0, lambda x: self.one(x).tanh(), lambda x: self.two(x).sin() * 2, (x,))
            return step + 1, even

        step, x = while_loop(lambda step, x: (step < steps) & (x.sum() < 1e3), body, (torch.zeros_like(steps), x))
        return x * 2, step, self.calls

    def rows(self, x: torch.Tensor) -> Any:
        total, seen = scan(lambda total, row: (total + self.one(row), (total * row).view(2, 2).t()), x[0], x)
        return total, seen, torch_map(lambda row, of: (row * of).sum(), x, self.two.bias), x.shape[0] * 2, x.t()


def test_branches_and_loops(run: Run, tmp_path: Path) -> None:
    """torch.cond and while_loop, also as `torch.export` gives them, from Python and from C++."""
    torch.manual_seed(0)
    model = Deciding().eval()
    given = torch.randint(5, (3,)), torch.tensor(True), torch.tensor(3)
    with torch.no_grad():
        batch = torch.export.Dim("batch", max=9)
        program = torch.export.export(model, given, dynamic_shapes=({0: batch}, None, None))
    dims = {"ids": {0: torch.export.Dim("batch", max=9)}}
    x, other = torch.randn(3, 4), torch.randn(5, 4)
    points = {"forward": ptdebug.EntryPoint(given, dynamic_shapes=dims),
              "rows": ptdebug.EntryPoint((x,), dynamic_shapes={"x": {0: "rows"}}, method="rows")}
    paths = [ptdebug.export(program, given, dynamic_shapes=dims, cpp=True).save(tmp_path / "e.ptd"),
             ptdebug.export(model, entry_points=points, cpp=True).save(tmp_path / "m.ptd")]
    calls = [(torch.randint(5, (n,)), torch.tensor(flag), torch.tensor(steps))
             for n, flag, steps in ((3, True, 3), (5, False, 2), (4, False, 0))]
    with torch.no_grad():
        wanted = [[value.clone() for value in model(*each)] for each in calls]
    for path in paths:
        loaded = ptdebug.load(path)
        lines = run(path, *[("forward", (ids, flag.view(torch.uint8), steps)) for ids, flag, steps in calls],
                    ("forward", (torch.full((3,), 7), torch.tensor(0, dtype=torch.uint8), torch.tensor(3))))
        for k, (each, right) in enumerate(zip(calls, wanted)):
            for m, (value, mine) in enumerate(zip(right, loaded(*each))):
                assert torch.allclose(value, mine, atol=1e-5)
                assert torch.allclose(value, numbers(lines[3 * k + m], value), atol=1e-5)
        assert lines[9].startswith("error: forward: index out of range in `embedding") and len(lines) == 10
    with torch.no_grad():
        wanted = model.rows(other)
    lines = run(path, ("rows", (other,)))
    for value, mine, line in zip(wanted, loaded["rows"](other), lines, strict=True):
        if not isinstance(value, torch.Tensor):
            assert value == mine == int(line)
            continue
        assert torch.allclose(value, mine, atol=1e-5) and value.stride() == mine.stride()
        shown = value.t() if value.shape == (4, 5) else value  # elements are printed as they are in memory
        assert torch.allclose(shown, numbers(line, shown), atol=1e-5)


class Writing(torch.nn.Module):
    """Writes an argument and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(2, 2))

    def forward(self, a: torch.Tensor, b: torch.Tensor, unread: torch.Tensor) -> torch.Tensor:
        a.add_(1)
        return a + self.seen.add_(b)


def test_what_is_written_shares_no_memory(run: Run, tmp_path: Path) -> None:
    a, b = torch.rand(2, 2), torch.rand(2, 2)
    path = ptdebug.export(Writing(), (a, b, b), cpp=True).save(tmp_path / "m.ptd")
    columns = "&0 float32 2 2"  # the graph would get a copy
    lines = run(path, ("forward", (a, columns, b)), ("forward", (a, "=seen", b)), ("forward", ("=seen", b, b)),
                ("forward", (a, b, columns)))
    assert lines[:3] == [
        "error: a is written, and shares memory with b", "error: the weight seen is written, and shares memory with b",
        "error: a is written, and shares memory with the weight seen"]
    assert torch.allclose(numbers(lines[3], a), a + 1 + b)


def test_what_cannot_run_without_python_is_told(run: Run, tmp_path: Path) -> None:
    def values(x: torch.Tensor) -> torch.Tensor:
        return torch.histc(x, 4, 0.0, 1.0) + 1

    x = torch.rand(3, 3)
    with pytest.raises(ExportError, match=r"forward cannot .* without Python: aten.histc.*test_ex"):
        ptdebug.export(values, (x,), cpp=True)
    path = ptdebug.export(values, (x,)).save(tmp_path / "values.ptd")
    (line,) = run(path, ("forward", (x,)))
    assert line.startswith("error: forward runs from Python only: aten.histc")
    content = path.read_bytes()
    place = content.index(b"refused\tforward")
    entry, end = content.rindex(b"PK\1\2"), content.rindex(b"PK\5\6")
    far = struct.pack("<4sIQI", b"PK\6\7", 0, (1 << 64) - 36, 1) + b"PK\5\6\0\0\0\0" + b"\xff" * 12 + b"\0\0"
    for damaged, why in ((content[: len(content) // 2], "it has no directory"), (b"", "it is empty"),
                         (content[:place] + b"R" + content[place + 1:], "cpp.txt in it is not what was written"),
                         (content[:entry + 28] + b"\xff\xff" + content[entry + 30:], "it ends too early"),
                         (content[:end] + far, "it ends too early")):
        path.write_bytes(damaged)
        assert why in run(path, code=1)[0]
    assert "can't read" in run(tmp_path, code=1)[0]


# ---- on a GPU --------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which `fake_driver.cpp` is the driver."""
    return {"LD_LIBRARY_PATH": str(driver_library(tmp_path_factory.mktemp("driver")).parent)}


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def test_machine_code_is_launched(run: Run, fake: dict[str, str], tmp_path: Path) -> None:
    with package_driver():
        made = ptdebug.export(doubled, (torch.ones(3, 4),), dynamic_shapes=({0: "n"},), cpp=True)
    x = torch.rand(5, 4)
    path = made.save(tmp_path / "m.ptd")
    launched, line, refused = run(path, ("forward", (x,)), ("forward", (x[0],)), environment=fake)
    assert launched == "usual 1 128" and torch.allclose(numbers(line, x), 2 * x + 1)
    assert refused == "error: x has to have 2 dimensions [n, 4], not [4]"
    (line,) = run(path, code=1, environment=fake | {"FAKE_REFUSES": "1"})
    assert line == "cuModuleLoadData: device kernel image is invalid (200)"


def test_graphs_without_a_kernel(run: Run, fake: dict[str, str], tmp_path: Path) -> None:
    a, b = torch.rand(3, 4), torch.rand(4, 2)
    product = lambda a, b: a @ b
    branch = lambda a, b, first: torch.cond(first, product, lambda a, b: (a * 2 + 1) @ b, (a, b))
    with package_driver():
        for function, flags in ((product, ()), (branch, (True, False))):
            given = [torch.tensor(flag) for flag in flags[:1]]
            rows = {"a": {0: "n"}}  # the kernel of fake_driver.cpp reads their number
            made = ptdebug.export(function, (a[:2], b, *given), dynamic_shapes=rows, cpp=True)
            path = made.save(tmp_path / "m.ptd")
            calls = [("forward", (a, b, torch.tensor(flag).view(torch.uint8))) for flag in flags]
            calls = calls or [("forward", (a, b))]
            usual, *rare = run(path, *calls, environment=fake)
            assert torch.allclose(numbers(usual, a @ b), a @ b)
            if rare:
                assert rare[0].startswith("usual") and torch.allclose(numbers(rare[1], a @ b), (2 * a + 1) @ b)


def test_another_gpu_is_told_when_it_is_loaded(run: Run, fake: dict[str, str], tmp_path: Path) -> None:
    gpu = Gpu(0, "GPU 0", 90)
    package = ptdebug.export(doubled, (torch.ones(3, 4),)).package
    path = tmp_path / "m.ptd"
    archive.write(path, msgspec.structs.replace(package, gpus=(gpu,)))
    told = f"{path} was compiled for a GPU (GPU 0, compute capability 9.0)"
    for environment, words in (
            ({}, ", and there is no driver of NVIDIA here"),
            (fake | {"FAKE_CAPABILITY": "80"}, ", and the one here has 8.0: export it there"),
            (fake, ", and this torch is built without CUDA, or its libtorch_cuda was not found")):
        if torch.cuda.is_available():
            break
        assert run(path, code=1, environment=environment) == [told + words]
    archive.write(path, msgspec.structs.replace(package, gpus=(Gpu(0, "", 80), Gpu(0, "", 90))))
    told = f"{path} was compiled for a GPU (compute capability 8.0 or 9.0), and "
    assert run(path, code=1, environment=fake | {"FAKE_CAPABILITY": "75"})[0].startswith(f"{told}the one here has 7.5")
    if not torch.cuda.is_available():
        words = "this torch is built without CUDA, or its libtorch_cuda was not found"
        assert run(path, code=1, environment=fake) == [told + words]


def test_what_only_python_does_on_a_gpu_is_told() -> None:
    with package_driver():
        for model, words in (
            (lambda x: torch.histc(x * 2, 4, 0.0, 1.0) + 1, "aten.histc.default is called by Python only"),
            (lambda *x: torch._foreach_add(x, 1), "from a table, which Python makes"),
        ):
            given = [torch.rand(k + 2) for k in range(12 if "table" in words else 1)]
            with pytest.raises(ExportError, match=words):
                ptdebug.export(model, given, cpp=True)


class Attending(torch.nn.Module):
    """Products, a normalization, attention, an operator through the dispatcher, a cache, a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = torch.nn.Embedding(50, 32), torch.nn.LayerNorm(32)
        self.qkv, self.out = torch.nn.Linear(32, 96), torch.nn.Linear(32, 32)
        self.register_buffer("seen", torch.zeros(32))

    def forward(self, ids: torch.Tensor) -> Any:
        x = self.words(ids)
        query, key, value = self.qkv(self.norm(x)).chunk(3, -1)
        y = self.out(torch.nn.functional.scaled_dot_product_attention(query, key, value)) + x
        self.seen.add_(y.sum((0, 1)))
        return y, y[:, 0].median(-1).values, self.seen

    def plain(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(x)  # without a kernel

    def branch(self, x: torch.Tensor, flag: torch.Tensor) -> torch.Tensor:
        return torch.cond(flag, lambda x: self.out(x).relu(), lambda x: x.cos(), (x,)) * 2


@pytest.mark.gpu
@GPU[1]
def test_a_program_without_python_runs_on_a_gpu(run: Run, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Attending().eval().cuda()
    ids, x = torch.randint(50, (3, 7), device="cuda"), torch.randn(4, 32, device="cuda")
    flag = torch.tensor(True, device="cuda")
    points = {"forward": ptdebug.EntryPoint((ids,), dynamic_shapes={"ids": {0: "batch"}}),
              "plain": ptdebug.EntryPoint((x,), method="plain"),
              "branch": ptdebug.EntryPoint((x, flag), method="branch")}
    path = ptdebug.export(model, entry_points=points, cpp=True).save(tmp_path / "m.ptd")
    other = torch.randint(50, (5, 7), device="cuda")
    lines = run(path, ("forward", (other,)), ("plain", (x,)), ("branch", (x, flag.view(torch.uint8))),
                ("branch", (x, torch.zeros_like(flag).view(torch.uint8))), ("forward", (other.cpu(),)))
    with torch.no_grad():
        wanted = [*model(other), model.plain(x), model.branch(x, flag), model.branch(x, ~flag)]
    for line, each in zip(lines, wanted):
        torch.testing.assert_close(numbers(line, each), each.cpu(), rtol=1e-4, atol=1e-4)
    assert lines[len(wanted):] == ["error: ids has to be a strided int64 tensor on cuda:0"]
