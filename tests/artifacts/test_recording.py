"""Reading: queries, the summary of the contract, damage."""
from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from ptdebug.artifacts import provenance, records as r
from ptdebug.artifacts.provenance import links, unlinked
from ptdebug.artifacts.recording import Recording, RecordingError
from ptdebug.artifacts.stages import NAMES, order_of
from ptdebug.artifacts.summary import breaks, guards, recompiles, summary
from ptdebug.artifacts.why import answers, left_out, subjects_near


@pytest.fixture
def recording(sample: Path) -> Recording:
    return Recording.open(sample)


def test_stages_come_in_the_order_of_the_contract(recording: Recording) -> None:
    stages = recording.stages("0/0")
    assert stages == sorted(stages, key=order_of)
    assert set(NAMES) - set(stages) == {"forward", "backward", "partition", "steps"}


def test_records_come_back_as_they_were_written(recording: Recording, sample_module, tmp_path: Path) -> None:
    builder = sample_module.SampleBuilder(tmp_path / "home" / "rec")
    builder.program = Path(recording.sources()[0])
    assert recording.artifact("0/0", "loop_ir", "buf1") == builder.loops(4)
    assert recording.artifact("0/0", "guards") == builder.guards(4)
    assert recording.artifact("0/0", "breaks") == builder.breaks()
    capture = recording.artifact("0/0", "capture")
    assert isinstance(capture, r.Graph)
    assert capture.nodes[:5] == builder.capture(4).nodes[:5]  # NodeRef and TensorMeta inside trees included


def test_queries(recording: Recording) -> None:
    (owner, found, times), = breaks(recording)
    assert (owner, found.code, times) == ("0/0", "builtin-with-side-effect", 2)
    assert [g.kind for _, g in guards(recording, "0/1")] == ["ID_MATCH", "BOOL", "TENSOR_MATCH"]
    assert [(owner, r.actual) for owner, r in recompiles(recording)] == [("0/1", "6")]
    assert [d.id for _, d in recording.decisions("0/0", kind="fuse")] == ["fuse:buf0+buf1"]


def test_summary_is_the_document_of_the_contract(recording: Recording) -> None:
    document = summary(recording)
    assert document["schema"] == "ptdebug/2"
    assert document["exit_code"] == 0
    assert document["counts"] == {
        "frames": 3, "compiles": 3, "graphs": 2, "ops": 8, "graph_breaks": 1, "recompiles": 1, "guards": 6,
        "kernels": 2, "extern_calls": 2, "decisions": 4, "skipped_frames": 1}
    first = document["compiles"][0]
    assert {key: first[key] for key in ("id", "function", "status", "reason", "graph_nodes", "kernels",
                                        "extern_calls", "guards", "calls")} == {
        "id": "0/0", "function": "forward", "status": "compiled", "reason": None, "graph_nodes": 6, "kernels": 1,
        "extern_calls": 1, "guards": 3, "calls": 10}
    assert list(first["seconds"])[:8] == ["total", "capture", "joint", "passes", "lowering", "scheduling", "codegen",
                                          "kernels"]
    assert document["graph_breaks"][0].items() >= {
        "compile": "0/0", "code": "builtin-with-side-effect", "line": 15, "times": 2,
        "source": 'print("hidden", tuple(h.shape))'}.items()
    assert document["recompiles"][0].items() >= {"compile": "0/1", "expected": 4, "actual": 6}.items()
    assert {"compile": "1/0", "stage": "kernels", "why": "cache hit"} in document["absent"]
    assert document["overhead_seconds"]["recording"] > 0


def test_an_absent_stage_says_why(recording: Recording) -> None:
    with pytest.raises(RecordingError, match="no backward: inference: nothing requires a gradient"):
        recording.artifact("0/0", "backward")
    with pytest.raises(RecordingError, match="it has: buf1"):
        recording.artifact("0/0", "loop_ir", "buf9")


@pytest.mark.parametrize("question, expected", [
    ("buf0+buf1", ["decision", "decision"]),
    ("fallback:addmm", ["decision", "decision"]),
    ("why was buf0 not fused with buf1?", ["decision"]),
    ("print", ["break"]),
    ("what about size", ["recompile"]),
    ("helper", ["compile"]),
])
def test_why_finds_what_is_known_about_a_subject(recording: Recording, question: str, expected: list[str]) -> None:
    assert [a.kind for a in answers(recording, question)][: len(expected)] == expected


def test_why_names_subjects_that_are_near(recording: Recording) -> None:
    assert answers(recording, "bufff0+buf1x") == []
    assert "buf0+buf1" in subjects_near(recording, "bufff0+buf1x")


