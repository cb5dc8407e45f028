"""Exports for GPUs that are not there (`--target cuda:90`): compiled for their compute capabilities, refused by name
where they are not."""
from __future__ import annotations

import re
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.cli.errors import ExportError
from ptdebug.cli.export_targets import capabilities_of
from ptdebug.engine.package import PackageError, archive, cpp_interface, gpus
from ptdebug.engine.runtime import cuda_kernels
from torch import nn
from torch.nn import functional as F

from tests.warm_process import in_copy

pytest.importorskip("triton")
ABSENT = not torch.cuda.is_available()


class Decoder(nn.Module):
    """Attention over a cache that it writes, kernels of one and of two launches, a constant, a factory."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)
        self.register_buffer("seen", torch.zeros(32))

    def forward(self, x: torch.Tensor, scale: float = 2.0) -> Any:
        query, key, value = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 2, 16).permute(2, 0, 3, 1, 4)
        y = self.out(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)) * scale
        self.seen.add_(y.sum((0, 1)))
        return {"y": y + torch.arange(32, device=x.device), "first": y[:, 0]}, self.seen


def exported(*targets: str, **settings: Any) -> tuple[Decoder, Any]:
    torch.manual_seed(0)
    model = Decoder().eval().half()
    return model, ptdebug.export(model, (torch.randn(2, 8, 32).half(),), target=targets, **settings)


def architectures(package: archive.Package, capability: int) -> set[bytes]:
    """What the machine code of the launches for a capability says that it is for."""
    codes = [code for entry in package.entries for code in entry.half.code if code.capability == capability]
    assert codes
    files = {each.file for code in codes for launch in code.launches for each in (launch.usual, launch.general)}
    return {found for file in files for found in re.findall(rb"sm_(\d+)", package.binaries[file])}


def test_a_package_has_machine_code_for_each_target(tmp_path: Path) -> None:
    model, made = exported("cuda:80", "cuda:90", dynamic_shapes={"x": {0: torch.export.Dim("batch", max=64)}})
    package = made.package
    assert architectures(package, 80) == {b"80"} and architectures(package, 90) == {b"90"}
    assert str(made).splitlines()[1].split(",")[0] == "  x: float16 [batch"
    assert "on cuda:0" in str(made)
    (entry,) = package.entries
    assert entry.half.native is not None and not cpp_interface.reason_against(entry)
    assert not model.seen.any() and package.weights["seen"].device.type == "cpu"
    chosen = {(d["kind"], d["chosen"]): d["why"] for d in archive.decisions_of(package.decisions)}
    assert chosen["sdpa", "flash"].startswith("estimated, as the GPU is not here")
    with zipfile.ZipFile(made.save(tmp_path / "m.ptd")) as file:
        assert b'"device":"cuda:0"' in file.read("manifest.json")
        text = file.read("cpp.txt").decode()
    assert re.search(r"^gpu\t0\t\t\d+\t80\t90$", text, re.M)
    launches = [line.split("\t")[1] for line in text.splitlines() if line.startswith("launch")]
    assert launches.count("80") == launches.count("90") > 0


@pytest.mark.skipif(not ABSENT, reason="there is a GPU")
def test_where_its_gpu_is_not_it_says_so(tmp_path: Path) -> None:
    _, made = exported("cuda:80", "cuda:90")
    words = r"was compiled for a GPU \(compute capability 8\.0 or 9\.0\), and "
    with pytest.raises(PackageError, match=words):
        ptdebug.load(made.save(tmp_path / "m.ptd"))
    with pytest.raises(PackageError, match=words):
        made.program()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A machine with one GPU, as torch and the driver tell of it."""
    here = SimpleNamespace(driver=13040, capability=(9, 0))
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(gpus, "driver", lambda: SimpleNamespace(version=lambda: here.driver))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: here.capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"GPU {index}")
    return here


def test_one_of_several_targets_has_to_be_there(machine: SimpleNamespace) -> None:
    _, made = exported("cuda:80", "cuda:90")
    package = made.package
    assert not gpus.why_not(package.gpus, package.cuda)
    codes = cuda_kernels.for_this_machine(package.entries[0].half.code)
    assert {code.capability for code in codes} == {90} and len(codes) == len({code.name for code in codes})
    machine.capability = (8, 9)
    assert gpus.why_not(package.gpus, package.cuda) == (
        "a GPU (compute capability 8.0 or 9.0), and cuda:0 (GPU 0) has 8.9: export it there, or with --target cuda:89")
    machine.driver = 11080
    assert f"with CUDA {package.cuda}, and the driver here is for CUDA 11.8" in gpus.why_not(package.gpus, package.cuda)


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.layer(x).relu(), lambda x: x.cos(), (x,)) * 2


def test_graphs_with_branches_and_several_entry_points() -> None:
    points = {name: ptdebug.EntryPoint((torch.rand(rows, 16),)) for name, rows in (("one", 1), ("four", 4))}
    package = ptdebug.export(Branching().eval(), entry_points=points, target="cuda:90").package
    for entry in package.entries:
        assert entry.flow is not None
        codes = [code for _, half in entry.named_halves() for code in half.code]
        assert {(code.capability, str(code.device)) for code in codes} == {(90, "cuda:0")}


def test_what_is_no_target_is_refused() -> None:
    assert capabilities_of(["cuda:90", "cuda:80", "cuda:90"]) == (90, 80) and capabilities_of(()) == ()
    for target in ("cuda", "cuda:9.0", "sm_90"):
        with pytest.raises(ValueError, match=f"the target '{target}' is no compute capability of CUDA"):
            ptdebug.export(nn.Linear(2, 2), (torch.ones(2),), target=target)


def test_without_triton_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptdebug.cli.export_targets.find_spec", lambda name: None)
    with pytest.raises(ExportError, match=r"Triton, which is not installed \(pip install triton\)"):
        ptdebug.export(nn.Linear(2, 2), (torch.ones(2),), target="cuda:90")


SCRIPT = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8)).eval()
print(model(torch.ones(2, 8)).shape)
"""


def test_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    given = ("-m", "ptdebug", "export", "script.py:model", "-o", "m.ptd", "--target", "cuda:90")
    done = in_copy(*given, cwd=tmp_path, timeout=280)
    assert done.returncode == 0, done.stderr
    assert "float32 [2, 8] on cuda:0" in done.stdout + done.stderr
    assert any(name.endswith(".cubin") for name in zipfile.ZipFile(tmp_path / "m.ptd").namelist())
