"""`breaks --try`: the edit for a graph break, made on a copy of the program that is run again."""
from __future__ import annotations

import json
from pathlib import Path

import pytest
from ptdebug.cli.edited_run import _outputs
from ptdebug.cli.main import main

from tests.warm_process import in_copy

PROGRAM = """\
import torch
import beside


@torch.compile
def f(x):
    y = x.relu()
    print("sum", y.sum().item())
    return beside.twice(y) + 1


@torch.compile
def g(x):
    if x.sum() > 0:
        return 1.0
    return 0.0


f(torch.ones(4))
assert isinstance(g(torch.ones(4)), float)
"""


def test_an_edit_is_tried_on_a_copy(tmp_path: Path, monkeypatch, capsys) -> None:
    program = tmp_path / "src" / "program.py"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    (program.parent / "beside.py").write_text("def twice(x):\n    return x * 2\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTDEBUG_HOME", str(tmp_path / "home"))
    in_copy("ptdebug", "run", "-q", "-o", "home", "src/program.py", cwd=tmp_path).check_returncode()
    assert main(["breaks"]) == 0
    out = capsys.readouterr().out
    assert '+     if not torch.compiler.is_compiling(): print("sum", y.sum().item())' in out
    assert main(["breaks", "--try", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["gone"] and found["exit_code"] == 0 and found["new_breaks"] == []
    assert found["counts"]["graph_breaks"] == {"before": 2, "after": 1}
    assert found["output"] == "it prints something else than without the edit: without the line 'sum 4.0'"
    assert main(["breaks", "--try", "2"]) == 1  # torch.where makes a tensor
    assert "tried on a copy: the program, so edited, fails" in capsys.readouterr().out
    assert program.read_text() == PROGRAM


@pytest.mark.parametrize("runs, words", [
    (["a", "a"], "it prints the same as without the edit"),
    (["", ""], "it prints nothing that could be compared"),
    (["made", "kept", "kept"], "it prints something else in each run, so what it prints is not compared"),
    (["a", "b", "a"], "it prints something else than without the edit: without the line 'b', with the line 'a'"),
    (["a b", "b a", "a b"], "it prints something else than without the edit: the lines in another order"),
])
def test_what_differs_is_of_the_edit(runs: list[str], words: str) -> None:
    """Not of what a run left for the next, nor of chance."""
    edited, *others = [run.split() for run in runs]
    assert _outputs(edited, lambda: others.pop(0), lambda: others.pop(0)) == words
    assert not others
