"""The writer: what it keeps, and that it survives kills, forks, threads and full disks."""
from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from ptdebug.artifacts import records as r
from ptdebug.artifacts.artifact import Artifact
from ptdebug.artifacts.failures import failures
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.store import RecordingWriter

GRAPH = r.Graph("forward", (r.Node("x", "placeholder", "x"), r.Node("output", "output", "output", (r.NodeRef("x"),))))


def decision(number: int) -> r.Decision:
    return r.Decision(f"fuse:{number}", "fuse", str(number), (r.Option("yes"), r.Option("no")), "no", "no", "because")


def test_equal_contents_are_stored_once(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "rec")
    for compile_id in ("0/0", "0/1", "1/0"):
        writer.begin(compile_id, "f", "f.py", 1)
        writer.record(compile_id, "capture", "", GRAPH)
        writer.end(compile_id, "compiled", "", {"total": 1.0})
    writer.close(0)
    with Recording.open(tmp_path / "rec") as recording:
        artifacts = recording.artifacts(stage="capture")
        assert [a.compile for a in artifacts] == ["0/0", "0/1", "1/0"]
        assert len({a.hash for a in artifacts}) == 1
        (_, blobs), = recording._rows("SELECT count(*) FROM blobs", tuple[int])
        assert blobs == 1
    assert sorted(p.name for p in (tmp_path / "rec").iterdir()) == ["recording.db"]  # no WAL files are left


def test_a_stage_is_one_transaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = RecordingWriter(tmp_path / "rec")
    writer.begin("0/0", "f", "f.py", 1)
    transactions = []
    work = writer._transaction
    monkeypatch.setattr(writer, "_transaction", lambda made: (transactions.append(made), work(made)))
    bodies = [r.Loops(f"buf{i}", (), (), (), (), ()) for i in range(9)]
    writer.record_stage("0/0", [Artifact("loop_ir", body.name, body) for body in bodies])
    assert len(transactions) == 1
    writer.close()
    with Recording.open(tmp_path / "rec") as recording:
        assert [recording.artifact("0/0", "loop_ir", f"buf{i}").name for i in range(9)] == [f"buf{i}" for i in range(9)]


def test_what_an_undone_transaction_wrote_is_written_again(tmp_path: Path) -> None:
    source = tmp_path / "f.py"
    source.write_text("x = 1\n")
    place = r.Location(str(source), 1)
    graph = r.Graph("capture", (r.Node("x", "placeholder", "x", stack=(place,)),))
    stored = Artifact("capture", "", graph).stored
    assert stored.files == (str(source),)
    writer = RecordingWriter(tmp_path / "rec")
    writer.begin("0/0", "f", str(source), 1)

    def interrupted() -> None:
        writer._store("0/0", [stored])
        raise InterruptedError

    with pytest.raises(InterruptedError):
        writer._transaction(interrupted)
    writer.record("0/0", "capture", "", graph)
    writer.close()
    with Recording.open(tmp_path / "rec") as recording:
        assert recording.artifact("0/0", "capture") == graph and recording.source(str(source)) == "x = 1\n"


def test_an_artifact_that_is_stored_has_its_record() -> None:
    stored = Artifact("capture", "", GRAPH).stored
    again = Artifact(stored.stage, stored.name, stored)
    assert again.record == GRAPH and again.stored is stored
    assert (stored.kind, stored.items, stored.facts) == ("Graph", 2, '{"operations":0}')


def test_recording_the_same_artifact_again_replaces_it(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "rec")
    writer.begin("0/0", "f", "f.py", 1)
    writer.record("0/0", "breaks", "", r.Breaks(()))
    writer.record("0/0", "capture", "", GRAPH)
    writer.flush_runtime({"0/0": r.Runtime(1)})
    writer.flush_runtime({"0/0": r.Runtime(7), "1/0": r.Runtime(1)})
    writer.close()
    with Recording.open(tmp_path / "rec") as recording:
        assert [info.id for info in recording.compiles()] == ["0/0"]  # 1/0 was compiled without being recorded
        assert recording.artifact("0/0", "runtime") == r.Runtime(7)
        assert [a.stage for a in recording.artifacts("0/0")] == ["capture", "breaks", "runtime"]


def test_a_recording_is_readable_while_it_is_written(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "rec")
    writer.begin("0/0", "f", "f.py", 1)
    writer.decision("0/0", decision(0))
    writer.record("0/0", "capture", "", GRAPH)
    with Recording.open(tmp_path / "rec") as recording:
        assert recording.stages("0/0") == ["capture", "decisions"]
        now = recording.compile("0/0")
        assert (now.status, now.reason) == ("running", "it is being compiled now") and not failures(recording)
        writer.end("0/0", "compiled", "", {})
        assert recording.compile("0/0").status == "compiled"
    writer.close(0)


