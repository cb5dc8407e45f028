"""A recording as one file, and back: what arrives is what was recorded, and what is damaged is refused whole."""
from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from ptdebug.artifacts import records as r
from ptdebug.artifacts.database import RecordingError
from ptdebug.artifacts.packing import MANIFEST, pack, unpack
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.redaction import redaction_of
from ptdebug.artifacts.store import RecordingWriter
from ptdebug.artifacts.summary import summary
from ptdebug.cli.main import main

from .older_form import make_older


def _recorded(folder: Path, program: Path, end: bool = True) -> RecordingWriter:
    """A recording of a program in `program`, of a parent and a child, with a tensor's file."""
    program.mkdir(exist_ok=True)
    script = str(program / "model.py")
    Path(script).write_text(f"# in {program}\nx = 1\n")
    place = r.Location(script, 3, "f")
    writer = RecordingWriter(folder, command=[script], meta={"folder": str(program)})
    writer.begin("0/0", "f", script, 1)
    writer.source_file(script)
    broke = r.Break("0", "print", f"it prints {program}/a.txt, not {program}-b", "h", place, "print()")
    writer.record("0/0", "breaks", "", r.Breaks((broke,)))
    writer.decision("0/0", r.Decision("fuse:a", "fuse", "a", (), "", "", f"{program} says so"))
    writer.end("0/0", "compiled", "", {"total": 1.0})
    (folder / "notes.json").write_text(json.dumps([script]))
    (folder / "tensors").mkdir()
    (folder / "tensors" / "0-0-inputs.safetensors").write_bytes(b"values")
    if end:
        writer.close(0)
    return writer


def _facts(folder: Path) -> object:
    with Recording.open(folder) as recording:
        assert not recording.problems
        document = {**summary(recording), "recording": ""}
        return document, recording.records(r.Breaks), recording.decisions()


def test_what_is_unpacked_is_what_was_recorded(tmp_path: Path) -> None:
    _recorded(tmp_path / "home" / "run", tmp_path / "program")
    packed = pack(tmp_path / "home" / "run", tmp_path / "run.ptdr")
    assert sorted(packed.manifest.files) == ["notes.json", "recording.db", "tensors/0-0-inputs.safetensors"]
    first, second = unpack(packed.path, tmp_path / "other"), unpack(packed.path, tmp_path / "other")
    assert (first.name, second.name) == ("run", "run-1")
    assert _facts(first) == _facts(second) == _facts(tmp_path / "home" / "run")
    assert (second / "tensors" / "0-0-inputs.safetensors").read_bytes() == b"values"
    assert sorted(path.name for path in (tmp_path / "other").iterdir()) == ["run", "run-1"]


def test_a_recording_that_is_being_written(tmp_path: Path) -> None:
    writer = _recorded(tmp_path / "run", tmp_path / "program", end=False)
    packed = pack(tmp_path / "run", tmp_path / "run.ptdr", inputs=False)
    writer.begin("1/0", "g", "model.py", 1)
    assert list(packed.manifest.files) == ["recording.db", "notes.json"] and not packed.manifest.inputs
    with Recording.open(unpack(packed.path, tmp_path / "other")) as recording:
        assert [info.id for info in recording.compiles()] == ["0/0"] and not recording.problems
    writer.close(0)


@pytest.mark.parametrize("older", [False, True])
def test_redacted(tmp_path: Path, older: bool) -> None:
    """No text of it, compressed or not, names a folder; what records say agrees with each other."""
    program = tmp_path / 'people\'s "programs"'
    _recorded(tmp_path / "home" / "run", program)
    if older:
        make_older(tmp_path / "home" / "run")
    with Recording.open(tmp_path / "home" / "run") as recording:
        redaction = redaction_of(recording.meta, recording.path, tmp_path)
    pack(tmp_path / "home" / "run", tmp_path / "run.ptdr", redaction=redaction)
    with zipfile.ZipFile(tmp_path / "run.ptdr") as archive:
        assert all(str(tmp_path).encode() not in archive.read(name) for name in archive.namelist())
    with Recording.open(unpack(tmp_path / "run.ptdr", tmp_path / "other")) as recording:
        document = json.dumps({**summary(recording), "recording": ""}) + str(recording.decisions())
        assert [decision.why for _, decision in recording.decisions()] == ["/script says so"]
        assert not recording.problems and document.count(str(tmp_path)) == 0
        [(_, breaks)] = recording.records(r.Breaks)
        assert breaks.breaks[0].message == "it prints /script/a.txt, not /home/people's \"programs\"-b"
        assert breaks.breaks[0].location.file == "/script/model.py" == recording.meta["command"][0]
        assert recording.source("/script/model.py") == "# in /script\nx = 1\n"
        assert {"machine", "origin", "signature"}.isdisjoint(recording.meta)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _changed(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"values", b"valued"))


def _deflated(path: Path) -> None:
    """Of which the compressed contents are damaged."""
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    whole = bytearray(path.read_bytes())
    at = whole.index(b"recording.db") + 40
    whole[at : at + 400] = b"\xff" * 400
    path.write_bytes(whole)


def _renamed(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        member = {"bytes": 1, "sha256": ""}
        files = {"recording.db": member, "../outside": member}
        archive.writestr(MANIFEST, json.dumps({"schema": r.SCHEMA, "recording": "x", "files": files, "inputs": True}))
        archive.writestr("recording.db", "x")
        archive.writestr("../outside", "x")


def _of_another_version(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MANIFEST, json.dumps({"schema": "ptdebug/99", "recording": "x", "files": {}, "inputs": True}))


@pytest.mark.parametrize("damage", (
    _cut, _changed, _deflated, _renamed, _of_another_version, lambda path: path.write_text("no"),
))
def test_a_damaged_file_is_refused_and_leaves_nothing(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    _recorded(tmp_path / "run", tmp_path / "program")
    pack(tmp_path / "run", tmp_path / "run.ptdr")
    damage(tmp_path / "run.ptdr")
    with pytest.raises(RecordingError, match=r"run\.ptdr"):
        unpack(tmp_path / "run.ptdr", tmp_path / "other")
    assert not (tmp_path / "outside").exists() and not list((tmp_path / "other").glob("*"))


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PTDEBUG_HOME", str(tmp_path / "home"))
    _recorded(tmp_path / "home" / "run", tmp_path / "program")
    assert main(["pack", "run"]) == 0 and "run.ptdr  (3 files, " in capsys.readouterr().out
    assert main(["pack", "run", "--redact", "-o", "r.ptdr", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["redacted"][0] == "/program"
    assert main(["show", "r.ptdr"]) == 2 and "ptdebug unpack r.ptdr" in capsys.readouterr().err
    assert main(["unpack", "r.ptdr", "--name", "theirs"]) == 0 and (tmp_path / "home" / "theirs").is_dir()
    for wrong in (["pack", "run:0/0"], ["pack", "run", "-o", "no/where"], ["unpack", "missing"], ["unpack", "."]):
        assert main(wrong) == 2, wrong
