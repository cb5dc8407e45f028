"""Replay of damaged recordings: a verdict, or one message and exit code 2; never a traceback.

PTDEBUG_DAMAGES=500 does more of it; PTDEBUG_FIRST_DAMAGE=N begins there.
"""
from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import ptdebug
import pytest
import torch
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.signature import sign_place
from ptdebug.cli.main import main
from ptdebug.tracer.frames import dispatch

from ..artifacts.damage import damage
from .crafting import claim

FIRST, COUNT = (int(os.environ.get(name, n)) for name, n in (("PTDEBUG_FIRST_DAMAGE", 0), ("PTDEBUG_DAMAGES", 36)))


def trained(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return ((x @ w).sin().cumsum(0) * torch.tensor([1.0, 2.0, 3.0, 4.0])).relu().sum()


def plain(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.max_pool2d(x, 2).transpose(1, 2).float()[..., 1:]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("whole")
    dispatch.reset()
    with ptdebug.record("real", str(home)):
        ptdebug.compile(trained)(torch.ones(3, 4), torch.ones(4, 4, requires_grad=True)).backward()
        compiled = ptdebug.compile(plain)
        compiled(torch.rand(1, 3, 4, 4)), compiled(torch.rand(1, 3, 6, 4))
    with sqlite3.connect(home / "real" / "recording.db") as db:  # else the program, pytest, would run again
        db.execute("DELETE FROM meta WHERE key='signature'")
    db.close()
    return home / "real"


def test_whole(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(recorded)]) == 0
    out, err = capsys.readouterr()
    assert out.count("kernels") == 3 and not err


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
@pytest.mark.filterwarnings("ignore")
def test_damage(seed: int, recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(recorded, folder)
    with Recording.open(folder) as recording:  # a copy, which would not be replayed unasked
        started = recording.meta["started"]
    claim(folder, origin=sign_place(folder, started))
    what = damage(seed, folder)
    code = main(["replay", str(folder)])
    out, err = capsys.readouterr()
    assert code in (0, 1, 2), what
    assert code != 2 or err.startswith("ptdebug: "), (what, err)
    assert "\x1b" not in out + err