KILLED = """
import os, sys, time
from ptdebug.artifacts import records as r
from ptdebug.artifacts.artifact import Artifact
from ptdebug.artifacts.store import RecordingWriter
writer = RecordingWriter(sys.argv[1], command=["killed"])
number = 0
while True:
    writer.begin(f"{number}/0", "f", "f.py", 1)
    for i in range(20):
        writer.decision(f"{number}/0", r.Decision(f"d:{i}", "d", str(i), (), "a", "a", "x" * 50))
        writer.record(f"{number}/0", "loop_ir", f"buf{i}",
                      r.Loops(f"buf{i}", (), (), tuple(r.LoopStatement(f"t{j}", "add", f"{i} {number}", "f32")
                                                       for j in range(40)), (), ()))
    writer.end(f"{number}/0", "compiled", "", {"total": 1.0})
    number += 1
    print(number, flush=True)
"""


@pytest.mark.parametrize("after", [1, 5, 23])
def test_survives_kill_9_at_any_moment(tmp_path: Path, after: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "rec")], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(after):
        process.stdout.readline()
    time.sleep(0.003)  # some way into the next compilation
    process.send_signal(signal.SIGKILL)
    process.wait()
    with Recording.open(tmp_path / "rec") as recording:
        compiles = recording.compiles()
        assert len(compiles) >= after
        for info in compiles[:after]:  # what ended before the kill is there, wholly
            assert info.status == "compiled"
            assert len(recording.artifacts(info.id, "loop_ir")) == 20
            assert len(recording.decisions(info.id)) == 20
            assert len(recording.artifact(info.id, "loop_ir", "buf19").statements) == 40
        assert recording.problems == []
        assert "exit_code" not in recording.meta


def test_decisions_wait_at_most_half_a_second(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "rec")
    writer.decision("0/0", decision(0))
    writer._last_commit -= 1
    writer.decision("0/0", decision(1))
    with Recording.open(tmp_path / "rec") as recording:
        assert recording.count_decisions() == 2
    writer.close()


def test_decisions_of_several_compilations_are_told_apart(tmp_path: Path) -> None:
    """Those that wait together are stored together, compressed."""
    writer = RecordingWriter(tmp_path / "rec")
    others = [r.Decision(f"tile:{n}", "tile", str(n), (r.Option("yes"),), "yes", "yes", "") for n in range(40)]
    mixed = [("0/0" if n < 20 or n > 35 else "0/1", d) for n, d in enumerate([*map(decision, range(40)), *others])]
    for owner, made in mixed:
        writer.decision(owner, made)
    writer.close(0)
    with Recording.open(tmp_path / "rec") as recording:
        assert recording.decisions() == mixed
        for owner in ("0/0", "0/1"):
            for kind in (None, "fuse", "tile", "fus"):
                wanted = [(o, d) for o, d in mixed if o == owner and kind in (None, d.kind)]
                assert recording.decisions(owner, kind) == wanted
            assert recording.count_decisions(owner) == sum(o == owner for o, _ in mixed)
        (_, rows, stored), = recording._rows("SELECT count(*), sum(length(data)) FROM decisions", tuple[int, int])
        assert rows == 3 and stored < 2000


def test_threads_share_a_writer(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "rec")

    def work(frame: int) -> None:
        for number in range(25):
            writer.begin(f"{frame}/{number}", "f", "f.py", 1)
            writer.decision(f"{frame}/{number}", decision(number))
            writer.record(f"{frame}/{number}", "capture", "", GRAPH)
            writer.end(f"{frame}/{number}", "compiled", "", {})

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close(0)
    assert writer.messages == []
    with Recording.open(tmp_path / "rec") as recording:
        assert len(recording.compiles()) == 100
        assert recording.count_decisions() == 100


def test_a_forked_child_writes_a_database_of_its_own(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "rec", command=["forks"])
    writer.begin("0/0", "parent", "f.py", 1)
    writer.decision("0/0", decision(0))  # still waiting when the fork happens: the parent's alone
    child = os.fork()
    if child == 0:
        try:
            writer.begin("0/0", "child", "f.py", 1)
            writer.decision("0/0", decision(1))
            writer.record("0/0", "capture", "", GRAPH)
            writer.end("0/0", "compiled", "", {})
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    writer.end("0/0", "compiled", "", {})
    writer.close(0)
    with Recording.open(tmp_path / "rec") as recording:
        assert {c.id: c.function for c in recording.compiles()} == {"0/0": "parent", f"0/0@{child}": "child"}
        assert [d.subject for _, d in recording.decisions("0/0")] == ["0"]
        assert [d.subject for _, d in recording.decisions(f"0/0@{child}")] == ["1"]
        assert recording.stages("0/0") == ["decisions"]
        assert recording.artifact(f"0/0@{child}", "capture") == GRAPH


