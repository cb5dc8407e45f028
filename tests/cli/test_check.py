"""`ptdebug check`: limits for CI."""
from __future__ import annotations

import json
from pathlib import Path

import pytest
from ptdebug.artifacts import records as r
from ptdebug.artifacts.store import RecordingWriter
from ptdebug.cli.main import main


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of two compilations: one graph break, one recompilation, four seconds; one function is skipped."""
    monkeypatch.chdir(tmp_path)
    place = r.Location("model.py", 3, "f")
    writer = RecordingWriter(tmp_path / "run", command=["model.py"])
    for number in range(2):
        writer.begin(f"0/{number}", "f", "model.py", 1)
        writer.record(f"0/{number}", "breaks", "", r.Breaks((r.Break("0", "print", "print()", "h", place, "print()"),)))
        if number:
            writer.record("0/1", "guards", "recompile", r.Recompile("x == 1", "1", "2", "0/0"))
        writer.end(f"0/{number}", "compiled", "", {"total": 2.0})
    writer.begin("1/0", "g", "model.py", 9)
    writer.end("1/0", "skipped", "it yields", {})
    writer.close(0)
    return str(tmp_path / "run")


@pytest.mark.parametrize("limits, over", (
    ("--graph-breaks 1 --recompiles 1 --compile-seconds 4 --skipped-frames 1 --failures 0", []),
    ("--graph-breaks 0 --recompiles 5", ["graph_breaks"]),
    ("--compile-seconds 3.9 --skipped-frames 0 --recompiles 0", ["compile_seconds", "skipped_frames", "recompiles"]),
))
def test_limits(recording: str, limits: str, over: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["check", recording, *limits.split(), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert sorted(v["name"] for v in document["limits"] if not v["kept"]) == sorted(over)
    assert code == bool(over) and document["kept"] is not bool(over) and len(document["limits"]) == limits.count("--")


def test_what_is_to_blame(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", recording, "--graph-breaks", "0", "--recompiles", "0", "--skipped-frames", "0"]) == 1
    told = capsys.readouterr().out
    assert "OVER  graph breaks: 1 (limit 0)" in told and "model.py:3  print()  (0/0)" in told
    assert "x == 1: was 1, is 2  (0/1)" in told and "model.py:9  g: it yields  (1/0)" in told


def test_limits_in_pyproject(recording: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", recording]) == 2 and "there is no limit" in capsys.readouterr().err
    file = tmp_path / "pyproject.toml"
    file.write_text("[tool.ptdebug.budget]\ngraph_breaks = 0\n")
    assert main(["check", recording]) == 1 and main(["check", recording, "--graph-breaks", "1"]) == 0
    for wrong in ("graph_brakes = 0", "graph_breaks = 'no'", "graph_breaks = -1"):
        file.write_text(f"[tool.ptdebug.budget]\n{wrong}\n")
        capsys.readouterr()
        assert main(["check", recording]) == 2 and "tool.ptdebug.budget.graph_br" in capsys.readouterr().err


def test_a_recording_that_is_not_complete_keeps_no_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = RecordingWriter(tmp_path / "run", command=["model.py"])
    assert main(["check", str(tmp_path / "run"), "--graph-breaks", "9"]) == 1
    assert "the program still runs" in capsys.readouterr().out
    writer.close(0)
    assert main(["check", str(tmp_path / "run"), "--graph-breaks", "9"]) == 0
