"""The failure card: from an exception to the line, the node, the artifact and a repro."""
from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import ptdebug
import pytest
import torch
from ptdebug.artifacts.failures import failures
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.store import RecordingWriter
from ptdebug.cli import api
from ptdebug.engine.lowering.walk import Walk

Command = Callable[..., subprocess.CompletedProcess[str]]
INDEX = """
import torch

@torch.compile
def f(x, index):
    h = x.sin() * 2
    return h[index].sum()

print("first", f(torch.ones(5), torch.tensor([1, 2])).item())
print("second")
f(torch.ones(5), torch.tensor([1, 9]))
"""
WHOLE = """
import torch

@torch.compile(fullgraph=True)
def f(x):
    h = x.sin()
    return h + 1 if h.sum() > 0 else h

f(torch.ones(5))
"""


def test_from_the_exception_to_the_node(warm: Command, tmp_path: Path) -> None:
    (tmp_path / "index.py").write_text(INDEX)
    done = warm("run", "--name", "r", "--keep-output", "3", "--json", "s.json", "index.py")
    assert done.returncode == 1 and done.stdout.splitlines()[-1] == "second"
    assert "raised at index.py:7 in f (compilation 0/0, node getitem): raised while this graph ran" in done.stderr
    assert "repro: ptdebug repro @:0/0 --call 1 -o repro.py" in done.stderr
    document = json.loads((tmp_path / "s.json").read_text())
    [found] = document["failures"]
    assert (found["kind"], found["line"], found["node"]) == ("exception", 7, "capture#getitem")
    assert found["title"].startswith("IndexError: index 9 is out of bounds")
    assert document["output"].splitlines()[-1].startswith("IndexError") and document["options"]["keep-output"] == 3
    shown = warm("show", "r").stdout
    assert "what failed" in shown and "return h[index].sum()" in shown and "traceback" in shown
    command = next(line.split("ptdebug ")[1] for line in shown.splitlines() if "look at" in line)
    assert "getitem = " in warm(*command.split()).stdout
    assert warm("repro", "r:0/0", "--call", "1", "-o", "repro.py").returncode == 0
    assert "index 9" not in (tmp_path / "repro.py").read_text() and "9])" in (tmp_path / "repro.py").read_text()


@pytest.mark.parametrize("writes", [False, True])
def test_inputs_that_a_call_wrote_before_it_raised_are_not_kept(writes: bool, tmp_path: Path) -> None:
    """They are not those of the call."""
    @api.compile(backend="eager")
    def f(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        if writes:
            x.add_(1)
        return (x * 2)[index]

    with api.record(out=str(tmp_path)) as recording:
        f(torch.zeros(4), torch.tensor([0]))
        with pytest.raises(IndexError):
            f(torch.zeros(4), torch.tensor([9]))
        kept = [info.name for info in recording.artifacts(kind="SavedInputs")]
    assert kept == (["inputs"] if writes else ["inputs", "inputs_1"])


def test_a_compilation_that_fails(warm: Command, tmp_path: Path) -> None:
    (tmp_path / "whole.py").write_text(WHOLE)
    assert warm("run", "--name", "r", "whole.py").returncode == 1
    [found] = json.loads(warm("show", "r", "--json").stdout)["failures"]
    assert (found["kind"], found["compile"], found["stage"], found["line"]) == ("exception", "0/0", "capture", 7)
    assert "fullgraph=True" in found["title"]


@pytest.mark.parametrize("training", [False, True])
def test_an_internal_error_names_stage_and_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, training: bool,
) -> None:
    api.reset()
    own = Walk._call

    def planted(self, node):
        if "sinh" in node.name:
            raise NameError("planted")
        return own(self, node)

    monkeypatch.setattr(Walk, "_call", planted)

    def f(x):
        h = x.sin() * 2
        return h.sinh().sum()

    x = torch.ones(3, requires_grad=training)
    with ptdebug.record("r", out=str(tmp_path)) as recorded:
        assert torch.equal(ptdebug.compile(f)(x), f(x))
    with Recording.open(recorded.path) as recording:
        [found] = failures(recording)
    assert (found.kind, found.stage, found.node) == ("internal", "lowering", "forward#sinh")
    assert found.source == "return h.sinh().sum()" and found.artifact.endswith("/0:forward") and found.row
    assert "NameError: planted" in found.text


def test_nothing_failed(tmp_path: Path) -> None:
    with ptdebug.record("r", out=str(tmp_path)) as recorded:
        ptdebug.compile(torch.sin)(torch.ones(2))
    with Recording.open(recorded.path) as recording:
        assert failures(recording) == []


@pytest.mark.parametrize("compiler, frames, about", [
    ("ptdebug", False, "where it was raised was not recorded"), ("torch", True, "is not known"),
    ("ptdebug", True, "no compiled function was running"),
])
def test_whether_a_compiled_function_was_running_is_said_where_it_is_known(
    tmp_path: Path, compiler: str, frames: bool, about: str,
) -> None:
    writer = RecordingWriter(tmp_path / "r", command=["a.py"], compiler=compiler)
    writer.begin("0/0", "forward", "a.py", 1)
    writer.end("0/0", "compiled", "", {})
    writer.set_meta("exception", "Traceback\nValueError: x")
    if frames:
        frame = {"file": "a.py", "line": 2, "function": "M.forward", "column": 0, "end_line": 2, "end_column": 1}
        writer.set_meta("raised", {"type": "ValueError", "message": "x", "frames": [frame]})
    writer.close(1)
    with Recording.open(tmp_path / "r") as recording:
        [found] = failures(recording)
    assert about in found.about
