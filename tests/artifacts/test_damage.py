"""Damaged recordings: every command shows what is whole and says what is not, or gives one message and exit code 2.

PTDEBUG_DAMAGES=500 does more of it; PTDEBUG_FIRST_DAMAGE=N begins there.
"""
from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import ptdebug
import pytest
import torch
from ptdebug.artifacts.recording import Recording, RecordingError
from ptdebug.artifacts.stages import NAMES
from ptdebug.cli.api import record
from ptdebug.cli.main import main
from ptdebug.tracer.frames import dispatch
from ptdebug.tui.answers.answer import rows_of
from ptdebug.tui.answers.questions import QUESTIONS as QUESTIONS_OF_THE_WORKBENCH
from ptdebug.tui.app import workbench
from ptdebug.tui.panes import PanesScreen
from ptdebug.tui.session import Target

from .damage import damage

FIRST, COUNT = (int(os.environ.get(name, n)) for name, n in (("PTDEBUG_FIRST_DAMAGE", 0), ("PTDEBUG_DAMAGES", 36)))
QUESTIONS = (
    ("show",), ("ls",), ("breaks",), ("guards",), ("recompiles",), ("fusions",), ("kernels",), ("decisions",),
    ("show", "--json"), ("ls", "--json"), ("breaks", "--json"), ("guards", "--json"), ("recompiles", "--json"),
    ("fusions", "--json"), ("kernels", "--json"), ("decisions", "--json"),
)


def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Has gradients, a break, and sizes that change."""
    y = (x @ w).sin().cumsum(0)
    print("", end="")
    return (y * 2).relu().sum()


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real recording, with inputs."""
    home = tmp_path_factory.mktemp("whole")
    dispatch.reset()
    with record("real", str(home)):
        compiled = ptdebug.compile(program)
        for size in (3, 4, 5):
            compiled(torch.ones(size, 4), torch.ones(4, 4, requires_grad=True)).backward()
    return home / "real"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PTDEBUG_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def questions(selector: str, ids: list[str]) -> Iterator[list[str]]:
    for command, *options in QUESTIONS:
        yield [command, *([] if command == "ls" else [selector]), *options]
    yield ["why", selector, "buf0"]
    yield ["why", selector, "print", "--json"]
    for compile_id in ids:
        yield ["show", f"{selector}:{compile_id}"]
        yield ["show", f"{selector}:{compile_id}", "--json"]
        for stage in NAMES:
            yield ["show", f"{selector}:{compile_id}:{stage}"]
        yield ["show", f"{selector}:{compile_id}:capture", "--json"]
        yield ["show", f"{selector}:{compile_id}:kernels", "--line", "5"]


def ids_of(folder: Path) -> list[str]:
    try:
        with Recording.open(folder) as recording:
            return [info.id for info in recording.compiles()]
    except RecordingError:
        return ["0/0"]


SEEDS = range(FIRST, FIRST + COUNT)


def damaged(seed: int, sample: Path, recorded: Path, home: Path) -> str:
    """A damaged recording beside a whole one; what was done to it."""
    shutil.copytree(recorded if seed % 2 else sample, home / "damaged")
    shutil.copytree(sample, home / "other")
    return damage(seed, home / "damaged")


@pytest.mark.parametrize("seed", SEEDS)
def test_commands(seed: int, sample: Path, recorded: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    what = damaged(seed, sample, recorded, home)
    for words in questions("damaged", ids_of(home / "damaged")):
        code = main(words)  # which raises what is no error for the person
        out, err = capsys.readouterr()
        assert code in (0, 1, 2), (what, words)
        assert code != 2 or err.startswith("ptdebug: "), (what, words, err)
        assert "\x1b" not in out + err and "\x07" not in out + err, (what, words)
        if "--json" in words and code == 0:
            json.loads(out)
        if words == ["ls"]:
            assert " other " in out


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_workbench_shows(seed: int, sample: Path, recorded: Path, home: Path) -> None:
    """All that it can open, without a screen."""
    damaged(seed, sample, recorded, home)
    try:
        app = workbench("damaged")
    except RecordingError:
        return
    session = app.session
    assert session is not None
    for info in session.compiles:
        for stage in session.stages(info.id):
            for name in session.names(info.id, stage):
                target = Target(info.id, stage, name)
                for line in session.listing(target).lines:
                    session.opens(line)
                session.first_row(target)
                session.forms(target)
        session.links(info.id)
    for question in QUESTIONS_OF_THE_WORKBENCH:
        for row in rows_of(question, session, ""):
            row.details()
    list(session.search("print"))
    session.recording.close()


@pytest.mark.parametrize("seed", SEEDS[::7])
async def test_the_workbench(seed: int, sample: Path, recorded: Path, home: Path) -> None:
    damaged(seed, sample, recorded, home)
    try:
        app = workbench("damaged")
    except RecordingError:
        return
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, PanesScreen)
        session = screen.session
        for info in session.compiles[:3]:
            for stage in session.stages(info.id):
                screen.show_target(Target(info.id, stage, session.names(info.id, stage)[0]))
        for key in ("g", "enter", "enter", "tab", "]", "t", "f", "escape"):
            await pilot.press(key)
        screen.action_breaks()
        await pilot.pause()
        await pilot.press("escape")
        assert app.is_running
    session.recording.close()
