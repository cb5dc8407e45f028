"""Distributed programs under `ptdebug run`: each rank is recorded, and the first difference of the ranks is told."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ptdebug import cli
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.records import SavedInputs
from ptdebug.artifacts.selector import open_selected
from ptdebug.replay.recorded.inputs import load_inputs
from ptdebug.tui.outline import VisibleRows, opened_at_first
from ptdebug.tui.session import Session, Target

Command = Callable[..., subprocess.CompletedProcess[str]]
PROGRAM = """
import os, sys, torch
import torch.distributed as dist

@torch.compile(backend="aot_eager")
def f(x, rank):
    y = x * 2
    if rank == 1:
        y = y.sin()
    return y + 1

def main(rank, world, method):
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=world)
    f(torch.ones(3) + rank, rank)
    seen = [*os.environ, *sys.path, os.environ.get("PYTHONPATH", "")]
    print(sys.argv, __name__, [word for word in seen if "PTDEBUG_CHILD" in word or "child_startup" in word], flush=True)
    dist.destroy_process_group()

if __name__ == "__main__":
    if "RANK" in os.environ:
        main(int(os.environ["RANK"]), 2, "env://")
    else:
        import tempfile, torch.multiprocessing as mp
        mp.spawn(main, args=(2, f"file://{tempfile.mkdtemp()}/store"), nprocs=2)
"""


def test_ranks_of_torchrun(ptdebug: Command, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    done = ptdebug("run", "torchrun", "--nproc-per-node", "2", "train.py", "argument")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['train.py', 'argument'] __main__ []\n" * 2
    assert "ptdebug: 2 ranks: 2 graphs (5 operations)" in done.stderr
    assert "the ranks differ at train.py:9: graph: rank 0: nothing; rank 1: sin" in done.stderr
    _check_the_answers(ptdebug, tmp_path)


def test_ranks_of_spawn(ptdebug: Command, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    done = ptdebug("run", "train.py")
    assert "ptdebug: 2 ranks: 2 graphs (5 operations)" in done.stderr
    with Recording.open(next((tmp_path / "recordings").iterdir())) as recording:
        assert recording.ranks == [0, 1]
        assert [info.facts["calls"] for info in recording.artifacts(kind="Runtime")] == [1, 1]  # kept as they end


def _check_the_answers(ptdebug: Command, tmp_path: Path) -> None:
    answer = ptdebug("ranks")
    assert answer.returncode == 1 and "train.py:9: graph: rank 0: nothing; rank 1: sin = " in answer.stdout
    document = json.loads(ptdebug("ranks", "--json").stdout)
    assert [rank["ops"] for rank in document["ranks"]] == [2, 3]
    assert [(d["kind"], d["line"]) for d in document["differences"]] == [("graph", 9), ("guard", 8)]
    folder = next((tmp_path / "recordings").iterdir())
    opened, selector = open_selected(f"{folder}:0/0@rank1:capture")
    with opened:
        inputs = [load_inputs(opened.path, saved)[0].tolist() for _, saved in opened.records(SavedInputs)]
        assert inputs == [[1.0] * 3, [2.0] * 3]  # each rank has files of its own
        assert (selector.compile, opened.ranks) == ("0/0@rank1", [0, 1])
        session = Session(opened)
        rows = VisibleRows(session)
        assert [row.label for row in rows.rows if row.key.startswith("rank ")] == ["rank 0", "rank 1"]
        for key in opened_at_first(session):
            index = rows.index(key)
            assert index is not None
            rows.toggle(index)
        assert rows.reveal(Target("0/0@rank1", "capture", "")) is not None


def test_children_that_are_no_python_of_ours_run_as_before(ptdebug: Command, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text("print('own sitecustomize')\n")
    (tmp_path / "child.py").write_text("import torch\nprint(torch.compile(lambda x: x + 1)(torch.ones(1)).item())\n")
    (tmp_path / "parent.py").write_text("""
import os, subprocess, sys
def run(*words, **options):
    print(subprocess.run(words, capture_output=True, text=True, **options).stdout, end="", flush=True)
run("sh", "-c", "echo shell; $0 child.py", sys.executable)
run(sys.executable, "-c", "print('own')", env={**os.environ, "PYTHONPATH": "site"})
run(sys.executable, "-I", "-c", "print('isolated')")
run(sys.executable, "-m", "nowhere", env={b"PATH": b"/bin"})
try:
    run("no-such-program")
except FileNotFoundError as error:
    print(error)
""")
    done = ptdebug("run", "parent.py")
    assert done.stdout == ("shell\n2.0\nown sitecustomize\nown\nisolated\n"
                           "[Errno 2] No such file or directory: 'no-such-program'\n"), done.stderr
    assert "ptdebug: 1 graph" in done.stderr


@pytest.mark.parametrize("stderr", ["", "None"])
def test_a_child_that_cannot_be_recorded_runs_and_says_so(stderr: str, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("print('torch')\n")
    startup = Path(cli.__file__).parent / "child_startup"
    facts = {"python": [sys.version, sys.prefix], "path": str(tmp_path), "package": str(tmp_path / "gone")}
    program = f"import sys; sys.stderr = {stderr or 'sys.stderr'}; import torch"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, env={
        **os.environ, "PYTHONPATH": str(startup), "PTDEBUG_CHILD": json.dumps(facts)})
    assert (done.returncode, done.stdout) == (0, "torch\n")
    assert stderr or "ptdebug: a child process is not recorded: FileNotFoundError: " in done.stderr
