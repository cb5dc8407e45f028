"""`ptdebug run --time-calls`: a call of the program, compiled and in eager."""
from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from ptdebug.cli import timed_calls
from ptdebug.replay.measure.timing import Launched, Timing

Command = Callable[..., subprocess.CompletedProcess[str]]
PROGRAM = """
import torch
layer = torch.nn.Linear(4, 4)
compiled = torch.compile(layer)
@torch.compile
def f(x):
    return torch.sin(x) + 1
@torch.compile
def seldom(x):
    return x + 1
torch.manual_seed(1)
for _ in range(6):
    f(torch.zeros(3)); compiled(torch.zeros(4))
seldom(torch.zeros(3))
print(torch.rand(()).item())
"""


def test_each_function_is_timed_once(warm: Command, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = warm("run", "--time-calls", "--name", "r", "program.py")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "as eager (call 5" in line]
    assert len(lines) == 2 and "seldom" not in done.stderr
    assert "f (program.py:5): compiled" in "".join(lines) and "Linear (linear.py:" in "".join(lines)
    assert done.stdout == warm("run", "--no-record", "program.py").stdout  # the same random numbers
    assert "f (program.py:5): compiled" in warm("show", "r").stdout


def test_kernels_that_only_one_side_runs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Watch:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            return

        def run(self, name, call):
            call()

        def times(self):
            flash = Launched("void flash_fwd<__half>(int)", 12, 0.4e-3)
            layers = (Launched("fused_3_softmax", 1, 1e-3), Launched("fused_7_softmax", 1, 1e-3))
            common = Launched("gemm", 2, 3e-3)
            return {"compiled": Timing(5e-3, 0.0, (common, *layers)), "eager": Timing(3.4e-3, 0.0, (common, flash))}

    monkeypatch.setattr(timed_calls, "stopwatch", lambda device: Watch())
    times = {"compiled": Timing(6e-3, 0.01), "eager": Timing(4e-3, 0.02)}
    monkeypatch.setattr(timed_calls, "interleaved", lambda calls, device: times)
    monkeypatch.setattr(timed_calls.torch.random, "fork_rng", lambda devices: Watch())
    assert timed_calls.measured("f", dict.fromkeys(("compiled", "eager"), lambda: None), "cuda:0") == [
        "f: compiled 6.00 ms, eager 4.00 ms, 1.50 times as slow as eager (call 5, forward, noise 2%)",
        "  its kernels: compiled 5.00 ms, eager 3.40 ms",
        "  more than the other, compiled: 2 x fused_softmax 2.00 ms",
        "  more than the other, eager: 12 x flash_fwd 400.0 us",
    ]
