"""`ptdebug run --profile`: what compiled graphs ran is kept, and stands in the timeline with what shows it."""
from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from ptdebug.cli.profile import Profiler

Command = Callable[..., subprocess.CompletedProcess[str]]

PROGRAM = """
import torch
from torch import nn
from torch.profiler import profile

model = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
compiled = torch.compile(model)
for _ in range(3):
    compiled(torch.randn(8, 16)).sum().backward()
torch.randn(3).sin()  # not a part of a graph
with profile() as own:
    compiled(torch.randn(8, 16))
print(any("addmm" in event.name for event in own.events()))
"""


def test_what_graphs_ran_is_in_the_timeline(warm: Command, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)

    ran = warm("run", "--profile", "60", "program.py")
    assert ran.returncode == 0 and ran.stdout == "True\n", ran.stderr
    assert "until the program began to profile itself: 6 calls of graphs" in ran.stderr and "USDT" not in ran.stderr
    assert warm("trace", "@", "-o", "trace.json").returncode == 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    seen = [event for event in events if event.get("cat", "").startswith("profiled,")]
    graphs = [event for event in seen if event["cat"] == "profiled,graph"]
    assert [event["args"]["part"] for event in graphs] == ["", "backward"] * 3
    inside = [event for event in seen if event["cat"] != "profiled,graph"]
    for event in inside:
        assert any(g["ts"] <= event["ts"] and event["ts"] + event["dur"] <= g["ts"] + g["dur"] + 0.2 for g in graphs)
    assert sum(event["name"] == "aten::addmm" for event in inside) == 6, "two of each call"
    assert not any("sin" in event["name"] or "randn" in event["name"] for event in seen)
    kernel = next(event for event in inside if event["cat"] == "profiled,kernel" and "layer_norm" in event["name"])
    shown = warm(*kernel["args"]["show"].split()[1:])
    assert shown.returncode == 0 and kernel["args"]["kernel"] in shown.stdout


def test_what_fails_is_told_and_the_program_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise RuntimeError("no counters")

    monkeypatch.setattr(torch.profiler, "profile", broken)
    profiler = Profiler(1.0)
    assert [profiler.around(lambda x: x + 1)(k) for k in (1, 2)] == [2, 3]
    profiler.stop()
    assert "torch's profiler failed: RuntimeError: no counters" in profiler.said()


def test_without_a_recording_it_is_refused(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-m", "ptdebug", "run", "--profile", "1", "--no-record", "-c", "1"],
                         cwd=tmp_path, text=True, capture_output=True, timeout=60)
    assert ran.returncode == 2 and "leave out --no-record" in ran.stderr
