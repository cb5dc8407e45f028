"""Right programs with arguments of every kind: replay finds nothing wrong with any of them, on any rung.

Two recordings for all programs. Of a call that cannot be told from others, the rung is absent, with that reason.
"""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.warm_process import in_copy

HERE = Path(__file__).parent / "scripts"
CALLS = (HERE / "calls_of_every_kind.py").read_text()
TRAINING = (HERE / "training_of_every_kind.py").read_text()
Replayed = dict[str, list[dict[str, Any]]]
"""All rungs of the compilations of each function."""
CANNOT_BE_TOLD = {"of_python": "random.random"}
"""Functions whose call nothing identifies."""


def ptdebug(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    if arguments[0] == "run":
        return in_copy("ptdebug", *arguments, cwd=folder, timeout=600)
    return subprocess.run(
        [sys.executable, "-m", "ptdebug", *arguments], cwd=folder, capture_output=True, text=True, timeout=600
    )


def record(folder: Path, name: str, script: str) -> Path:
    (folder / f"{name}.py").write_text(script)
    ran = ptdebug(folder, "run", "--quiet", "--inputs", "all", "--name", name, f"{name}.py")
    assert ran.returncode == 0, ran.stderr
    return folder


def rungs_by_function(folder: Path, name: str) -> Replayed:
    """All rungs of the compilations of each function."""
    ran = ptdebug(folder, "replay", name, "--program", "--json")
    assert ran.returncode in (0, 1) and not ran.stderr, ran.stderr
    compiles = json.loads(ptdebug(folder, "show", name, "--json").stdout)["compiles"]
    functions = {one["id"]: one["function"] for one in compiles}
    found: Replayed = {}
    for rung in json.loads(ran.stdout)["rungs"]:
        found.setdefault(functions[rung["compile"]], []).append(rung)
    return found


def nothing_is_wrong(replayed: Replayed) -> None:
    wrong = [(function, rung) for function, rungs in replayed.items() for rung in rungs
             if rung["verdict"] == "different" or rung["class"] == "bug"]
    assert not wrong, [(function, rung["compile"], rung["stage"], rung["why"]) for function, rung in wrong]


def the_program_is_met_at_the_recorded_call(replayed: Replayed) -> None:
    for function, rungs in replayed.items():
        told = [rung for rung in rungs if rung["class"] == "uninitialized-memory"]
        assert ["empty (calls.py:" in rung["explanation"] for rung in told] == [True] * (function == "unwritten"), told
        for rung in (rung for rung in rungs if rung["stage"] == "program"):
            if function in CANNOT_BE_TOLD:
                assert rung["verdict"] == "absent" and CANNOT_BE_TOLD[function] in rung["why"], rung
            elif function == "unwritten":
                assert rung["verdict"] == "equal" or "nothing has written: empty (calls.py:" in rung["why"], rung
            elif not function.startswith("torch_dynamo_resume"):
                assert rung["verdict"] == "equal", (function, rung)


ABSENT = ("no pass changed the graph", "shares memory", "lazily conjugated", "random.random", "after a graph break",
          "nothing has written")


def every_rung_runs(replayed: Replayed) -> None:
    absent = [(function, rung["compile"], rung["stage"], rung["why"]) for function, rungs in replayed.items()
              for rung in rungs if rung["verdict"] == "absent" and not any(why in rung["why"] for why in ABSENT)]
    assert not absent


@pytest.mark.parametrize("name, script", [("calls", CALLS), ("training", TRAINING)])
def test_right_programs(name: str, script: str, tmp_path: Path) -> None:
    """One test, which one worker runs: several would each record and replay the programs."""
    replayed = rungs_by_function(record(tmp_path, name, script), name)
    nothing_is_wrong(replayed)
    the_program_is_met_at_the_recorded_call(replayed)
    every_rung_runs(replayed)
