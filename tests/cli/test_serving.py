"""Warm-up, and cache bundles: what a second machine of the same kind starts with, and what it refuses."""
from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import ptdebug
import pytest
import torch
from ptdebug.cli import api, serving
from ptdebug.engine.graph_cache import bundle
from ptdebug.engine.graph_cache.history import HISTORY

PROGRAM = """
import sys, torch, ptdebug
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
torch.manual_seed(0)
if sys.argv[1] == "load":
    print(ptdebug.load_cache("model.cache", trust=True))
done = ptdebug.warm_up(model, [torch.rand(2, 4), (torch.rand(3, 4),)])
print([graph.loaded for graph in done.graphs], done)
if sys.argv[1] == "save":
    print(ptdebug.save_cache("model.cache"))
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PTDEBUG_GRAPH_CACHE", "1")  # tests have it off
    api.reset()
    HISTORY.clear()
    yield


def run(mode: str, folder: Path, cache: str) -> str:
    """What the program prints on a machine that has the cache folder `cache`."""
    environment = {**os.environ, "PTDEBUG_CACHE_DIR": str(folder / cache), "PTDEBUG_GRAPH_CACHE": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM, mode], cwd=folder, env=environment, capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_another_machine_starts_warm(tmp_path: Path) -> None:
    first = run("save", tmp_path, "first")
    assert first.startswith("[False, False]") and "model.cache: 2 graphs" in first
    second = run("load", tmp_path, "second")
    assert "model.cache: 2 graphs" in second and "[True, True]" in second and "forward (" in second
    made, taken = ({p.name for p in (tmp_path / cache / "cpp").glob("*.so")} for cache in ("first", "second"))
    assert taken and taken <= made  # nothing was built


def test_a_warm_up_says_what_it_did() -> None:
    def scaled(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
        return torch.rand(3) + x * factor

    state = torch.get_rng_state()
    compiled = ptdebug.compile(scaled)
    done = ptdebug.warm_up(compiled, [torch.ones(3), ((torch.ones(3),), {"factor": 2.0}), {"x": torch.ones(3, 3)}])
    assert torch.equal(torch.get_rng_state(), state) and done.model is compiled
    assert [len(call.graphs) for call in done.calls] == [1, 0, 1]
    lines = str(done).splitlines()
    assert lines[1].startswith("(float32[3], factor=2.0): nothing to compile, ")
    assert lines[2].startswith("(x=float32[3, 3]): ") and "scaled" in lines[3]
    with pytest.raises(RuntimeError) as error:
        ptdebug.warm_up(compiled, [torch.ones(3), torch.ones(7, 2)])
    assert error.value.__notes__ == ["ptdebug.warm_up: with inputs 1, (float32[7, 2])"]


def written(folder: Path) -> Path:
    """A bundle of one small graph."""
    ptdebug.warm_up(lambda x: x * 3 + 1, [torch.ones(5)])
    path = folder / "small.cache"
    assert ptdebug.save_cache(path).libraries == 1
    return path


def rewritten(path: Path, change: dict[str, bytes]) -> Path:
    """The bundle with other files in it."""
    with zipfile.ZipFile(path) as old:
        files = {name: old.read(name) for name in old.namelist()} | change
    with zipfile.ZipFile(path, "w") as new:
        for name, content in files.items():
            new.writestr(name, content)
    return path


def manifest_of(path: Path) -> dict[str, object]:
    with zipfile.ZipFile(path) as file:
        return json.loads(file.read("manifest.json"))


def test_a_bundle_is_loaded_on_trust_only(tmp_path: Path) -> None:
    path = written(tmp_path)
    with pytest.raises(serving.UntrustedCacheError, match="1 shared libraries and 1 graphs: code that would run"):
        ptdebug.load_cache(path)
    assert ptdebug.load_cache(path, trust=True).differs == ()


def test_another_machine_or_version_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path)
    monkeypatch.setattr(bundle, "install", lambda _: pytest.fail("it was installed"))
    manifest = manifest_of(path)
    changed = manifest | {"torch": "2.9.0 abc", "cpu": f"{manifest['cpu']} avx1024"}
    loaded = ptdebug.load_cache(rewritten(path, {"manifest.json": json.dumps(changed).encode()}), trust=True)
    assert loaded.differs[0].startswith("torch 2.9.0 abc, here 2") and "avx1024" in loaded.differs[1]
    assert "nothing was loaded" in caplog.text


CUT, FLIPPED, ENCRYPTED, SHIFTED = "cut", "flipped", "encrypted", "shifted"


@pytest.mark.parametrize("change", [
    {"libraries/0.so": b"other code"}, {"manifest.json": b"{}"}, {"manifest.json": b"\xff"},
    CUT, FLIPPED, ENCRYPTED, SHIFTED,
])
def test_a_damaged_bundle_is_refused(change: dict[str, bytes] | str, tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    if isinstance(change, dict):
        rewritten(path, change)
    elif change == CUT:
        path.write_bytes(whole[:200])
    else:  # the manifest's compressed bytes begin at 43; its flags in the directory; the directory's size at the end
        directory = whole.index(b"PK\1\2")
        at, other = {FLIPPED: (43, b"\xff" * 8), ENCRYPTED: (directory + 8, b"\1"),
                     SHIFTED: (len(whole) - 10, b"\xff" * 3)}[change]
        path.write_bytes(whole[:at] + other + whole[at + len(other):])
    with pytest.raises(bundle.BundleError, match=r"small\.cache: (it is no cache bundle|.* is not what was)"):
        ptdebug.load_cache(path, trust=True)


def test_keys_lead_nowhere_else(tmp_path: Path) -> None:
    path = written(tmp_path)
    manifest = manifest_of(path)
    manifest["graphs"][0]["key"] = "../../evil"  # type: ignore[index]
    with pytest.raises(bundle.BundleError, match="no valid key"):
        ptdebug.load_cache(rewritten(path, {"manifest.json": json.dumps(manifest).encode()}), trust=True)


def test_artifacts_as_in_torch() -> None:
    assert serving.save_cache_artifacts() is None
    ptdebug.warm_up(lambda x: x * 3 + 1, [torch.ones(5)])
    saved = serving.save_cache_artifacts()
    assert saved is not None and zipfile.is_zipfile(io.BytesIO(saved[0]))
    loaded = serving.load_cache_artifacts(saved[0])
    assert loaded.artifacts == saved[1].artifacts and not loaded.empty()
    assert serving.load_cache_artifacts(b"nothing of ours") is None
