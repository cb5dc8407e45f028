"""The loops of one kernel, reduced to what is compiled wrongly, and written as a script."""
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import ptdebug
import pytest
import torch
from ptdebug.artifacts.recording import Recording
from ptdebug.engine.codegen.cpp.operators import OPERATORS
from ptdebug.replay.recorded.graphs import ReplayError
from ptdebug.replay.reduce.loops import kind_of, minify_loops, statements
from ptdebug.replay.repro.compilation import Compilation
from ptdebug.replay.repro.loops import Loops, loops_repro
from ptdebug.replay.repro.recorded import kernel_call
from ptdebug.replay.repro.script import Header
from ptdebug.replay.workers.forked import HANG, in_fork
from ptdebug.replay.workers.warm import one_thread


@pytest.fixture(autouse=True)
def no_threads() -> Iterator[None]:
    with one_thread():
        yield


def loops_of(folder: Path, function: Callable[..., object], *inputs: torch.Tensor, dynamic: bool | None = None,
             imports: tuple[str, ...] = ()) -> Loops:
    with ptdebug.record("r", out=str(folder)):
        ptdebug.compile(function, dynamic=dynamic)(*inputs)
    with Recording.open(folder / "r") as recording:
        owner, kernel = next((info.compile, name) for info in recording.artifacts(stage="kernels")
                             for name in recording.artifact(info.compile, "kernels", info.name).kernels)
        return Loops.of(kernel_call(Compilation(recording, owner), kernel)[1], {}, imports)


def several(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    a = torch.relu(x) * 2 + y
    b = torch.tanh(a) + (a - 1).abs()
    return b.sum(-1), b * y, torch.where(a > 0, a, b).amax(-1)


@pytest.mark.parametrize("dynamic", [None, True])
def test_what_is_left_is_the_wrong_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dynamic: bool) -> None:
    loops = loops_of(tmp_path, several, torch.randn(12, 20), torch.randn(12, 20), dynamic=dynamic)
    assert minify_loops(loops) is None
    monkeypatch.setitem(OPERATORS, "tanh", OPERATORS["sin"])
    found = minify_loops(loops)
    assert found is not None and kind_of(found.shown) == "values"
    (body,) = found.group.bodies
    assert {"tanh", "store"} <= {s.op for s in body.statements} and len(body.statements) <= 4
    assert statements(loops.group) > 15
    assert all(int(axis.extent) <= 2 for axis in (*body.axes, *body.reduction_axes))


def test_a_wrong_reduction_keeps_its_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loops = loops_of(tmp_path, lambda x: (x.exp() * 2 + 1).sum(-1), torch.rand(6, 50))
    monkeypatch.setitem(OPERATORS, "exp", lambda a, kind: f"({a[0]}) * 0.0f / 0.0f")
    found = minify_loops(loops)
    assert found is not None and kind_of(found.shown) == "nan"
    assert "exp" in {s.op for body in found.group.bodies for s in body.statements}


def test_the_script_shows_it_and_only_while_it_is_there(tmp_path: Path) -> None:
    tests = Path(__file__).parents[1]
    sys.path.insert(0, str(tests))
    right = OPERATORS["exp"]
    try:
        loops = loops_of(tmp_path, lambda x: (x + 1).exp() - 1, torch.rand(30), imports=("faults:wrong_exp_in_c",))
        OPERATORS["exp"] = OPERATORS["exp2"]
        found = minify_loops(loops)
    finally:
        OPERATORS["exp"] = right
        sys.path.remove(str(tests))
    assert found is not None
    script, *_ = loops_repro(loops, found.group, Header("The loops of a kernel.")).write(tmp_path / "small.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(tests)])}
    for text, code, last in ((script.read_text(), 1, "outcome: values (buf0)"),
                             (script.read_text().replace("faults.wrong_exp_in_c()", ""), 0, "outcome: passed")):
        script.write_text(text)
        ran = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout.splitlines()[-1].partition(": max")[0]) == (code, last), ran.stderr


def test_a_kernel_over_several_sets_of_buffers_is_refused(tmp_path: Path) -> None:
    parameters = [torch.rand(5) for _ in range(8)]
    with pytest.raises(ReplayError, match="its loops cannot be reduced"):
        loops_of(tmp_path, lambda *p: torch._foreach_add(list(p), 1.0), *parameters)


def test_an_answer_may_raise_die_or_never_come() -> None:
    assert in_fork(lambda: "x" * 100_000, 10) == "x" * 100_000
    assert in_fork(lambda: str(1 / 0), 10) == "ZeroDivisionError: division by zero"
    assert in_fork(lambda: os.kill(os.getpid(), 9), 10) == "SIGKILL"  # type: ignore[arg-type, return-value]
    assert in_fork(lambda: __import__("time").sleep(60), 0.2) == HANG  # type: ignore[no-any-return]
    assert kind_of("ZeroDivisionError: division by zero") == "ZeroDivisionError" and kind_of("") == ""
