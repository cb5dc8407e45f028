"""`ptdebug search`: every stage, several recordings, selectors that `ptdebug show` takes."""
from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from ptdebug.artifacts import records as r
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.search import LARGE, progress_text, search
from ptdebug.artifacts.store import RecordingWriter
from ptdebug.artifacts.word_scan import holds
from ptdebug.cli.main import main

PROGRAM = "import torch\n\ndef f(x):\n    return x.sigmoid() + 1\n"
Command = Callable[..., subprocess.CompletedProcess[str]]


def graph(*names: str) -> r.Graph:
    return r.Graph("g", tuple(r.Node(name, "call_function", "aten.sigmoid.default") for name in names))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "model.py"
    program.write_text(PROGRAM)
    for name, node in (("first", "sigmoid"), ("second", "tail")):
        writer = RecordingWriter(tmp_path / "home" / name, command=["model.py"])
        writer.source_file(str(program))
        for number in range(2):
            writer.begin(f"0/{number}", "f", str(program), 3)
            writer.record(f"0/{number}", "forward", "", graph(node, "other"))
            writer.record(f"0/{number}", "kernels", "cpp", r.Kernel("cpp", "cpp", (r.CodeLine("float tail_2;"),),
                                                                   outputs={"asm": "vmovups tail_3\n"}))
            writer.decision(f"0/{number}", r.Decision("fuse:a", "fuse", "a", (), "b", "b", "because of sigmoid"))
            writer.end(f"0/{number}", "compiled", "", {})
        writer.set_meta("exception", "Traceback\nValueError: no such sigmoid")
        writer.close(1)
    monkeypatch.setenv("PTDEBUG_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def found(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["search", *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_every_stage_the_program_and_the_run(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = [line.partition("  ")[0] for line in found(capsys, "sigmoid", "first")]
    assert {"first", "first:0/0:forward --line 4", "first:0/1:forward --line 4"} <= set(places)
    assert any(place.startswith("first:0/0:decisions") for place in places)
    assert any(f"{home.parent}/model.py:4" in line for line in found(capsys, "sigmoid", "first"))
    assert found(capsys, "tail_3", "first:0/1") == ["first:0/1:kernels:cpp.asm --line 1  vmovups tail_3"]


def test_what_is_printed_can_be_shown(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in found(capsys, "sigmoid", "--all"):
        selector = line.partition("  ")[0]
        assert main(["show", *selector.split()]) == 0, line
    capsys.readouterr()


def test_several_recordings_and_parts_of_them(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = found(capsys, "tail", "--all")
    assert {line.partition(":")[0] for line in both} == {"first", "second"}
    assert found(capsys, "tail", "first", "second:0/0") != both
    stages = found(capsys, "tail", "second:kernels")
    assert {line.partition(" ")[0] for line in stages} == {
        f"second:0/{n}:kernels:{name}" for n in range(2) for name in ("cpp", "cpp.asm")}
    line = "second:0/1:forward --line 5  other = aten.sigmoid.default()"
    assert found(capsys, "other", "second:0/1:forward") == [line]


def test_one_that_cannot_be_opened_does_not_end_the_search_of_all(
    home: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    (home / "broken").mkdir()
    (home / "broken" / "recording.db").write_bytes(b"no database")
    assert main(["search", "tail", "--all"]) == 0
    said = capsys.readouterr()
    assert {line.partition(":")[0] for line in said.out.splitlines()} == {"first", "second"}
    assert said.err.startswith("broken: ")
    assert main(["search", "tail", "broken"]) == 2 and main(["search", "tail", "--limit", "-1"]) == 2


def test_limits_and_codes(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(found(capsys, "sigmoid", "--all", "--limit", "3")) == 3
    assert main(["search", "nowhere"]) == 1 and main(["search", ""]) == 2 and main(["search", "x", "@:0/7"]) == 2
    assert "is nowhere in" in capsys.readouterr().err
    assert main(["search", "Sigmoid", "first"]) == 1  # capitals count where there are some
    capsys.readouterr()
    assert main(["search", "tail_3", "first", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["complete"] and document["schema"] and [m["line"] for m in document["matches"]] == [1, 1]
    assert document["matches"][0]["selector"] == "first:0/0:kernels:cpp.asm"


def test_small_artifacts_that_hold_the_word_come_first(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "r", command=["x"])
    for number, nodes in enumerate((["long"] * (LARGE + 1), ["none"], ["long"])):
        writer.begin(f"0/{number}", "f", "x.py", 1)
        writer.record(f"0/{number}", "capture", "", graph(*nodes))
    writer.close(0)
    with Recording.open(tmp_path / "r") as recording:
        first = next(step.found for step in search(recording, "long") if step.found)
        assert first[0].place.compile == "0/2"
        operations = next(step.found for step in search(recording, "operations") if step.found)
        assert [m.place.compile for m in operations] == ["0/0"]


def test_what_was_recorded_is_searched_before_what_listings_add(home: Path) -> None:
    with Recording.open(home / "first") as recording:
        for text, added in (("vmovups", False), ("because", False), ("operations", True), ("nowhere", True)):
            steps = list(search(recording, text))
            parts = [step.is_added for step in steps]
            assert parts == sorted(parts) and all(0 <= step.share <= 1 for step in steps)
            assert {step.is_added for step in steps if step.found} == ({added} if text != "nowhere" else set())
        assert progress_text(steps[-1], False).startswith("nothing that was recorded matches; ")


def test_a_word_in_any_case_is_found_without_decoding(home: Path) -> None:
    for content, word, there in (('{"a":"Re_LU"}', "re_lu", True), ('{"a":"relu"}', "re_lu", False), ("", "x", False),
                                 ("ends\0then ReLU", "relu", True), ("RELU\u00c9", "relu\u00e9", True)):
        assert holds(content.encode(), word.encode()) == there


def test_a_search_without_words_reads_everything(home: Path) -> None:
    with Recording.open(home / "first") as recording:
        assert any(step.found and not step.is_added for step in search(recording, "()"))
