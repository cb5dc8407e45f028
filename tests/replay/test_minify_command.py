"""`ptdebug minify` from outside: of a recording, and of scripts; a training script of 400 lines among them."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.warm_process import in_copy

Command = Callable[..., subprocess.CompletedProcess[str]]

HERE = Path(__file__).parent

PROGRAM = """
import sys
import torch

@torch.compile
def other(x):
    return torch.tanh(x) * 2

@torch.compile
def f(x, w):
    for _ in range(4):
        x = torch.exp(x @ w * 0.1) - 1
    return torch.relu(x - 0.1) * 3

torch.manual_seed(0)
x = torch.randn(8, 16)
print(other(x).sum())
y = f(x, torch.randn(16, 16))
print("total", y.sum().item() > 40, len(sys.argv))
"""

SAYS = """
import torch

@torch.compile
def f(x):
    return torch.relu(x)

y = f(torch.zeros(8))
print("total", y.sum().item() > 3)
"""

BREAKS = """
import torch

def saturate(x):
    if x.abs().max() > 1e4:
        x = x.clamp(-9, 9)
    return torch.tanh(x)

class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
    def forward(self, x):
        return x + saturate(self.linear(x))

model = torch.nn.Sequential(Block(8), Block(8))
torch.compile(model)(torch.randn(4, 8)).sum().backward()
print("trained", len(list(model.parameters())))
"""


@pytest.fixture
def ptdebug(tmp_path: Path) -> Command:
    """`ptdebug(*words)` in a folder with the programs."""
    for name, text in (("program", PROGRAM), ("says", SAYS), ("breaks", BREAKS)):
        (tmp_path / f"{name}.py").write_text(text)
    for script in (HERE / "scripts").glob("*.py"):
        shutil.copy(script, tmp_path)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PTDEBUG")}
    paths = [str(HERE), *filter(None, [environment.get("PYTHONPATH")])]
    environment |= {"PTDEBUG_HOME": "recordings", "PTDEBUG_CACHE_DIR": str(tmp_path / "cache"),
                    "PYTHONPATH": os.pathsep.join(paths)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        if words[0] == "run" or words[1].endswith(".py"):
            return in_copy("ptdebug", *words, cwd=tmp_path, env=environment, timeout=600)
        return subprocess.run([sys.executable, "-m", "ptdebug", *words], cwd=tmp_path, env=environment, timeout=600,
                              text=True, capture_output=True)  # where torch is not loaded yet, its workers are forked

    return run


def code(path: Path) -> list[str]:
    """The lines of a script without its header."""
    return [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]


def test_of_a_recording(ptdebug: Command, tmp_path: Path) -> None:
    assert ptdebug("run", "-q", "--name", "right", "program.py").returncode == 0
    nothing = ptdebug("minify", "right")
    assert nothing.returncode == 1 and "nothing to minify in program.py" in nothing.stderr
    assert "nothing to minify in right: " in nothing.stderr and "now the program as a whole" in nothing.stderr
    assert not (tmp_path / "repro.py").exists()
    found = ptdebug("minify", "right", "--import", "faults:wrong_relu", "-o", "out/small.py", "--json")
    assert found.returncode == 0, found.stderr
    document = json.loads(found.stdout)
    assert document["signature"] == "values: numbers" and document["selector"] == "right:1/0"
    assert document["verified"] and document["operators"] == 1 and document["neighbour"]
    assert "torch.relu" in (tmp_path / "out/small.py").read_text()


def test_of_a_script(ptdebug: Command, tmp_path: Path) -> None:
    nothing = ptdebug("minify", "program.py", "--dry-run")
    assert nothing.returncode == 0 and "computes what eager computes" in nothing.stdout
    found = ptdebug("minify", "program.py", "--import", "faults:wrong_relu", "--json", "--", "one")
    assert found.returncode == 0, found.stderr
    document = json.loads(found.stdout)
    assert document["verified"] and document["lines"] <= 6
    assert any("torch.relu(" in line for line in code(tmp_path / "repro.py"))
    assert "# It passes with this change:" in (tmp_path / "repro.py").read_text()


def test_of_a_script_by_what_it_prints(ptdebug: Command, tmp_path: Path) -> None:
    found = ptdebug("minify", "says.py", "--import", "faults:wrong_relu", "--match", "total True", "-o", "said.py")
    assert found.returncode == 0, found.stderr
    assert "output: total True" in found.stdout
    assert any("print" in line for line in code(tmp_path / "said.py"))
    other = ptdebug("minify", "says.py", "--match", "no such words")
    assert other.returncode == 1 and "the check passes" in other.stderr


def test_a_long_training_script_with_a_wrong_gradient(ptdebug: Command, tmp_path: Path) -> None:
    found = ptdebug("minify", "long_training.py", "--import", "faults:wrong_tanh_gradient", "--json")
    assert found.returncode == 0, found.stderr
    document = json.loads(found.stdout)
    assert document["signature"] == "values: numbers" and document["verified"]
    assert document["lines_before"] > 320 and document["lines"] < 15
    small = code(tmp_path / "repro.py")
    assert any("torch.tanh(" in line for line in small) and any("backward()" in line for line in small)


def test_a_graph_break_deep_inside(ptdebug: Command) -> None:
    there = ptdebug("minify", "breaks.py", "--break", "unknown-callable")
    assert there.returncode == 1 and "there are: data-dependent-branch" in there.stderr
    found = ptdebug("minify", "breaks.py", "--break", "data-dependent-branch", "--json")
    assert found.returncode == 0, found.stderr
    document = json.loads(found.stdout)
    assert document["signature"] == "break: data-dependent-branch gt" and document["verified"]
    assert document["lines"] < 10
    again = json.loads(ptdebug("minify", "breaks.py", "--break", "data-dependent-branch", "--json").stdout)
    assert again["lines"] == document["lines"] and again["runs"] < document["runs"] / 4  # what is known is not run


def test_of_a_script_that_takes_long_in_eager(ptdebug: Command, tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("while True:\n    pass\n")
    for words in ((), ("--break", "data-dependent-branch")):
        done = ptdebug("minify", "long.py", "--limit", "3", *words)
        assert done.returncode == 1 and not (tmp_path / "repro.py").exists(), done.stdout
        assert "longer than 3 s" in done.stderr and "Traceback" not in done.stderr


def test_misuse(ptdebug: Command) -> None:
    for words in (("no_such.py",), ("@", "--match", "x"), ("program.py", "--slow", "2")):
        done = ptdebug("minify", *words)
        assert done.returncode == 2 and done.stderr.startswith("ptdebug: ") and not done.stdout, words


def test_the_loops_of_a_kernel(ptdebug: Command, tmp_path: Path) -> None:
    (tmp_path / "exp.py").write_text("import torch\ntorch.compile(lambda x: (x + 1).exp() * x)(torch.rand(30))\n")
    assert ptdebug("run", "-q", "--name", "one", "exp.py").returncode == 0
    kernel = next(word for word in ptdebug("kernels", "one").stdout.split() if word.startswith("fused_"))
    right = ptdebug("minify", f"one:0/0:kernels:{kernel}")
    assert right.returncode == 1 and "compiled alone, computes what its loop IR says" in right.stderr
    assert ptdebug("minify", "one:0/0:kernels:other").returncode == 2
    (tmp_path / "two.py").write_text(
        "import torch\ntorch.compile(lambda x: ((x + 1) @ x.t()).sum() + (x @ x.t()).exp())(torch.rand(30, 30))\n")
    assert ptdebug("run", "-q", "--name", "two", "two.py").returncode == 0
    library = ptdebug("minify", "two:0/0:kernels:cpp")
    assert library.returncode == 2 and "kernels: name one of them (fused_" in library.stderr
    found = ptdebug("minify", f"one:0/0:kernels:{kernel}", "--import", "faults:wrong_exp_in_c", "--json")
    assert found.returncode == 0, found.stderr
    document = json.loads(found.stdout)
    assert document["verified"] and document["statements"] < document["statements_before"]
    assert "exp " in (tmp_path / "repro.py").read_text()
