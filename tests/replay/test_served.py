"""The rungs for which the program runs again, each call compared with eager: right programs are not accused."""
from __future__ import annotations

import json
from pathlib import Path

import pytest
from ptdebug.artifacts.recording import Recording
from ptdebug.cli.commands.replay import CHECKED
from ptdebug.cli.main import main
from ptdebug.replay.ladder.calls import call_rungs
from ptdebug.replay.program.program import ProgramAbsent
from ptdebug.replay.program.served import Blame, Served, ServedCalls
from ptdebug.replay.verdicts.compare import Comparison

from tests.warm_process import in_copy

PROGRAM = '''
import random
import torch

TOTAL = torch.zeros(4)
SEEN = []
NET = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5))


class Counter:
    def __init__(self):
        self.calls = 0


@torch.compile
def effects(x, counter, function=torch.sin):
    global TOTAL
    TOTAL = TOTAL + function(x)
    counter.calls += 1
    SEEN.append(TOTAL * 2)
    x.add_(1)
    return TOTAL, x


@torch.compile
def broken(x):
    y = x * 2
    print("here", random.random())
    with torch.no_grad():
        z = y.exp()
    return y * z


counter = Counter()
for function in (torch.sin, torch.sin, torch.cos):
    effects(torch.ones(4), counter, function)
broken(torch.ones(4, requires_grad=True)).sum().backward()
net = torch.compile(NET)
for _ in range(2):
    net(torch.randn(3, 4)).sum().backward()
with torch.no_grad():
    net(torch.randn(3, 4))
'''


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of the program."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "program.py").write_text(PROGRAM)
    in_copy("ptdebug", "run", "-q", "-o", ".", "--name", "r", "program.py", cwd=folder).check_returncode()
    return folder / "r"


def test_right_calls_are_equal(recorded, capsys):
    assert main(["replay", str(recorded), "--rung", "guards", "--rung", "output_bytecode", "--json"]) == 0
    rungs = json.loads(capsys.readouterr().out)["rungs"]
    with Recording.open(recorded) as recording:
        ids = [c.id for c in recording.compiles() if c.status == "compiled" and "capture" in recording.stages(c.id)]
    assert {(r["compile"], r["stage"]) for r in rungs} >= {(i, s) for i in ids for s in ("guards", "output_bytecode")}
    assert not [r for r in rungs if r["verdict"] not in ("equal", "absent")]
    ran = {r["compile"]: r["why"] for r in rungs if r["verdict"] == "equal"}
    assert set(ran) >= set(ids) and any(why.startswith("2 calls of the program that it serves") for why in ran.values())


def test_another_program_is_not_run(recorded):
    with Recording.open(recorded) as recording:
        served = ServedCalls(recording, "no.such:module")
        with pytest.raises(ProgramAbsent, match=r"ended with exit code 1 .*No module named 'no'"):
            served.ask("0/0")
        program = recorded.parent / "program.py"
        program.write_text(PROGRAM + "# changed")
        with pytest.raises(ProgramAbsent, match="has changed since"):
            ServedCalls(recording, CHECKED).ask("0/0")
        program.write_text(PROGRAM)


@pytest.mark.parametrize(("blamed", "wrong"), [
    ("guards", "guards"), ("output_bytecode", "output_bytecode"), ("capture", "output_bytecode")])
def test_a_rung_is_not_different_for_what_another_did(blamed, wrong):
    class Answers:
        def ask(self, compile_id):
            return Served(2, Blame(blamed, "the result", Comparison("different", why="1 of 1 elements differ"), None))

    for asked in (("guards",), ("output_bytecode",), ("guards", "output_bytecode")):
        rungs, first = call_rungs(Answers(), "0/0", asked.__contains__, lambda stage: None)
        assert [(r.stage, r.verdict) for r in rungs] == [(s, "different" if s == wrong else "equal") for s in asked]
        assert (first.stage if first is not None else "") == (blamed if wrong in asked else "")
