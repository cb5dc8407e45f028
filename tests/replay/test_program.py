"""Replay of a recorded program: from the program itself in eager up to its kernels, through the command."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.warm_process import in_copy

SCRIPT = """
import torch

@torch.compile
def scaled(x, factor):
    y = torch.softmax(x * 2, -1)
    return y * factor, (y * factor).sum()

@torch.compile
def noisy(x):
    return torch.dropout(x, 0.5, True) * 2

def main():
    torch.manual_seed(0)
    for _ in range(3):
        x = torch.randn(4, 8)
        with torch.no_grad():
            scaled(x, torch.tensor(3.0))
    noisy(x)

main()
"""


ARRAYS = """
import numpy, torch

@torch.compile
def scaled(array, x):
    return torch.from_numpy(array) * x

for dtype in (numpy.float32, numpy.float64):
    scaled(numpy.arange(3, dtype=dtype), torch.full((3,), 2.0))
"""


def ptdebug(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    if arguments[0] == "run":
        return in_copy("ptdebug", *arguments, cwd=folder)
    return subprocess.run(
        [sys.executable, "-m", "ptdebug", *arguments], cwd=folder, capture_output=True, text=True, timeout=300
    )


PROGRAM = ("--rung", "program", "--rung", "capture")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("program")
    (folder / "script.py").write_text(SCRIPT)
    ran = ptdebug(folder, "run", "--name", "r", "script.py")
    assert ran.returncode == 0, ran.stderr
    return folder


def test_the_program_in_eager_is_the_lowest_rung(recorded):
    ran = ptdebug(recorded, "replay", "r:0/0", "--json")
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert document["schema"] == "ptdebug/2"
    assert [r["stage"] for r in document["rungs"]] == [
        "program", "guards", "output_bytecode", "capture", "forward", "passes", "loop_ir", "kernels", "wrapper"]
    assert [r["verdict"] for r in document["rungs"][:6]] == ["equal"] * 6
    assert document["verdict"] in ("equal", "rounding")
    assert document["drift"] == []


def test_random_numbers_of_the_program_are_those_of_its_graph(recorded):
    document = json.loads(ptdebug(recorded, "replay", "r:1/0", *PROGRAM, "--json").stdout)
    assert [(r["stage"], r["verdict"]) for r in document["rungs"][:2]] == [("program", "equal"), ("capture", "equal")]


def test_calls_that_an_array_tells_apart(recorded):
    (recorded / "arrays.py").write_text(ARRAYS)
    ran = ptdebug(recorded, "run", "--name", "arrays", "arrays.py")
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ptdebug(recorded, "replay", "arrays:0/1", *PROGRAM, "--json").stdout)
    assert [(r["stage"], r["verdict"]) for r in document["rungs"][:2]] == [("program", "equal"), ("capture", "equal")]


def test_a_program_that_changed_since_is_not_run(recorded):
    script = recorded / "script.py"
    script.write_text(SCRIPT + "\nprint('changed')\n")
    try:
        document = json.loads(ptdebug(recorded, "replay", "r:0/0", "--json").stdout)
    finally:
        script.write_text(SCRIPT)
    assert document["rungs"][0]["verdict"] == "absent"
    assert "has changed since" in document["rungs"][0]["why"]


def test_a_selector_without_a_recording_is_one_clear_line(recorded):
    ran = ptdebug(recorded, "replay", "nothing-here")
    assert ran.returncode == 2
    assert "nothing-here" in ran.stderr
    assert "Traceback" not in ran.stderr


RUNS = """
import sys
import torch
from pathlib import Path

with Path("runs").open("a") as file:
    file.write("run ")

@torch.compile
def inner(x):
    return x.cos() + 1

@torch.compile
def outer(x):
    return inner(x * 2) - 3

@torch.compile
def noisy(x):
    return torch.dropout(x, 0.5, True) * 2

assert "torch._dynamo" not in sys.modules  # nor where the program runs in eager
with torch.no_grad():
    outer(torch.ones(2))
    inner(torch.ones(2) * 2)
    torch.manual_seed(5)
    noisy(torch.ones(100))
    outer(torch.rand(3, 3))
"""


def test_one_run_of_the_program_serves_all_compilations(tmp_path):
    (tmp_path / "script.py").write_text(RUNS)
    assert ptdebug(tmp_path, "run", "--name", "r", "script.py").returncode == 0
    (tmp_path / "runs").unlink()
    document = json.loads(ptdebug(tmp_path, "replay", "r", "--rung", "program", "--json").stdout)
    programs = [r["verdict"] for r in document["rungs"] if r["stage"] == "program"]
    assert len(programs) == 4 and set(programs) <= {"equal", "rounding"}
    # Once for all: dropout draws its numbers from the recorded state, which is the program's own.
    assert (tmp_path / "runs").read_text().count("run") == 1


TRAINING = """
import torch

class Noisy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        hidden = self.linear(x)
        return hidden + torch.randn_like(hidden)

torch.manual_seed(0)
model = Noisy()
compiled = torch.compile(model, dynamic=False)
optimizer = torch.optim.SGD(model.parameters(), 0.5)
batches = torch.randn(6, 4, 8)
for batch in [*batches, torch.randn(3, 8)]:
    optimizer.zero_grad()
    compiled(batch).square().mean().backward()
    optimizer.step()
"""


def test_weights_trained_with_noise_are_those_of_the_recorded_run(tmp_path):
    # The call of 0/1 is met by its batch alone: after one that drew other noise, the weights would be others.
    (tmp_path / "script.py").write_text(TRAINING)
    assert ptdebug(tmp_path, "run", "--name", "r", "script.py").returncode == 0
    document = json.loads(ptdebug(tmp_path, "replay", "r", "--rung", "program", "--json").stdout)
    programs = [r["verdict"] for r in document["rungs"] if r["stage"] == "program"]
    assert len(programs) == 2 and set(programs) <= {"equal", "rounding"}


ALIKE = """
import torch

@torch.compile
def scaled(x, factor, kind="a", flag=False):
    y = x * factor - x.sum() if kind == "a" else x - factor
    return y if flag else y + 1

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.by_training = False

    def forward(self, x):
        return x * self.weight * (2 if self.by_training else 3)

x = torch.arange(3.0)
scaled(x, 1), scaled(x, 5), scaled(x, 5, flag=True), scaled(x, 7, "b"), scaled(x, 7.5)
net = Net()
model = torch.compile(net)
model(x), net(x * 2)
with torch.no_grad():
    model(x)
    net.weight += 1
net.by_training = True
model(x)
"""


def test_calls_with_the_same_tensors_are_told_apart_by_numbers_and_parameters(tmp_path):
    (tmp_path / "script.py").write_text(ALIKE)
    assert ptdebug(tmp_path, "run", "--name", "r", "script.py").returncode == 0
    document = json.loads(ptdebug(tmp_path, "replay", "r", "--rung", "program", "--json").stdout)
    programs = [r["verdict"] for r in document["rungs"] if r["stage"] == "program"]
    assert programs == ["equal"] * 8
