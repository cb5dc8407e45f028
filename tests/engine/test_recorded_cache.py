"""Recordings of graphs from the cache on disk: what a cold run records, record by record, with nothing missing."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from ptdebug.artifacts import decode, kept_stages
from ptdebug.artifacts.context import CompileContext
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.records import Absent, Decision, Kernel
from ptdebug.dependencies import msgspec
from ptdebug.engine.compile import compile_graph
from ptdebug.engine.graph_cache import disk
from ptdebug.engine.graph_cache.cache import load_or_compile
from ptdebug.engine.graph_cache.key import key_of, recorded_key_of

from .programs import Captured, Keeping, capture, recording_context

PROGRAM = '''
import sys, ptdebug, torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
compiled = ptdebug.compile
mlp = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3), nn.LogSoftmax(-1))
small = nn.Linear(4, 4).eval()

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * g

def train(x, target):
    return nn.functional.nll_loss(mlp(x), target)

def squares(x, w):
    y = Square.apply(x.sin())
    y = checkpoint(lambda z: (z @ w).tanh(), y, use_reentrant=False)
    print("a break", end="")
    return (y * 2).sum()

def sizes(x):
    return (x * x.shape[0]).cumsum(0)[: x.shape[0] // 2] + x.sum(0)

def written(x, y):
    x.add_(y)
    return x.t(), x[0], y.sum()

def branch(x):
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

def run():
    train_ = compiled(train)
    train_(torch.randn(5, 8), torch.arange(5) % 3).backward()
    compiled(squares)(torch.randn(3, 4, requires_grad=True), torch.randn(4, 4)).backward()
    for n in (4, 6, 8):
        compiled(sizes)(torch.randn(n, 3))
    compiled(written)(torch.randn(3, 3), torch.randn(3, 3))
    compiled(branch)(torch.randn(3))
    with torch.no_grad():
        compiled(small)(torch.randn(2, 4))
    return [p.grad.sum().item() for p in mlp.parameters()]

if sys.argv[1:]:
    with ptdebug.record(sys.argv[1], out="."):
        print(run())
else:
    print(run())
'''


def _run(folder: Path, *words: str) -> str:
    settings = {**os.environ, "PTDEBUG_GRAPH_CACHE": "1", "PTDEBUG_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "program.py", *words], cwd=folder, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _artifacts(path: Path) -> dict[tuple[str, str, str], Any]:
    """The records of a recording as JSON, without seconds, cache marks and addresses of this process."""
    with Recording.open(path) as recording:
        return {
            (compile_.id, info.stage, info.name): _plain(recording.artifact(compile_.id, info.stage, info.name))
            for compile_ in recording.compiles() for info in recording.artifacts(compile_.id)
        }


MEASURED = ("seconds", "cached", "check_ns", "together", "traced")


def _plain(record: Any) -> Any:
    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: bare(v) for k, v in value.items() if k not in MEASURED}
        if isinstance(value, list):
            return [bare(v) for v in value]
        return re.sub(r"0x[0-9a-f]+", "0x", value) if isinstance(value, str) else value

    return bare(msgspec.json.decode(msgspec.json.encode(record, enc_hook=repr)))


def _decisions(path: Path) -> list[tuple[str, Any]]:
    with Recording.open(path) as recording:
        return [(owner, _plain(decision)) for owner, decision in recording.decisions() if decision.kind != "cache"]


def _loads(path: Path) -> dict[str, list[str]]:
    """What was decided on the cache, for each compilation that has engine stages."""
    found: dict[str, list[str]] = {}
    with Recording.open(path) as recording:
        for owner, decision in recording.decisions(kind="cache"):
            found.setdefault(owner, []).append(decision.chosen)
    return found


def _holes(path: Path) -> list[tuple[str, Any]]:
    with Recording.open(path) as recording:
        return [(owner, _plain(absent)) for owner, absent in recording.absents()]


def test_a_warm_recording_holds_what_a_cold_one_holds(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    outputs = [_run(tmp_path, name) for name in ("cold", "warm")]
    assert outputs[0] == outputs[1]
    cold, warm = tmp_path / "cold", tmp_path / "warm"
    branch = next(owner for owner, chosen in _loads(cold).items() if chosen == ["compile"])  # which is never kept
    assert _loads(cold) == {branch: ["compile"]}
    assert {owner for owner, chosen in _loads(warm).items() if chosen != ["load"]} == {branch}, _loads(warm)
    assert len(_loads(warm)) == 8
    expected, found = _artifacts(cold), _artifacts(warm)
    assert list(expected) == list(found)
    assert [key for key in expected if expected[key] != found[key]] == []
    assert {stage for _, stage, _ in found} >= {
        "forward", "joint", "partition", "backward", "passes", "loop_ir", "fusion", "schedule", "kernels", "wrapper"}
    assert _decisions(cold) == _decisions(warm) and _holes(cold) == _holes(warm)
    with Recording.open(warm) as recording:
        kernels = [record for _, record in recording.records(Kernel) if record.path]
        assert kernels and all(kernel.cached for kernel in kernels)
        [file] = [path for path in recording.sources() if path.endswith("program.py")]
        assert recording.source(file) == PROGRAM


# ---- one graph ------------------------------------------------------------------------------------------------------
@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, switched on."""
    monkeypatch.setenv("PTDEBUG_CACHE_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("PTDEBUG_GRAPH_CACHE", "1")
    return tmp_path / "own" / "graphs"


X = torch.arange(6.0).reshape(2, 3)


def sine(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * 2


def never() -> Any:
    raise AssertionError("this graph is on disk")


def _recorded(captured: Captured, compiler: Any = lambda: compile_graph, **settings: Any) -> Keeping:
    context, keeping = recording_context(**settings)
    compiled = load_or_compile(captured, context, compiler)
    torch.testing.assert_close(compiled(X.clone())[0], sine(X))
    assert context.notes == []
    return keeping


def test_what_was_compiled_unrecorded_is_compiled_once_more_and_kept() -> None:
    load_or_compile(capture(sine, X), CompileContext(), lambda: compile_graph)
    with pytest.raises(AssertionError, match="on disk"):  # not loaded with a hole where its stages are
        _recorded(capture(sine, X), never)
    cold = _recorded(capture(sine, X))
    warm = _recorded(capture(sine, X), never)
    assert list(cold.records) == list(warm.records) and ("kernels", "cpp") in warm.records
    for key, record in warm.records.items():
        assert _plain(decode.revive(record)) == _plain(cold.records[key])


def test_what_was_compiled_recorded_is_loaded_unrecorded() -> None:
    _recorded(capture(sine, X))
    compiled = load_or_compile(capture(sine, X), CompileContext(), never)
    torch.testing.assert_close(compiled(X.clone())[0], sine(X))


def _at(line: int) -> Captured:
    captured = capture(sine, X)
    for node in captured.module.graph.nodes:
        node.meta["module"] = f"layers.{line}"
    return captured


def test_a_graph_of_other_lines_has_records_of_its_own() -> None:
    """The compiled graph is the same; what a recording says of it is not."""
    first, second = _at(1), _at(2)
    key = key_of(first, CompileContext())
    assert key == key_of(second, CompileContext())
    assert recorded_key_of(key, first, CompileContext()) != recorded_key_of(key, second, CompileContext())
    for captured in (_at(1), _at(2)):
        with pytest.raises(AssertionError, match="on disk"):
            _recorded(captured, never)
        _recorded(captured)
    modules = [{node.module for node in _recorded(_at(line), never).records["forward", ""].nodes} for line in (1, 2)]
    assert "layers.1" in modules[0] and "layers.2" in modules[1] and not modules[0] & modules[1] - {""}


def test_what_is_forced_is_compiled() -> None:
    _recorded(capture(sine, X))
    again = _recorded(capture(sine, X), overrides={"cache:graph": "compile"})
    assert [(d.chosen, d.forced) for d in again.decisions if d.kind == "cache"] == [("compile", True)]


def test_a_library_that_is_gone_is_compiled_with_its_records(cache: Path) -> None:
    _recorded(capture(sine, X))
    for library in (cache.parent / "cpp").glob("*.so"):
        library.unlink()
    kernel = _recorded(capture(sine, X)).records["kernels", "cpp"]
    assert isinstance(kernel, Kernel) and not kernel.cached
    assert _recorded(capture(sine, X), never)


def test_damaged_records_are_made_again(cache: Path) -> None:
    _recorded(capture(sine, X))
    captured = capture(sine, X)
    key = key_of(captured, CompileContext())
    content = disk.read(key)  # of another form: no records
    assert content is not None
    disk.write(recorded_key_of(key, captured, CompileContext()), content)
    context, keeping = recording_context()
    load_or_compile(captured, context, lambda: compile_graph)
    assert "cannot be used" in context.notes[0] and ("kernels", "cpp") in keeping.records
    assert _recorded(capture(sine, X), never)


def test_what_was_told_comes_back_in_order() -> None:
    first, second = Keeping(), Keeping()
    keeping = kept_stages.KeepingRecorder(first)
    decision = Decision("a:b", "a", "b", (), "x", "x", "why")
    keeping.decision("0/0", decision)
    keeping.absent("0/0", "joint", "inference")
    keeping.record("0/0", "kernels", "cpp", Kernel("cpp", "cpp", ()))
    assert keeping.told.absents == [Absent("joint", "inference")]
    kept_stages.tell(kept_stages.unpack(kept_stages.pack(keeping.told)), "1/0", second)
    assert first.decisions == second.decisions == [decision]
    assert first.absents == second.absents == {"joint": "inference"}
    assert second.records == {("kernels", "cpp"): Kernel("cpp", "cpp", (), cached=True)}