def test_no_recording_is_an_error_with_exit_code_2(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(RecordingError, match="no recording at") as caught:
            Recording.open(path)
        assert caught.value.exit_code == 2


def test_a_file_that_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "recording.db").write_bytes(b"hello" * 1000)
    with pytest.raises(RecordingError, match="is not a recording"):
        Recording.open(tmp_path)
    sqlite3.connect(tmp_path / "other.db").close()
    (tmp_path / "other.db").replace(tmp_path / "recording.db")
    with pytest.raises(RecordingError, match="is not a recording"):
        Recording.open(tmp_path)


@pytest.mark.parametrize("schema, version", [("ptdebug/99", "another"), ("ptdebug/1", "an older")])
def test_another_schema_is_refused(sample: Path, tmp_path: Path, schema: str, version: str) -> None:
    folder = shutil.copytree(sample, tmp_path / "rec")
    with sqlite3.connect(folder / "recording.db") as connection:
        connection.execute("UPDATE meta SET value=? WHERE key='schema'", (json.dumps(schema),))
    with pytest.raises(RecordingError, match=f"by {version} version of ptdebug .{schema}; this one reads ptdebug/3"):
        Recording.open(folder)


def test_a_damaged_content_leaves_the_rest_readable(sample: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(sample, tmp_path / "rec")
    with sqlite3.connect(folder / "recording.db") as connection:
        connection.execute("UPDATE blobs SET data=x'00ff00ff' "
                           "WHERE hash=(SELECT hash FROM artifacts WHERE stage='joint' AND compile='0/0')")
        connection.execute("DELETE FROM blobs WHERE hash=(SELECT hash FROM artifacts WHERE stage='wrapper' LIMIT 1)")
    with Recording.open(folder) as recording:
        for stage in ("joint", "wrapper"):
            with pytest.raises(RecordingError, match="damaged"):
                recording.artifact("0/0", stage)
        assert recording.artifact("0/0", "loop_ir", "buf1")
        assert summary(recording)["counts"]["compiles"] == 3
        assert any("is damaged" in p for p in recording.problems)
        assert any("is missing" in p for p in recording.problems)


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.9])
def test_a_truncated_file_opens_as_far_as_it_is_whole(sample: Path, tmp_path: Path, keep: float) -> None:
    folder = shutil.copytree(sample, tmp_path / "rec")
    data = (folder / "recording.db").read_bytes()
    (folder / "recording.db").write_bytes(data[: int(len(data) * keep)])
    try:
        recording = Recording.open(folder)
    except RecordingError as error:
        assert "cannot be read" in str(error)
        return
    with recording:
        summary(recording)
        assert recording.problems


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(sample: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(sample, tmp_path / "rec")
    folder.chmod(0o500)
    try:
        with Recording.open(folder) as recording:
            assert recording.compiles()
    finally:
        folder.chmod(0o700)


def test_reading_imports_neither_torch_nor_textual(sample: Path) -> None:
    code = ("import sys\nfrom ptdebug.artifacts.recording import Recording\n"
            "from ptdebug.artifacts.render import listing\nfrom ptdebug.artifacts.summary import summary\n"
            "from ptdebug.artifacts.provenance import links\n"
            "recording = Recording.open(sys.argv[1]); summary(recording)\n"
            "listing(recording, '0/0', 'capture'); links(recording, '0/0')\n"
            "print([m for m in ('torch', 'textual', 'sympy', 'rich', 'numpy') if m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code, str(sample)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_why_says_which_names_were_never_met_together(recording: Recording) -> None:
    question = "why was buf0 not fused with buf2?"
    found = answers(recording, question)
    assert found
    assert set(left_out(recording, question, found)) == {"buf0", "buf2"}
    assert left_out(recording, "buf0 with buf1", answers(recording, "buf0 with buf1")) == []


def test_a_recording_without_facts_is_read_as_one_with_them(sample, tmp_path):
    """Those made before facts stood beside the records."""
    folder = tmp_path / "before"
    shutil.copytree(sample, folder)
    with closing(sqlite3.connect(folder / "recording.db")) as connection:
        connection.execute("ALTER TABLE artifacts DROP COLUMN facts")
        connection.commit()
    with Recording.open(sample) as now, Recording.open(folder) as before:
        assert summary(before)["counts"] == summary(now)["counts"]
        assert {i.key: i.facts for i in before.artifacts("0/0")} == {i.key: i.facts for i in now.artifacts("0/0")}
        assert not before.problems


def test_what_is_too_large_is_not_linked_and_named(sample, monkeypatch):
    with Recording.open(sample) as recording:
        assert unlinked(recording, "0/0") == []
        whole = set(links(recording, "0/0").items())
        monkeypatch.setattr(provenance, "MOST_LINKED", 5)
        assert unlinked(recording, "0/0")[:2] == ["bytecode", "capture"]
        assert set(links(recording, "0/0").items()) < whole
