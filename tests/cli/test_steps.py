"""`ptdebug run --steps`, and looking at what the tracer knew before a step, from the command line and the workbench."""
from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.records import Steps, split_ref
from ptdebug.artifacts.render_steps import STATE
from ptdebug.tui.app import workbench
from ptdebug.tui.code_view import CodeView
from ptdebug.tui.session import Session, Target

Command = Callable[..., subprocess.CompletedProcess[str]]

PROGRAM = """\
import torch


def scaled(x, scales):
    outs = []
    for scale in scales:
        outs.append(x * scale)
    return outs


@torch.compile
def f(x):
    total = sum(scaled(x, [1.0, 2.0]))
    print(end="")
    return total + 1


f(torch.ones(4))
"""


@pytest.fixture
def recorded(tmp_path: Path, warm: Command) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    ran = warm("run", "--steps", "0/0", "--name", "r", "program.py")
    assert ran.returncode == 0, ran.stderr
    return tmp_path / "recordings" / "r"


async def test_it_is_looked_at_forwards_and_backwards(
    recorded: Path, warm: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Recording.open(recorded) as recording:
        record = recording.artifact("0/0", "steps", "attempt_2")
        assert isinstance(record, Steps)
        number = next(n for n, step in enumerate(record.steps) if "mul_1" in step.nodes)
        session = Session(recording)
        (step,) = session.links("0/0").related("capture#mul_1", "steps", "attempt_2")
        assert split_ref(step)[2] == str(number)
        target = Target("0/0", "steps", "attempt_2")
        assert session.beside(target) == STATE

    shown = warm("show", f"r:0/0:steps:attempt_2.{number}").stdout
    assert f"# before step {number} of" in shown and "scaled  program.py:7" in shown
    assert "scale = 2.0" in shown and "outs = a list of 1: mul" in shown
    assert "f  program.py:13" in shown

    monkeypatch.setenv("PTDEBUG_HOME", str(recorded.parent))
    app = workbench("r:0/0:steps:attempt_2")
    async with app.run_test(size=(160, 48)) as pilot:
        await app.workers.wait_for_complete()
        main, linked = app.screen.query_one("#main", CodeView), app.screen.query_one("#linked", CodeView)
        row = main.listing.rows_of[f"steps:attempt_2#{number}"][0]
        seen = {}
        for key in ("up", "down"):  # the step before, and this one again
            main.cursor = row if key == "up" else main.cursor
            await pilot.press(key)
            await app.workers.wait_for_complete()
            await pilot.pause(0.1)
            seen[key] = linked.listing.text
        assert seen["down"] == shown.rstrip("\n") + "\n"
        assert f"# before step {number - 1} of" in seen["up"]


def test_what_was_not_asked_for_says_how_to_ask(recorded: Path, warm: Command) -> None:
    asked = warm("show", "r:1/0:steps")
    assert asked.returncode == 2 and "recorded where `ptdebug run --steps ...` asks for it" in asked.stderr
    no_step = warm("show", "r:0/0:steps:attempt_1.9999")
    assert no_step.returncode == 2 and "has no step 9999; the last one is" in no_step.stderr


def test_two_attempts_are_compared(recorded: Path, warm: Command) -> None:
    found = warm("diff", "r:0/0:steps:attempt_1", "r:0/0:steps:attempt_2")
    assert found.returncode == 1 and "stops: unsupported-builtin: print" in found.stdout
    assert "1 line removed" in found.stdout


@pytest.mark.parametrize("wrong", ["first", "0", "0/0,", "0/0;1/0"])
def test_only_compilations_can_be_asked_for(wrong: str, warm: Command, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("raise SystemExit(9)")
    refused = warm("run", "--steps", wrong, "program.py")
    assert refused.returncode == 2 and "such as 0/0 or 0/0,1/0, or all" in refused.stderr
