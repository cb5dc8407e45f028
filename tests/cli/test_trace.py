"""`ptdebug trace`: the timeline in Chrome's format."""
from __future__ import annotations

import json
from pathlib import Path

import pytest
from ptdebug.artifacts import records as r
from ptdebug.artifacts.measured import Measured, MeasuredKernel, keep
from ptdebug.artifacts.store import RecordingWriter
from ptdebug.cli.main import main


def test_the_run_its_compilations_and_their_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = r.Location("model.py", 3)
    writer = RecordingWriter(tmp_path / "r", command=["model.py"])
    for number in range(2):
        writer.begin(f"0/{number}", "f", "model.py", 1)
        writer.record(f"0/{number}", "breaks", "", r.Breaks((r.Break("0", "print", "m", "h", place, "print()"),)))
        if number:
            writer.record("0/1", "guards", "recompile", r.Recompile("x == 1", "1", "2", "0/0"))
        writer.record(f"0/{number}", "runtime", "", r.Runtime(3))
        writer.record(f"0/{number}", "schedule", "", r.Schedule((r.ScheduledGroup("g0", "loops", (), "fused_0"),)))
        writer.end(f"0/{number}", "compiled", "", {"capture": 0.25, "kernels": 0.5, "total": 1.0})
    writer.close(0)
    kernels = (MeasuredKernel("", "fused_0", "loops", 1e-5),)
    keep(tmp_path / "r", {"0/1": Measured("cpu", "a call", 2e-5, 1e-5, kernels)})
    out = tmp_path / "t.json"
    assert main(["trace", str(tmp_path / "r"), "-o", str(out)]) == 0
    events = json.loads(out.read_text())["traceEvents"]
    compiles = [e for e in events if e.get("cat") == "compile,compiled"]
    assert [e["dur"] for e in compiles] == [1e6, 1e6] and compiles[0]["args"]["calls"] == 3
    assert compiles[0]["ts"] <= compiles[1]["ts"] and all(e["ts"] >= 0 for e in events if "ts" in e)
    for compiled in compiles:  # its stages lie inside
        inside = [e for e in events if e.get("cat") == "stage"]
        mine = [e for e in inside if compiled["ts"] <= e["ts"] and e["ts"] + e["dur"] <= compiled["ts"] + 1e6]
        assert {"capture", "kernels"} <= {e["name"] for e in mine}
    assert sum(e.get("cat") == "break" for e in events) == 2 and sum(e.get("cat") == "recompile" for e in events) == 1
    assert any(e.get("cat") == "run" and e["args"]["exit_code"] == 0 for e in events)
    [kernel] = [e for e in events if e.get("cat") == "kernel,loops"]
    assert (kernel["ts"], kernel["dur"]) == (compiles[1]["ts"] + 1e6, 10) and ":0/1:schedule" in kernel["args"]["show"]
    capsys.readouterr()
    assert main(["trace", f"{tmp_path / 'r'}:0/1", "-o", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["events"]["compile"] == 1
    assert main(["trace", f"{tmp_path / 'r'}:0/1:breaks"]) == 2
