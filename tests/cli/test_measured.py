"""What `replay --time` measured, kept beside the recording, in `kernels` and in the workbench."""
from __future__ import annotations

import json
import shutil
from pathlib import Path

import ptdebug
import pytest
import torch
from ptdebug.artifacts import measured
from ptdebug.artifacts.measured import Measured, MeasuredKernel
from ptdebug.artifacts.recording import Recording
from ptdebug.cli.main import main
from ptdebug.dependencies import msgspec
from ptdebug.tui.answers.answer import Answer
from ptdebug.tui.answers.measured import measured_rows
from ptdebug.tui.session import Session


@pytest.fixture(scope="module")
def not_measured(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("measured")
    with ptdebug.record("r", out=str(folder)):
        ptdebug.compile(lambda x, w: torch.softmax(x @ w, -1) * 2)(torch.randn(32, 300), torch.randn(300, 8))
    return folder / "r"


@pytest.fixture
def recorded(not_measured: Path, tmp_path: Path) -> Path:
    return shutil.copytree(not_measured, tmp_path / "r")


def _kept(recorded: Path, *kernels: MeasuredKernel) -> dict[str, Measured]:
    return {_id(recorded): Measured("NVIDIA X", "forward", 3e-3, 1e-3, kernels, ("a product (m.py:3): slow",))}


def _id(recorded: Path) -> str:
    with Recording.open(recorded) as recording:
        return recording.compiles()[0].id


def _rows(recorded: Path) -> list[Answer]:
    return measured_rows(Session(Recording.open(recorded)), _id(recorded), measured.kept(recorded).get(_id(recorded)))


def test_kernels_have_their_times(recorded: Path, capsys) -> None:
    assert main(["kernels", str(recorded), "--json"]) == 0
    groups = json.loads(capsys.readouterr().out)["kernels"]
    assert [group["measured"] for group in groups] == [None, None]
    names = [group["name"] for group in groups]
    product = MeasuredKernel("", names[0], "extern", 2e-4, 3e-4, 1000, 0.5, 4 * 10**10, 0.25, ("gemm_sm90",))
    loops = MeasuredKernel("", names[1], "loops", 8e-4, None, 8 * 10**5, 0.9, 10, 0.1)
    measured.keep(recorded, _kept(recorded, product, loops))
    assert main(["kernels", str(recorded)]) == 0
    text = capsys.readouterr().out
    assert "measured on NVIDIA X" in text and "800.0 us; 1 GB/s, 90% of a copy" in text
    assert "200.0 us; 0 GB/s, 50% of a copy; 200.0 TFLOP/s, 25% of the peak  ran gemm_sm90" in text

    rows = _rows(recorded)
    assert [row.title.split()[0] for row in rows] == ["1.000", "0.800", "0.200"]  # the graph, then the longest first
    assert "slower than eager: a product (m.py:3): slow" in rows[0].details()
    assert "[######### ]" in rows[1].title
    assert "ran gemm_sm90" in rows[2].details() and rows[2].opens is not None

    measured.keep(recorded, _kept(recorded, product))  # measured when it was scheduled otherwise
    assert len(_rows(recorded)) == 1
    none = MeasuredKernel("", names[0], "extern", 0.0, None, 1000, 0.5, 10, 1e308)
    measured.keep(recorded, _kept(recorded, none, msgspec.structs.replace(none, name=names[1])))
    assert [row.details()[0] for row in _rows(recorded)[1:]] == ["0.0 us", "0.0 us"]
    (recorded / measured.FILE).write_text("damaged")
    assert measured.kept(recorded) == {} and main(["kernels", str(recorded)]) == 0
    assert _rows(recorded) == []


def test_replay_keeps_what_it_measured(recorded: Path, capsys) -> None:
    assert main(["replay", "--time", str(recorded)]) == 0
    known = measured.kept(recorded)[_id(recorded)]
    assert known.compiled_seconds > 0 and len(known.kernels) == 2
    capsys.readouterr()
    main(["kernels", str(recorded), "--json"])
    assert all(group["measured"]["seconds"] > 0 for group in json.loads(capsys.readouterr().out)["kernels"])
