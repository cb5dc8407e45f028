"""`ptdebug import`: a recording of the files that PyTorch writes under TORCH_TRACE, as far as they can be read."""
from __future__ import annotations

import gzip
import json
import os
import subprocess
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from ptdebug.artifacts.recording import Recording
from ptdebug.cli.torch_trace_files import TraceReader

Command = Callable[..., subprocess.CompletedProcess[str]]

GRAPH = """\
class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4][1]cpu"):
        l_x_ = L_x_
         # File: {program}:5 in f, code: return x.sin()
        sin: "f32[4][1]cpu" = l_x_.sin();  l_x_ = None
        return (sin,)
"""


def event(facts: dict[str, object], text: str = "", pid: int = 7) -> str:
    head = f"V1127 10:00:00.250000 {pid} torch/_dynamo/convert_frame.py:303] "
    return "\n".join([head + json.dumps(facts), *(f"\t{line}" for line in text.splitlines())]) + "\n"


def trace(program: Path, metrics: bool = True) -> str:
    own = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    version = json.dumps({"pytorch_version": "2.12.0+cu128"}, indent=0)
    events = [
        event({"artifact": {"name": "torch_version", "encoding": "json"}, "has_payload": "1"}, version),
        event({"str": [str(program), 1]}),
        event({"dynamo_start": {"stack": [{"line": 4, "name": "f", "filename": 1}]}, **own}),
        event({"dynamo_output_graph": {}, **own, "has_payload": "2"}, GRAPH.format(program=program)),
    ]
    told = {"co_name": "f", "co_filename": str(program), "co_firstlineno": 4, "entire_frame_compile_time_s": 1.5,
            "python_version": "3.12.4 (main, Jun 2025)"}
    return "".join([*events, *([event({"compilation_metrics": told, **own})] if metrics else [])])


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text("import torch\n\n@torch.compile\ndef f(x):\n    return x.sin()\n")
    os.utime(path, (1e9, 1e9))
    return path


def test_what_the_trace_holds_and_nothing_of_this_process(program: Path, tmp_path: Path, warm: Command) -> None:
    folder = tmp_path / "trace"
    folder.mkdir()
    for rank in (0, 1):
        (folder / f"dedicated_log_torch_trace_rank_{rank}_x.log").write_text(trace(program))
    made = warm("import", "trace", "--name", "job", "--json")
    names = [one["recording"] for one in json.loads(made.stdout)["recordings"]]
    assert names == ["job-rank-0", "job-rank-1"]
    with Recording.open(tmp_path / "recordings" / names[1]) as recording:
        (info,) = recording.compiles()
        assert (info.function, info.line, info.seconds["total"]) == ("f", 4, 1.5)
        assert recording.meta["versions"] == {"torch": "2.12.0+cu128", "python": "3.12.4"}
        assert recording.meta["environment"] == {} and recording.meta["pid"] == 7 and recording.meta["rank"] == 1
        assert recording.source(str(program)) == program.read_text()
    shown = warm("show", "job-rank-0").stdout
    assert "read from a trace, which does not say how the program ended" in shown
    assert warm("show", "job-rank-0:0/0:capture").stdout.count("sin = L_x_.sin()") == 1
    assert warm("diff", *names).returncode == 0


def test_a_file_that_was_changed_since_is_not_the_program(program: Path, tmp_path: Path, warm: Command) -> None:
    (tmp_path / "one.log").write_text(trace(program))
    program.write_text("something else")  # newer than the trace
    assert warm("import", "one.log", "--name", "r").returncode == 0
    with Recording.open(tmp_path / "recordings" / "r") as recording:
        assert recording.sources() == []


def test_what_is_cut_or_damaged_leaves_the_rest(program: Path, tmp_path: Path, warm: Command) -> None:
    """The process was killed before the metrics came; a line is no event; a packed file ends early."""
    text = trace(program, metrics=False).replace('{"str"', 'nonsense {"str"', 1) + "not a line of it\n"
    (tmp_path / "cut.log").write_text(text)
    assert warm("import", "cut.log", "--name", "cut").returncode == 0
    shown = warm("show", "cut").stdout
    assert "2 lines of the trace could not be read" in shown and "0/0" in shown
    assert "sin" in warm("show", "cut:0/0:capture").stdout
    packed = gzip.compress(trace(program).encode() + os.urandom(4000).hex().encode())
    (tmp_path / "packed.log.gz").write_bytes(packed[: len(packed) // 2])
    done = warm("import", "packed.log.gz", "--name", "packed")
    assert done.returncode == 0 and "ends early" in done.stderr
    assert "sin" in warm("show", "packed:0/0:capture").stdout


def test_what_is_no_trace(tmp_path: Path, warm: Command) -> None:
    (tmp_path / "text.log").write_text("hello\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "none.log").write_text(event({"str": ["x", 1]}))
    for path, said in {"text.log": "is no trace of PyTorch", "empty": "is no trace of PyTorch",
                       "missing": "can't read missing", "none.log": "has no compilation"}.items():
        refused = warm("import", path)
        assert refused.returncode == 2 and said in refused.stderr, (path, refused.stderr)
    assert list((tmp_path / "recordings").glob("*")) == []


@pytest.mark.parametrize(("written", "head", "moment"), [
    ((2026, 1, 1, 0, 5), "1231 23:59:00.000000", (2025, 12, 31, 23, 59)),
    ((2026, 11, 28, 12, 0), "1128 11:00:00.000000", (2026, 11, 28, 11, 0)),
    ((2025, 3, 1, 0, 0), "0229 10:00:00.000000", (2024, 2, 29, 10, 0)),
])
def test_the_year_is_that_of_the_file(
    written: tuple[int, ...], head: str, moment: tuple[int, ...], tmp_path: Path
) -> None:
    (tmp_path / "x.log").write_text(f"V{head} 7 torch/x.py:1] " + '{"str": ["a", 1]}\n')
    reader = TraceReader(tmp_path / "x.log", datetime(*written).timestamp())  # type: ignore[arg-type]
    assert len(list(reader.events())) == 1 and not reader.damaged
    assert datetime.fromtimestamp(reader.time) == datetime(*moment)  # type: ignore[arg-type]
