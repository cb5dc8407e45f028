"""How programs end: what they still hold is finalized as in eager, however compiled functions were left before."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import atexit, sys
import torch
import {module} as ptdebug

class Told:
    def __init__(self, name):
        self.name = name

    def __del__(self):
        print("del", self.name)

held = Told("global")
others = [Told("in a list")]
atexit.register(lambda: print("handler", function(torch.ones(2))))

def leave():
{leave}

def f(x):
    y = x * 2
    print("the graph breaks here")
    if leaving:
        leave()
    return y.tolist(), held.name

function, leaving = ptdebug.compile(f), True
try:
    print(function(torch.ones(2)))
finally:
    leaving = False
"""
LEAVES = {
    "sys.exit with a number": "    sys.exit(3)",
    "an error": "    raise ValueError(held.name)",
    "in a handler": "    try:\n        raise ValueError\n    except ValueError:\n        sys.exit(2)",
    "nothing": "    return None",
}


@pytest.mark.parametrize("leave", LEAVES)
def test_what_the_program_holds_is_finalized(tmp_path: Path, leave: str) -> None:
    (tmp_path / "eager.py").write_text("def compile(function):\n    return function\n")
    script = tmp_path / "program.py"
    ended = []
    for module in ("eager", "ptdebug"):
        script.write_text(PROGRAM.format(module=module, leave=LEAVES[leave]))
        done = subprocess.run([sys.executable, "-u", str(script)], capture_output=True, text=True)
        ended.append((done.returncode, done.stdout, done.stderr))
    assert ended[1] == ended[0]
    assert "del global" in ended[0][1]
