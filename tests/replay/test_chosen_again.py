"""A kernel is written as it was recorded, whichever of two is the faster one when the graph is compiled again."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.artifacts.context import CompileContext
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.records import Kernel
from ptdebug.replay.repro.recorded import repro


def test_kernels_of_what_was_chosen_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, kinds = CompileContext.decide, []

    def another(self: Any, kind: str, subject: str, options: Any, default: str, *rest: Any, **more: Any) -> str:
        if kind == "conv-layout":
            names = [option if isinstance(option, str) else option.name for option in options]
            default = next(name for name in names if name != default)
            kinds.append(kind)
        return plain(self, kind, subject, options, default, *rest, **more)

    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
    with monkeypatch.context() as patched, ptdebug.record("r", str(tmp_path)):
        patched.setattr(CompileContext, "decide", another)
        ptdebug.compile(net)(torch.randn(2, 3, 8, 8)).sum().backward()
    assert kinds
    with Recording.open(tmp_path / "r") as recording:
        (info,) = recording.compiles()
        record = recording.artifact(info.id, "kernels", "cpp")
        assert isinstance(record, Kernel) and record.kernels
        for kernel in record.kernels:
            assert kernel in repro(recording, info.id, "kernels", kernel).text
