"""Exported packages: what a model computes, in a process without the model; what is refused, and how."""
from __future__ import annotations

import json
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.cli.exporting import ExportError
from ptdebug.cli.main import main
from ptdebug.engine.package import InputError, PackageError, archive


class Net(torch.nn.Module):
    """Arguments of several kinds, a buffer that is written, tied weights, results of several kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 8)
        self.second = torch.nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.register_buffer("total", torch.zeros(8))
        self.table = torch.arange(8.0)

    def forward(self, x: torch.Tensor, scale: float = 2.0, *, masks: Any = None) -> Any:
        self.total.add_(x.sum(0))
        y = torch.relu(self.second(self.first(x))) * scale + self.table
        if masks is not None:
            y = y.masked_fill(masks["pad"][0], -1.0)
        return {"y": y, "x": x, "count": 3, "parts": [(y + 1, self.total)]}


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def package(net: Net, tmp_path_factory: pytest.TempPathFactory) -> Path:
    x, pad = torch.randn(3, 8), torch.zeros(3, 8, dtype=torch.bool)
    shapes = {"x": {0: torch.export.Dim("batch", max=64)}, "masks": {"pad": [{0: "batch"}]}}
    made = ptdebug.export(net, (x,), {"masks": {"pad": [pad]}}, dynamic_shapes=shapes)
    assert net.total.eq(0).all()  # the example call wrote to a copy
    return made.save(tmp_path_factory.mktemp("package") / "net.ptd")


LOADING = """
import sys, torch, ptdebug
program = ptdebug.load(sys.argv[1])
x, pad = torch.load(sys.argv[2])
results = [program(x, masks={"pad": [pad]}), program(masks={"pad": (pad,)}, x=x)]
torch.save([results, dict(program.weights)], sys.argv[2])
rooms = {name.split(".")[1] + "." + (name.split(".") + [""])[2] for name in sys.modules if name.startswith("ptdebug.")}
print(sorted(rooms & {"tracer.frames", "engine.lowering", "engine.scheduler", "cli.api", "engine.compile"}))
"""


def test_attention_loads_without_sympy(tmp_path: Path) -> None:
    """Which takes a second to import."""
    q = torch.randn(1, 2, 4, 8)
    made = ptdebug.export(lambda q: torch.nn.functional.scaled_dot_product_attention(q, q, q), (q,))
    path = made.save(tmp_path / "attention.ptd")
    program = ("import sys, torch, ptdebug; ptdebug.load(sys.argv[1])(torch.ones(1, 2, 4, 8)); "
               "print('sympy' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_it_runs_in_a_process_without_the_model_or_the_compiler(net: Net, package: Path, tmp_path: Path) -> None:
    x, pad = torch.randn(5, 8), torch.rand(5, 8) > 0.5
    data = tmp_path / "data.pt"
    torch.save((x, pad), data)
    done = subprocess.run([sys.executable, "-c", LOADING, str(package), str(data)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"
    (first, second), weights = torch.load(data)
    with torch.no_grad():
        wanted = net(x, masks={"pad": [pad]})
        net.total.zero_()
    assert torch.allclose(first["y"], wanted["y"], atol=1e-6) and torch.equal(first["x"], x)
    assert torch.allclose(first["parts"][0][0], wanted["parts"][0][0], atol=1e-6) and first["count"] == 3
    assert torch.allclose(second["parts"][0][1], 2 * x.sum(0), atol=1e-5)  # the buffer, after both calls
    assert torch.equal(weights["first.weight"], net.first.weight) and "second.weight" not in weights


def test_what_it_was_not_compiled_for_is_refused_by_name(package: Path) -> None:
    program = ptdebug.load(package)
    x, pad = torch.randn(4, 8), torch.zeros(4, 8, dtype=torch.bool)
    masks = {"pad": [pad]}
    assert "batch: 2 to 64" in repr(program) and "x: float32 [batch, 8] on cpu" in repr(program)
    for args, kwargs, words in (
        ((x[:1],), {"masks": {"pad": [pad[:1]]}}, "dimension 0 of x (batch) has to be 2 to 64, not 1"),
        ((x,), {"masks": {"pad": [pad[:3]]}}, "dimension 0 of masks['pad'][0] has to be batch = 4, not 3"),
        ((x[:, :7],), {"masks": masks}, "dimension 1 of x has to be 8, not 7"),
        ((x[0],), {"masks": masks}, "x has to have 2 dimensions [batch, 8], not [8]"),
        ((x.double(),), {"masks": masks}, "x has to be a strided float32 tensor on cpu, not torch.strided float64"),
        ((3,), {"masks": masks}, "x has to be a tensor, not a value of type int"),
        ((x,), {}, "forward lacks masks"),
        ((x,), {"masks": {"other": pad}}, "masks has to be a dict with the keys ['pad'], not one with ['other']"),
        ((x,), {"masks": masks, "scale": 3.0}, "takes no argument 'scale'"),
        ((x, 3.0), {"masks": masks}, "takes 1 arguments by position, not 2"),
    ):
        with pytest.raises(InputError) as caught:
            program(*args, **kwargs)
        assert words in str(caught.value)
    turned = torch.randn(8, 4).t()  # another layout is copied
    assert torch.equal(program(turned, masks=masks)["y"], program(turned.contiguous(), masks=masks)["y"])


class Decoder(torch.nn.Module):
    """A cache of keys that two entry points share."""

    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(4, 4)
        self.register_buffer("keys", torch.zeros(16, 4))

    def prefill(self, x: torch.Tensor) -> torch.Tensor:
        self.keys[: x.shape[0]] = self.project(x)
        return self.keys.sum(0)

    def decode(self, x: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        self.keys.index_copy_(0, position, self.project(x))
        return self.keys.sum(0)


def test_entry_points_share_weights_and_caches(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Decoder()
    made = ptdebug.export(model, entry_points={
        "prefill": ptdebug.EntryPoint((torch.randn(5, 4),), method="prefill", dynamic_shapes=({0: "length"},)),
        "decode": ptdebug.EntryPoint((torch.randn(1, 4), torch.tensor([7])), method="decode"),
    })
    program = ptdebug.load(made.save(tmp_path / "decoder.ptd"))
    assert list(program) == ["prefill", "decode"] and set(program.weights) == {
        "project.weight", "project.bias", "keys"}
    with torch.no_grad():
        for x, position in ((torch.randn(9, 4), None), (torch.randn(1, 4), torch.tensor([9]))):
            wanted = model.prefill(x) if position is None else model.decode(x, position)
            got = program["prefill"](x) if position is None else program["decode"](x, position)
            assert torch.allclose(got, wanted, atol=1e-6)
    assert torch.allclose(program.weights["keys"], model.keys, atol=1e-6)
    with pytest.raises(KeyError, match="no entry point 'other': there is prefill, decode"):
        program["other"]


def test_an_exported_program_is_a_model_too() -> None:
    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, pair: Any, *, scales: Any) -> Any:
            return {"y": self.layer(pair[0]) * scales["b"] + scales["a"], "first": pair[1] * 2}

    torch.manual_seed(0)
    model, x = Two().eval(), torch.randn(3, 4)
    args, kwargs = ((x, x + 1),), {"scales": {"b": torch.tensor(3.0), "a": torch.tensor(1.0)}}
    exported = torch.export.export(model, args, kwargs)
    wanted = model(*args, **kwargs)
    program = ptdebug.export(exported, args, kwargs).program()
    for got in (program(*args, **kwargs), ptdebug.compile(exported.module(), fullgraph=True)(*args, **kwargs)):
        assert torch.allclose(got["y"], wanted["y"], atol=1e-6) and torch.equal(got["first"], wanted["first"])


def test_what_keeps_a_model_from_being_a_package_is_told() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        print("now")
        return x + float(x.sum())

    class Counting(torch.nn.Module):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x + self.calls

    x = torch.ones(3)
    with pytest.raises(ExportError, match=r"cannot be exported as one graph[\s\S]*test_export.py:\d+") as caught:
        ptdebug.export(broken, (x,))
    assert "print" in str(caught.value)
    with pytest.raises(ExportError, match="sets calls: a package cannot change attributes"):
        ptdebug.export(Counting(), (x,))
    with pytest.raises(ExportError, match=r"of type builtins\.object: a package takes and returns tensors"):
        ptdebug.export(lambda x, y: x + 1, (x, object()))
    with pytest.raises(ExportError, match="computes nothing with tensors"):
        ptdebug.export(lambda x: 3, (x,))
    with pytest.raises(ValueError, match="dynamic_shapes names y"):
        ptdebug.export(lambda x: x + 1, (x,), dynamic_shapes={"y": {0: "n"}})
    with pytest.raises(ValueError, match="a and b have the same size in the example"):
        ptdebug.export(lambda x, y: x.sum() + y.sum(), (x, x.clone()), dynamic_shapes=({0: "a"}, {0: "b"}))


@pytest.mark.parametrize("kind", ["cut", "changed", "far", "torch", "cpu", "text"])
def test_a_damaged_or_foreign_package_is_told_before_anything_runs(
    package: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "other.ptd"
    content = package.read_bytes()
    words = "no package of ptdebug, or is damaged"
    if kind == "cut":
        content = content[: len(content) // 2]
    elif kind == "text":
        content = b"hello"
    elif kind == "changed":
        content = content.replace(b"\x7fELF", b"\x7fELG", 1)
    elif kind == "far":  # the manifest is said to be at a place of 64 bits
        entry, end = content.index(b"PK\1\2"), content.rindex(b"PK\5\6")
        rest = entry + 46 + len("manifest.json")
        place = struct.pack("<HHQ", 1, 8, (1 << 64) - 20)
        content = b"".join([
            content[:entry + 30], struct.pack("<H", len(place)), content[entry + 32:entry + 42], b"\xff" * 4,
            content[entry + 46:rest], place, content[rest:end + 12], struct.pack("<I", end - entry + len(place)),
            content[end + 16:]])
    path.write_bytes(content)
    if kind in ("torch", "cpu"):
        with zipfile.ZipFile(package) as old, zipfile.ZipFile(path, "w") as new:
            for name in old.namelist():
                text = old.read(name)
                if name == "manifest.json":
                    manifest = json.loads(text) | ({"torch": "1.0.0"} if kind == "torch" else {"cpu": ["avx9000"]})
                    text = json.dumps(manifest).encode()
                new.writestr(name, text)
        words = "for torch 1.0.0, and this is" if kind == "torch" else "for a CPU with avx9000, which this one lacks"
    monkeypatch.setattr("ptdebug.engine.package.program.call_of", None)  # nothing is loaded
    with pytest.raises(PackageError, match=words):
        ptdebug.load(path)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.py"
    script.write_text("import torch\nmodel = torch.nn.Linear(4, 2)\nunused = torch.nn.Linear(4, 2)\n"
                      "model(torch.ones(3, 4))\n")
    out = tmp_path / "model.ptd"
    assert main(["export", f"{script}:model", "--dynamic", "input:0=batch", "-o", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["entry_points"] == ["forward"] and told["bytes"] == out.stat().st_size
    assert ptdebug.load(out)(torch.ones(5, 4)).shape == (5, 2)
    assert archive.read(out).entries[0].signature.symbols[0].title == "batch"
    for model, words in ((f"{script}:unused", "never calls unused"), (f"{script}:modle", "did you mean model"),
                         ("nothing.py:model", "no file nothing.py"), (str(script), "is not SCRIPT:NAME")):
        assert main(["export", model, "-o", str(out)]) == 2
        assert words in capsys.readouterr().err
