"""Opening a recording of somebody else: nothing outside of it is touched, nothing takes for ever, nothing talks to the
terminal."""
from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from pathlib import Path

import pytest
import zstandard
from ptdebug.artifacts import records as r
from ptdebug.artifacts.files import NotAFileOfIt, plain_file
from ptdebug.artifacts.recording import Recording, RecordingError
from ptdebug.artifacts.store import RecordingWriter, content_hash
from ptdebug.cli.main import main
from ptdebug.cli.session import Session, Settings
from ptdebug.cli.summary_text import summary_lines
from ptdebug.tui.app import workbench

pytestmark = pytest.mark.timeout(60)
ESCAPES = "\x1b[2J\x1b]0;evil\x07\x9b2J\u202e\u200f\r"
RAW = ("\x1b", "\x07", "\x9b", "\u202e", "\u200f", "\r")


@pytest.fixture
def copy(sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recording that a test may change, the newest of a home."""
    monkeypatch.setenv("PTDEBUG_HOME", str(tmp_path / "home"))
    return Path(shutil.copytree(sample, tmp_path / "home" / "copy"))


def change(folder: Path, *statements: str) -> None:
    db = sqlite3.connect(folder / "recording.db", isolation_level=None)
    for statement in statements:
        db.execute(statement)
    db.close()


# ---- files ----------------------------------------------------------------------------------------------------------
def test_a_linked_database_is_not_opened(copy: Path, tmp_path: Path) -> None:
    app = tmp_path / "app.db"
    shutil.move(copy / "recording.db", app)
    with sqlite3.connect(app) as db:
        db.execute("PRAGMA journal_mode=WAL")
    db.close()
    before = sorted(tmp_path.iterdir())
    (copy / "recording.db").symlink_to(app)
    with pytest.raises(RecordingError, match="is a link"):
        Recording.open(copy)
    assert main(["ls"]) == 0
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("beside", ["recording.db-wal", "recording.db-shm", "recording.db-journal"])
def test_what_sqlite_keeps_beside_is_no_link(beside: str, copy: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"x" * 40000)
    for target in (tmp_path / "precious", tmp_path / "nowhere"):
        (copy / beside).symlink_to(target)
        with pytest.raises(RecordingError, match="is a link"):
            Recording.open(copy)
        (copy / beside).unlink()
    assert (tmp_path / "precious").read_bytes() == b"x" * 40000 and not (tmp_path / "nowhere").exists()


def test_a_pipe_is_not_waited_for(copy: Path) -> None:
    os.mkfifo(copy / "recording-7.db")
    with Recording.open(copy) as recording:
        assert "not a regular file" in recording.problems[0] and len(recording.compiles()) == 4


def test_files_of_a_recording(tmp_path: Path) -> None:
    (tmp_path / "tensors").mkdir()
    (tmp_path / "tensors" / "a").write_text("")
    assert plain_file(tmp_path, "tensors/a") == tmp_path / "tensors" / "a"
    for name in ("", ".", "..", "/etc/passwd", "tensors", "tensors/", "tensors//a", "tensors/./a", "../x", "a\0", "no"):
        with pytest.raises(NotAFileOfIt):
            plain_file(tmp_path, name)


# ---- what would take for ever ---------------------------------------------------------------------------------------
ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) "


@pytest.mark.parametrize("table", ["meta", "compiles", "notes", "artifacts", "decisions", "absents", "blobs"])
def test_a_view_is_no_table(table: str, copy: Path) -> None:
    columns = {"meta": "n AS key, n AS value", "notes": "n AS seq, 'x' AS text"}.get(table, "n AS id, n AS compile")
    change(copy, f"DROP TABLE {table}", f"CREATE VIEW {table} AS {ENDLESS} SELECT {columns} FROM c")
    with pytest.raises(RecordingError, match=f"{table} is no table"):
        Recording.open(copy)
    assert main(["ls"]) == 0


def test_a_computed_column_is_not_computed(copy: Path) -> None:
    change(copy, "DROP TABLE notes", "CREATE TABLE notes(seq INTEGER PRIMARY KEY, text TEXT AS (zeroblob(100000000)))",
           "INSERT INTO notes(seq) VALUES(1)")
    with pytest.raises(RecordingError, match="notes is no table"):
        Recording.open(copy)


def test_a_question_that_takes_for_ever_ends(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptdebug.artifacts.database.MAX_LOOKS", 20)
    with Recording.open(copy) as recording:
        assert list(recording._rows(ENDLESS + "SELECT count(*) FROM c", tuple[int])) == []
        assert any("takes too long" in problem for problem in recording.problems)
        monkeypatch.setattr("ptdebug.artifacts.database.MAX_ROWS", 50)
        assert len(list(recording._rows(ENDLESS + "SELECT n FROM c", tuple[int]))) == 50


def test_guards_that_contain_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = RecordingWriter(tmp_path / "r")
    writer.begin("0/0", "f", "f.py", 1)
    guard = [r.Guard(f"g{i}", "x", "DICT", "x", parent=f"g{(i + 1) % 3}", implicit=True) for i in range(3)]
    writer.record("0/0", "guards", "", r.Guards((*guard, r.Guard("h", "x", "BOOL", "x", parent="g0"))))
    writer.close(0)
    assert main(["guards", str(tmp_path / "r")]) == 0
    assert "BOOL" in capsys.readouterr().out


def put_graph(folder: Path, content: bytes, size: int | None = None, data: bytes | None = None) -> None:
    """Let 0/0:capture have that content, or that frame of zstd, and the hash that fits."""
    key = content_hash(content)
    db = sqlite3.connect(folder / "recording.db", isolation_level=None)
    db.execute("INSERT OR REPLACE INTO blobs VALUES(?,?,?)",
               (key, len(content) if size is None else size, data or zstandard.ZstdCompressor().compress(content)))
    db.execute("UPDATE artifacts SET hash=? WHERE compile='0/0' AND stage='capture'", (key,))
    db.close()


def test_a_frame_that_unpacks_to_gigabytes(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compressor = zstandard.ZstdCompressor(level=1).compressobj(size=3 << 30)
    zeros = bytes(1 << 24)
    bomb = b"".join([compressor.compress(zeros) for _ in range(192)] + [compressor.flush()])
    assert len(bomb) < 1 << 20 and zstandard.frame_content_size(bomb) == 3 << 30
    for said in (10, 3 << 30, (1 << 28) - 1, -1):
        put_graph(copy, b"whatever", said, bomb)
        start = time.monotonic()
        assert main(["show", f"{copy}:0/0:capture"]) == 2
        assert time.monotonic() - start < 5
        assert "damaged" in capsys.readouterr().err


@pytest.mark.parametrize("depth", [50, 200, 900, 100_000])
def test_values_nested_deeply(depth: int, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deep = b"[" * depth + b"1" + b"]" * depth
    node = b'{"record":"Node","id":"a","op":"call_function","target":"f","args":' + b"[" + deep + b"]}"
    put_graph(copy, b'{"record":"Graph","name":"g","nodes":[' + node + b"]}")
    for words in (["show"], ["show", "--json"]):
        assert main([words[0], f"{copy}:0/0:capture", *words[1:]]) == (0 if depth == 50 else 2)
    capsys.readouterr()


def test_a_record_whose_bytes_changed_is_not_shown(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    db = sqlite3.connect(copy / "recording.db", isolation_level=None)
    (key,), = db.execute("SELECT hash FROM artifacts WHERE compile='0/0' AND stage='capture'").fetchall()
    (data,), = db.execute("SELECT data FROM blobs WHERE hash=?", (key,)).fetchall()
    content = zstandard.ZstdDecompressor().decompress(data).replace(b"sigmoid", b"cosines")
    db.execute("UPDATE blobs SET data=? WHERE hash=?", (zstandard.ZstdCompressor().compress(content), key))
    db.close()
    assert main(["show", "@:0/0:capture"]) == 2
    assert "damaged" in capsys.readouterr().err
    assert main(["show", "@"]) == 0  # the rest is there


def test_one_of_several_is_damaged(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(copy, "UPDATE artifacts SET hash=x'00' WHERE compile='0/1' AND stage='guards' AND name='recompile'")
    assert main(["show", "@:0/1:guards"]) == 0
    out, err = capsys.readouterr()
    assert "TENSOR_MATCH" in out and "the content is damaged" in out and "content 00 is missing" in err
    assert main(["show", "@:0/1:guards", "--json"]) == 0
    whole, damaged = json.loads(capsys.readouterr().out)["artifacts"]
    assert whole["record"]["guards"] and "damaged" in damaged["problem"]
    assert main(["show", "@:0/1:guards:recompile"]) == 2


def test_what_is_whole_is_shown(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(copy, "DELETE FROM compiles WHERE id='0/1'", "UPDATE compiles SET reason=NULL WHERE id='1/0'")
    assert main(["recompiles", "@"]) == 0
    out, err = capsys.readouterr()
    assert "compiled again" in out and "rows of compiles" in err
    assert main(["show", "@:0/1:capture"]) == 0
    assert "sigmoid" in capsys.readouterr().out
    with Recording.open(copy) as recording:
        assert [info.id for info in recording.compiles()] == ["0/0", "2/0", "0/1", "1/0"]
        lost = recording.compile("0/1")
        assert lost.status == "unknown" and "damaged or missing" in lost.reason


# ---- the terminal ---------------------------------------------------------------------------------------------------
@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recording all of whose texts talk to the terminal, and hold markup."""
    monkeypatch.setenv("PTDEBUG_HOME", str(tmp_path / "home"))
    bad = f"[/]{ESCAPES}[red]"
    writer = RecordingWriter(tmp_path / "home" / "evil", command=[bad], meta={"versions": {bad: bad}})
    source = tmp_path / "[/]\x1b[2J.py"
    source.parent.mkdir()
    source.write_text(f"def f(x):\n    return '{ESCAPES}'\n")
    place = r.Location(str(source), 2, bad)
    for compile_id in ("0/0", "0/1"):
        writer.begin(compile_id, bad, str(source), 1)
        writer.source_file(str(source))
        arguments = (r.Argument(bad, bad, bad),)
        writer.record(compile_id, "frame", "", r.Frame(bad, str(source), 1, bad, arguments, (place,)))
        for name in (bad, "other"):
            node = r.Node(bad, "call_function", bad, (bad,), {bad: bad}, bad, (place,), bad)
            writer.record(compile_id, "capture", name, r.Graph(bad, (node,), (bad,)))
            writer.record(compile_id, "kernels", name, r.Kernel(
                name, "cpp", (r.CodeLine(bad),), (bad,), (bad,), bad, outputs={"asm": bad}, metrics={bad: bad}))
        writer.record(compile_id, "breaks", "", r.Breaks((r.Break("b", bad, bad, bad, place, bad, (place,)),)))
        writer.record(compile_id, "guards", "", r.Guards((r.Guard("g", bad, bad, bad, bad, bad, place),)))
        recompile = r.Recompile(bad, bad, bad, "0/0", place, bad, bad, (bad,), place)
        writer.record(compile_id, "guards", "recompile", recompile)
        writer.absent(compile_id, "wrapper", bad)
        writer.decision(compile_id, r.Decision(bad, bad, bad, (r.Option(bad),), bad, bad, bad))
        writer.end(compile_id, "failed", bad + ", the limit: ", {})
    writer.note(bad)
    writer.close(0)
    return tmp_path / "home" / "evil"


def silent(text: str) -> bool:
    return not any(raw in text for raw in RAW)


@pytest.mark.parametrize("command", [
    "ls", "show", "breaks", "guards", "recompiles", "fusions", "kernels", "decisions", "show:0/0", "show:0/0:frame",
    "show:0/0:capture", "show:0/0:kernels", "show:0/0:breaks", "show:0/0:guards", "show:0/0:decisions",
    "show:0/0:loop_ir", "show:0/0:wrapper", "show:0/0:capture:nothing", "show:9/9", "why", "why2", "replay",
    "replay:0/0",
])
@pytest.mark.parametrize("as_json", [False, True])
def test_commands_are_silent(command: str, as_json: bool, evil: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, _, rest = command.partition(":")
    words = [name.rstrip("2"), *([] if name == "ls" else ["@" + (":" + rest if rest else "")])]
    words += {"why": ["red"], "why2": ["buf1 \x1b[2J buf2"]}.get(name, [])
    code = main([*words, *(["--json"] if as_json else [])])
    out, err = capsys.readouterr()
    assert silent(out) and silent(err), (out, err)
    if as_json and code == 0:
        json.loads(out)


def test_names_that_no_terminal_can_be_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff\x1b[2J"
    os.mkdir(folder)
    assert main(["show", os.fsdecode(folder)]) == 2
    assert main(["ls", os.fsdecode(folder)]) == 0
    out, err = capsys.readouterr()
    assert silent(out + err) and (out + err).encode()


def test_the_summary_of_a_run_is_silent(evil: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from ptdebug.artifacts.summary import summary
    from ptdebug.cli.recorded_run import _say

    with Recording.open(evil) as recording, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.__stderr__", __import__("sys").stderr)
        _say(summary_lines(summary(recording), Session(Settings(), recording, evil), "ptdebug tui @"))  # type: ignore
    err = capsys.readouterr().err
    assert "graph break" in err and silent(err)


async def test_the_workbench_is_silent(evil: Path) -> None:
    app = workbench("@")
    async with app.run_test(size=(160, 48)) as pilot:
        seen = []
        for keys in (("g", "down", "enter"), ("right_square_bracket",), ("right_square_bracket",), ("t",), ("t",),
                     ("f",), ("right_square_bracket",), ("right_square_bracket",), ("b",), ("y",), ("escape",),
                     ("colon", "g", "o")):
            await pilot.press(*keys)
            await pilot.pause(0.05)
            strips = app.screen._compositor.render_strips()
            seen.append("\n".join("".join(segment.text for segment in strip) for strip in strips))
        assert all(map(silent, seen))
        assert any("[/]" in text for text in seen)
    assert app.return_code in (0, None)
