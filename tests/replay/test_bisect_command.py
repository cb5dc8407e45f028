"""`ptdebug bisect` from outside: of a recording, of a script, and what it says where there is nothing to find."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.warm_process import in_copy

Command = Callable[..., subprocess.CompletedProcess[str]]

PROGRAM = """
import sys
import torch

if "wrong" in sys.argv:
    import faults
    faults.wrong_relu()

@torch.compile
def other(x):
    return torch.tanh(x) * 2

@torch.compile
def f(x):
    y = torch.exp(x)
    return torch.relu(y - 1) * 3

x = torch.linspace(-1, 1, 64)
other(x)
off = (f(x) - torch.relu(x.exp() - 1) * 3).abs().max().item()
print("right" if off < 1e-4 else "wrong", flush=True)
sys.exit(3 if off > 1e-4 else 0)
"""

FRAMES = """
import sys
import torch

if "ptdebug.cli.session" in sys.modules:
    from ptdebug.cli import wiring
    saving = wiring.saving_inputs

    def wrong(session, captured, context, compiled):
        if "cos" in str(captured.module.graph):
            return lambda *inputs: [value + 1 for value in compiled(*inputs)]
        return saving(session, captured, context, compiled)
    wiring.saving_inputs = wrong

def helper(x):
    return torch.cos(x) * 2
@torch.compile
def g(x):
    return helper(x) + 1
@torch.compile
def f(x):
    return torch.sin(x) - 1

x = torch.randn(8)
f(x), g(x)
"""


@pytest.fixture
def ptdebug(tmp_path: Path) -> Command:
    """`ptdebug(*words)` in a folder with the program."""
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "frames.py").write_text(FRAMES)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PTDEBUG")}
    paths = [str(Path(__file__).parent), *filter(None, [environment.get("PYTHONPATH")])]
    environment |= {"PTDEBUG_HOME": "recordings", "PTDEBUG_CACHE_DIR": "cache", "PYTHONPATH": os.pathsep.join(paths)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        if words[0] == "run":
            return in_copy("ptdebug", *words, cwd=tmp_path, env=environment)
        return subprocess.run([sys.executable, "-m", "ptdebug", *words], cwd=tmp_path, env=environment, timeout=400,
                              text=True, capture_output=True)

    return run


def test_of_a_recording(ptdebug: Command, tmp_path: Path):
    assert ptdebug("run", "-q", "--name", "right", "program.py").returncode == 0
    nothing = ptdebug("bisect", "right")
    assert (nothing.returncode, nothing.stdout) == (1, "0/0  passed\n1/0  passed\nprogram.py  passed\n")
    found = ptdebug("bisect", "right", "--import", "faults:wrong_relu", "--json")
    assert found.returncode == 0
    document = json.loads(found.stdout)
    assert document["schema"].startswith("ptdebug/") and document["overrides"] == {"1/0:lowering:relu": "extern"}
    first, second = document["graphs"]
    assert first["guilty"] == [] and first["outcome"]["kind"] == "passed"
    assert second["outcome"]["kind"] == "values" and not second["whole_graph"] and second["finished"]
    assert second["guilty"][0]["places"] == [{"file": str(tmp_path / "program.py"), "line": 16}]
    refused = ptdebug("bisect", "right", "--match", "x")
    assert refused.returncode == 2 and "give the script" in refused.stderr


def test_of_a_script(ptdebug: Command, tmp_path: Path):
    found = ptdebug("bisect", "--match", "^wrong", "-o", "found.toml", "program.py", "wrong")
    assert found.returncode == 0, found.stderr
    assert "1/0:lowering:relu = extern, not loops" in found.stdout
    assert "program.py:16  return torch.relu(y - 1) * 3" in found.stdout
    assert "ptdebug run --override found.toml program.py wrong" in found.stdout
    assert tomllib.loads((tmp_path / "found.toml").read_text()) == {"1/0:lowering:relu": "extern"}
    assert ptdebug("run", "--no-record", "--override", "found.toml", "program.py", "wrong").returncode == 0


def test_of_a_recording_whose_frames_are_to_blame(ptdebug: Command):
    """What is added to the results of a graph, however that runs, is no graph's fault."""
    assert ptdebug("run", "-q", "--name", "wrong", "frames.py").returncode == 0
    found = ptdebug("bisect", "wrong", "--json")
    assert found.returncode == 0, found.stderr
    document = json.loads(found.stdout)
    assert document["overrides"] == {"frame:g@frames.py:17": "eager", "frame:helper@frames.py:15": "eager"}
    program = document["program"]
    assert "70" in program["outcome"]["detail"] and [g["places"][0]["line"] for g in program["guilty"]] == [17, 15]
