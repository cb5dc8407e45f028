"""Selectors and where recordings lie."""
from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from ptdebug.artifacts.home import existing_home, new_recording_folder, recordings, recordings_home
from ptdebug.artifacts.selector import Selector, SelectorError, find, open_selected, parse
from ptdebug.artifacts.stages import NAMES
from ptdebug.artifacts.store import RecordingWriter


@pytest.mark.parametrize("text, expected", [
    ("", Selector()),
    ("@", Selector()),
    ("@~3", Selector("@~3")),
    ("@:0/1", Selector("@", "0/1")),
    ("@:0/1:capture", Selector("@", "0/1", "capture")),
    ("@:capture", Selector("@", "", "capture")),
    ("run-1:12/3:loop_ir:buf3", Selector("run-1", "12/3", "loop_ir", "buf3")),
    ("run-1:decisions", Selector("run-1", "", "decisions")),
    ("/tmp/a:b/rec:0/0:kernels:unit_0.asm", Selector("/tmp/a:b/rec", "0/0", "kernels", "unit_0.asm")),
    ("/tmp/0/0/rec", Selector("/tmp/0/0/rec")),
    ("C:/x/rec:0/0@77:capture", Selector("C:/x/rec", "0/0@77", "capture")),
    ("run:0/0:decisions:fuse:buf0+buf1", Selector("run", "0/0", "decisions", "fuse:buf0+buf1")),
])
def test_parse(text: str, expected: Selector) -> None:
    assert parse(text) == expected


@given(st.from_regex(r"[A-Za-z0-9_./-]{1,20}(:[a-z]{1,5})?", fullmatch=True), st.integers(0, 99), st.integers(0, 99),
       st.sampled_from(NAMES), st.from_regex(r"[a-z_0-9]{0,8}", fullmatch=True))
def test_a_selector_printed_is_read_back(recording: str, frame: int, number: int, stage: str, name: str) -> None:
    selector = Selector(recording, f"{frame}/{number}", stage, name)
    assert parse(str(selector)) == selector


def test_an_unknown_stage_is_an_error_that_suggests() -> None:
    with pytest.raises(SelectorError, match=r"no stage kernel; did you mean kernels\?") as caught:
        parse("@:0/0:kernel")
    assert caught.value.exit_code == 2


def test_find_by_name_path_and_age(sample: Path, tmp_path: Path) -> None:
    for number in range(3):
        folder = new_recording_folder(tmp_path, "dir/train model.py")
        assert folder.name == f"train-model-{number + 1}"
        RecordingWriter(folder, ["x"]).close(0)
    assert find(parse("@"), tmp_path).name == "train-model-3"
    assert find(parse("@~2"), tmp_path).name == "train-model-1"
    assert find(parse("train-model-2"), tmp_path).name == "train-model-2"
    assert find(parse(str(sample)), tmp_path) == sample
    assert find(parse(str(sample / "recording.db")), tmp_path) == sample
    with pytest.raises(SelectorError, match=r"there are 3 recordings"):
        find(parse("@~3"), tmp_path)
    with pytest.raises(SelectorError, match=r"did you mean train-model"):
        find(parse("train-modle-1"), tmp_path)
    with pytest.raises(SelectorError, match="ptdebug run SCRIPT"):
        find(parse("@"), tmp_path / "empty")


def test_a_named_recording_keeps_its_name(tmp_path: Path) -> None:
    assert new_recording_folder(tmp_path, "a.py", "mine").name == "mine"
    assert new_recording_folder(tmp_path, "a.py", "mine").name == "mine-1"
    assert new_recording_folder(tmp_path, "a.py", "../../etc").name == "etc"


def test_a_stage_without_a_compilation_means_the_first_that_has_it(sample: Path) -> None:
    recording, selector = open_selected(f"{sample}:capture")
    assert (recording.name, selector.compile, selector.stage) == ("model-1", "0/0", "capture")
    with pytest.raises(SelectorError, match="has no compilation 0/7; did you mean"):
        open_selected(f"{sample}:0/7")
    with pytest.raises(SelectorError, match="has no buf2; did you mean buf1"):
        open_selected(f"{sample}:0/0:loop_ir:buf2")
    assert open_selected(f"{sample}:0/0:kernels:unit_0.asm")[1].name == "unit_0.asm"


def test_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PTDEBUG_HOME", raising=False)
    (tmp_path / ".ptdebug").mkdir()
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")
    assert recordings_home() == tmp_path / "deep" / "er" / ".ptdebug"
    assert existing_home() == tmp_path / ".ptdebug"  # reading looks above, writing does not
    monkeypatch.setenv("PTDEBUG_HOME", str(tmp_path / "elsewhere"))
    assert recordings_home() == existing_home() == tmp_path / "elsewhere"
    assert recordings_home("out") == tmp_path / "deep" / "er" / "out"
    assert recordings(tmp_path / "elsewhere") == []
