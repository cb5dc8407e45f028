"""What a person asks of `ptdebug replay`: stages, calls, devices, trust; and inputs whose values were not kept."""
from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import ptdebug
import pytest
import torch
from ptdebug.artifacts.recording import Recording
from ptdebug.cli.main import main
from ptdebug.tracer.frames import dispatch

from .crafting import claim


def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * 2).softmax(-1) + y[0]


def write(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return y * 2


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of the same calls: all inputs kept, only their metadata, none."""
    home = tmp_path_factory.mktemp("asked")
    for kind in ("all", "meta", "none"):
        dispatch.reset()
        with ptdebug.record(kind, str(home), inputs=kind):
            compiled = ptdebug.compile(forward)
            for number in range(3):
                compiled(torch.arange(12.0).view(3, 4) / 7, torch.full((3, 4), float(number)))
            x = torch.ones(4, 4)
            ptdebug.compile(write)(x, x.t())
    return home


def compiled(folder: Path, number: int) -> str:
    """The selector of one compilation: numbers go on from recording to recording in one process."""
    with Recording.open(folder) as recording:
        return f"{folder}:{recording.compiles()[number].id}"


def replayed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    code = main(["replay", *words, "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    document: dict[str, Any] = json.loads(out)
    return document


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["replay", *words]) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith("ptdebug: ") and "Traceback" not in err
    return err


def test_stages(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def stages(*words: str) -> list[str]:
        return [rung["stage"] for rung in replayed(capsys, *words)["rungs"]]

    assert stages(compiled(home / "all", 0) + ":forward") == ["forward"]
    assert stages(compiled(home / "all", 0), "--rung", "kernels", "--rung", "capture") == ["capture", "kernels"]
    assert "program" not in stages(compiled(home / "all", 0), "--no-program")
    assert "has no nothing" in refused(capsys, compiled(home / "all", 0) + ":wrapper:nothing")
    assert "no joint can be run: this compilation" in refused(capsys, compiled(home / "all", 0), "--rung", "joint")
    assert "not a stage that replay runs" in refused(capsys, compiled(home / "all", 0) + ":schedule")
    assert "leaves nothing" in refused(capsys, compiled(home / "all", 0), "--rung", "program", "--no-program")


def test_calls(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in ("0", "1", "2"):
        document = replayed(capsys, compiled(home / "all", 0), "--call", number, "--rung", "kernels")
        assert document["verdict"] in ("equal", "rounding") and document["inputs"] == "recorded"
    said = refused(capsys, compiled(home / "all", 0), "--call", "3")
    assert "the inputs of call 3" in said and "(those of 3 calls were: 0, 1, 2)" in said
    assert "counts from 0" in refused(capsys, compiled(home / "all", 0), "--call", "-1")


def test_devices(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "'tpu'" in refused(capsys, compiled(home / "all", 0), "--device", "cpu,tpu")
    if torch.cuda.is_available():
        found = replayed(capsys, compiled(home / "all", 0), "--device", "cpu,cuda", "--no-program")
        assert {rung["device"] for rung in found["rungs"]} == {"cpu", "cuda"}
    else:
        assert "no CUDA device" in refused(capsys, compiled(home / "all", 0), "--device", "cpu,cuda")


@pytest.mark.parametrize("kind", ["meta", "none"])
def test_inputs_are_made_up_where_they_were_not_kept(kind: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = replayed(capsys, compiled(home / kind, 0))
    assert document["verdict"] in ("equal", "rounding")
    assert document["inputs"].startswith("made up from recorded metadata") and f"--inputs {kind}" in document["inputs"]
    absent = {rung["stage"]: rung["why"] for rung in document["rungs"] if rung["verdict"] == "absent"}
    assert set(absent) <= {"program", "guards", "output_bytecode", "passes"} and "program" in absent
    assert main(["replay", compiled(home / kind, 0)]) == 0
    assert "inputs: made up from recorded metadata" in capsys.readouterr().out


def test_made_up_inputs_share_memory_as_the_recorded_ones(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("all", "meta"):
        rungs = replayed(capsys, compiled(home / kind, 1), "--no-program")["rungs"]
        assert all("shares memory" in rung["why"] for rung in rungs if rung["stage"] not in ("capture", "program"))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_recording_from_elsewhere_is_replayed_when_the_person_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatch.reset()
    with ptdebug.record("r", str(tmp_path)):
        ptdebug.compile(forward)(torch.ones(3, 4), torch.ones(3, 4))
    assert main(["replay", str(tmp_path / "r"), "--rung", "capture"]) == 0
    claim(tmp_path / "r", origin="0" * 64, signature="")
    capsys.readouterr()
    error = refused(capsys, str(tmp_path / "r"), "--rung", "capture")
    assert "not recorded by you on this machine" in error and "--trust" in error and error.count("\n") == 1
    assert main(["replay", str(tmp_path / "r"), "--rung", "capture", "--trust"]) == 0
    for answer, code in (("y\n", 0), ("\n", 2), ("n\n", 2), ("", 2)):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", Terminal(answer))
            patch.setattr(sys, "stderr", Terminal())
            assert main(["replay", str(tmp_path / "r"), "--rung", "capture"]) == code
            assert "[y/N]" in sys.stderr.getvalue()  # type: ignore[attr-defined]