def test_an_unwritable_folder_is_one_message_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    writer = RecordingWriter(tmp_path / "file" / "rec")
    writer.begin("0/0", "f", "f.py", 1)
    writer.decision("0/0", decision(0))
    writer.record("0/0", "capture", "", GRAPH)
    writer.close(0)
    assert len(writer.messages) == 1
    assert "recording stopped, the program continues" in writer.messages[0]


def test_a_full_disk_is_one_message_and_keeps_what_was_written(tmp_path: Path) -> None:
    pid = os.fork()  # a limit on file sizes stands for the full disk; it must not reach the other tests
    if pid == 0:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            writer = RecordingWriter(tmp_path / "rec")
            writer.begin("0/0", "first", "f.py", 1)
            writer.record("0/0", "capture", "", GRAPH)
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
            for number in range(100):
                noise = os.urandom(4096).hex()
                writer.record("0/0", "loop_ir", str(number), r.Loops(noise, (), (), (), (), ()))
            writer.close(0)
            code = 0 if len(writer.messages) == 1 and "recording stopped" in writer.messages[0] else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with Recording.open(tmp_path / "rec") as recording:
        assert recording.artifact("0/0", "capture") == GRAPH


def test_a_record_that_json_cannot_hold_is_kept_as_text(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "rec")
    odd = r.Graph("forward", (r.Node("x", "call_function", "f", (object, 1 + 2j)),))
    writer.record("0/0", "capture", "", odd)
    writer.close()
    assert writer.messages == []
    with Recording.open(tmp_path / "rec") as recording:
        graph = recording.artifact("0/0", "capture")
        assert isinstance(graph, r.Graph)
        assert graph.nodes[0].args == ("<class 'object'>", "(1+2j)")


def test_sources_are_kept_as_they_were(tmp_path: Path) -> None:
    program = tmp_path / "p.py"
    program.write_text("before\n")
    writer = RecordingWriter(tmp_path / "rec")
    writer.source_file(str(program))
    program.write_text("after\n")
    writer.source_file(str(program))
    writer.source_file("<string>")
    writer.close()
    with Recording.open(tmp_path / "rec") as recording:
        assert recording.source(str(program)) == "before\n"
        assert recording.source("<string>") is None
        assert recording.sources() == [str(program)]


def test_counters_are_kept_while_the_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = {"0/0": 0, "9/0": 7}  # 9/0 is older than this recording
    writer = RecordingWriter(tmp_path / "rec", counters=lambda: {id: r.Runtime(n) for id, n in calls.items()})
    for compile_id, seconds in (("0/0", 60.0), ("0/1", 2.5), ("0/2", 60.0)):
        monkeypatch.setattr("ptdebug.artifacts.store.COUNTERS_AT_MOST", seconds)
        writer._last_counters = time.monotonic() - 3.0
        writer.begin(compile_id, "f", "f.py", 1)
        writer.end(compile_id, "compiled", "", {"total": 1.0})
        calls["0/0"] += 5
    with Recording.open(tmp_path / "rec") as recording:  # not closed: as after kill -9
        assert recording.records(r.Runtime) == [("0/0", r.Runtime(5))]
    writer.close()


CLOSING = """
import os, sys
from ptdebug.artifacts import records as r
from ptdebug.artifacts.artifact import Artifact
from ptdebug.artifacts.store import RecordingWriter
writer = RecordingWriter(sys.argv[1])
writer.begin("0/0", "f", "f.py", 1)
writer.end("0/0", "compiled", "", {})
eval(sys.argv[2])
own = [open(os.path.join(sys.argv[3], f"own{i}"), "w+b", buffering=0) for i in range(8)]
for file in own:
    file.write(b"own")
for number in range(1, 40):
    writer.begin(f"{number}/0", "f", "f.py", 1)
    writer.note("note" * 10_000)
    writer.end(f"{number}/0", "compiled", "", {})
writer.close(0)
for file in own:
    file.seek(0)
    assert file.read() == b"own", file
"""


@pytest.mark.parametrize("closes", [
    "os.closerange(3, 4096)", "os.close(4)", "os.close(5)", "[os.dup2(1, n) for n in range(3, 9)]",
])
def test_descriptors_that_the_program_takes_away_are_its_own(tmp_path: Path, closes: str) -> None:
    command = [sys.executable, "-c", CLOSING, str(tmp_path / "rec"), closes, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    with Recording.open(tmp_path / "rec") as recording:
        assert [info.status for info in recording.compiles()] == ["compiled"] * 40 and not recording.problems
        assert recording.meta["exit_code"] == 0
    assert [path.name for path in (tmp_path / "rec").iterdir()] == ["recording.db"]
