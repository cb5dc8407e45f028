"""Replay, and the processes that searches run cases in, compile without TorchDynamo, whose import takes a second."""
from __future__ import annotations

from pathlib import Path

from tests.warm_process import in_copy

PROGRAM = """
import sys, torch, ptdebug
from ptdebug.cli.main import main
from ptdebug.replay.workers.warm import warm_up

layer = torch.nn.Linear(4, 4)
with ptdebug.record("r", out="."):
    compiled = ptdebug.compile(lambda x: torch.softmax(layer(x), -1) * x.shape[0])
    for size in (3, 5):
        compiled(torch.randn(size, 4)).sum().backward()
assert main(["replay", "./r", "--no-program"]) == 0
warm_up()
print("torch._dynamo" in sys.modules)
"""


def test_replay_and_warm_processes_load_no_dynamo(tmp_path: Path) -> None:
    done = in_copy("-c", PROGRAM, cwd=tmp_path)
    assert done.stdout.splitlines()[-1:] == ["False"], done
    assert "gradient of layer.weight" in done.stdout, done.stdout
