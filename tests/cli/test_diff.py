"""`ptdebug diff` on recordings of two versions of a program, its recompilations and its stages."""
from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import ptdebug
import pytest
import torch
from ptdebug.artifacts.diff.compilations import Comparison, Side
from ptdebug.artifacts.recording import Recording
from ptdebug.cli.main import main
from ptdebug.tracer.frames import dispatch

BEFORE = '''\
import torch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(8, 8)

    def forward(self, x):
        h = self.up(x).sin()
        if h.sum() > 0:
            h = h * 2
        return x + h.cos()

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(x).relu() + 1
'''
BRANCH = "        if h.sum() > 0:\n            h = h * 2\n"
AFTER = BEFORE.replace(BRANCH, "        h = torch.where(h.sum() > 0, h * 2, h)\n")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    for name, program in (("before", BEFORE), ("after", AFTER)):
        path = folder / f"{name}_model.py"
        path.write_text(program)
        spec = importlib.util.spec_from_file_location("model", path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        dispatch.reset()
        torch.manual_seed(0)
        with ptdebug.record(name, out=folder), torch.no_grad():
            net = ptdebug.compile(module.Net())
            net(torch.ones(4, 8))
            net(torch.ones(6, 8))
    return folder


@pytest.fixture
def diff(home, capsys, monkeypatch):
    monkeypatch.setenv("PTDEBUG_HOME", str(home))

    with Recording.open(home / "after") as after:
        ids = [info.id for info in after.compiles()]  # frames are counted over the whole process

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["diff", *(a.replace("FIRST", ids[0]).replace("SECOND", ids[1]) for a in arguments)])
        return code, *capsys.readouterr()

    return run


def test_an_edit_that_removes_a_break(diff):
    code, out, _ = diff("before", "after", "--summary")
    lines = out.splitlines()
    assert code == 1
    assert lines[0].startswith("1 graph break gone: before_model.py:10: if h.sum() > 0:  [data-dependent-branch]")
    assert any(line.startswith("graphs: ") for line in lines)
    assert " there)" in out  # the function after the break


def test_a_recording_and_itself(diff):
    assert diff("after", "after", "--summary") [:2] == (0, "no differences in 2 compilations\n")


def test_two_compilations_of_one_function(diff):
    code, out, _ = diff("after:FIRST", "after:SECOND")
    assert code == 1
    assert "size 4 -> s0 in" in out.splitlines()[0]
    assert "recompiled: x.size(0) was 4, is now 6" in out
    assert "extent 4 -> s0" in out
    assert "alike: bytecode" in out


def test_two_stages_of_one_compilation_say_what_became_of_each_node(diff):
    code, out, _ = diff("after:FIRST:capture", "after:FIRST:forward")
    assert code == 1
    assert "became t, addmm" in out and "- linear = " in out


def test_json_has_the_schema_and_what_changed(diff):
    code, out, _ = diff("before", "after", "--json")
    document = json.loads(out)
    assert code == 1 and document["differs"] is True and document["schema"].startswith("ptdebug/")
    (gone,) = document["breaks"]["changes"]
    assert (gone["kind"], gone["second"]) == ("removed", "")
    assert {"first", "second", "stages", "alike", "why", "summary"} == set(document["compilations"][0])


@pytest.mark.parametrize("arguments, message", [
    (("after", "after:FIRST"), "not of one kind"), (("after:FIRST", "after:FIRST:forward"), "name a stage in both"),
    (("after:FIRST:backward", "after:FIRST:backward"), "has no backward"),
])
def test_what_cannot_be_compared_is_said(diff, arguments, message):
    code, _, err = diff(*arguments)
    assert code == 2 and message in err


class Trained(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.relu() * 2, -1).sum(0).cos()


def test_the_same_training_twice(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setenv("PTDEBUG_HOME", str(tmp_path))
    for name in ("one", "two"):
        dispatch.reset()
        with ptdebug.record(name, out=tmp_path):
            ptdebug.compile(Trained())(torch.ones(4, 8, requires_grad=True)).sum().backward()
    assert main(["diff", "one", "two"]) == 0, capsys.readouterr().out
    with Recording.open(tmp_path / "one") as one, Recording.open(tmp_path / "two") as two:
        ids = [next(info.id for info in recording.compiles()) for recording in (one, two)]
        assert one.artifacts(ids[0], "schedule", name="backward")
        found = list(Comparison(Side.of(one, ids[0]), Side.of(two, ids[1])).stage("schedule"))
    assert {diff.name for diff in found} == {"", "backward"} and all(diff.same and not diff.changes for diff in found)


def test_one_artifact_is_compared_with_that_of_its_name(diff, home):
    with Recording.open(home / "after") as after:
        ids = [info.id for info in after.compiles()]
        names = [{info.name for info in after.artifacts(compile_id, "loop_ir")} for compile_id in ids]
    name = min(names[0] & names[1])
    code, out, _ = diff(f"after:FIRST:loop_ir:{name}", f"after:SECOND:loop_ir:{name}")
    assert code == 1 and out.startswith(f"loop_ir:{name}: ")
    code, _, err = diff("after:FIRST:loop_ir:nothing", "after:SECOND:loop_ir:nothing")
    assert code == 2 and ":loop_ir has no nothing; there are: " in err
