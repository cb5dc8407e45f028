"""Five tasks that people bring to a recording, each within twelve keys from opening the workbench: they are counted."""
from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from ptdebug.tui.act_screen import ActScreen
from ptdebug.tui.app import workbench
from ptdebug.tui.code_view import CodeView
from textual.pilot import Pilot

from tests.warm_process import in_copy

MOST = 12
PROGRAM = """\
import torch
import torch.nn.functional as F


def layer(x, w, mode):
    for _ in range(3):
        x = torch.tanh(x @ w)
    if mode == "gelu":
        x = F.gelu(x @ w, approximate="tanh")
    return x.sum(0), x.sum(1)


torch.manual_seed(0)
compiled = torch.compile(layer)
w = torch.randn(16, 16)
compiled(torch.randn(4, 16), w, "gelu")
compiled(torch.randn(6, 16), w, "gelu")
compiled(torch.randn(6, 16), w, "none")
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a recording of the program, which is real."""
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "program.py").write_text(PROGRAM)
    words = ("run", "-q", "--name", "tasks", "-o", str(folder / "home"), "program.py")
    in_copy("ptdebug", *words, cwd=folder).check_returncode()
    return folder / "home"


@pytest.fixture(autouse=True)
def home(recorded: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PTDEBUG_HOME", str(recorded))
    monkeypatch.chdir(tmp_path)


class Keys:
    """Presses keys, and counts them."""

    def __init__(self, pilot: Pilot[None]) -> None:
        self.pilot = pilot
        self.count = 0

    async def press(self, *keys: str) -> None:
        self.count += len(keys)
        assert self.count <= MOST
        await self.pilot.press(*keys)
        await self.settle()

    async def settle(self) -> None:
        await self.pilot.app.workers.wait_for_complete()
        await self.pilot.pause(0.05)

    def text(self, view: str) -> str:
        """The text of a pane, without the line breaks of wrapping."""
        return self.pilot.app.screen.query_one(f"#{view}", CodeView).listing.text.replace("\n    ", "")


@asynccontextmanager
async def opened(size: tuple[int, int] = (120, 40)) -> AsyncIterator[Keys]:
    async with workbench("@").run_test(size=size) as pilot:
        keys = Keys(pilot)
        await keys.settle()
        yield keys


async def test_why_the_third_call_recompiled() -> None:
    async with opened() as keys:
        await keys.press("1", "down")
        assert "mode: was 'gelu', is now 'none'" in keys.text("details")
        assert 'program.py:18  compiled(torch.randn(6, 16), w, "none")' in keys.text("details")
        assert keys.count == 2


async def test_which_line_of_the_program_made_kernel_7() -> None:
    async with opened() as keys:
        await keys.press("3", "slash", *"ed_7", "enter", "down")
        assert "from program.py:9  x = F.gelu(x @ w" in keys.text("details")
        await keys.press("enter")
        main, linked = (keys.pilot.app.screen.query_one(name, CodeView) for name in ("#main", "#linked"))
        assert "gelu" in main.row_text(main.cursor)
        assert 8 in linked.marks


async def test_why_two_kernels_were_not_fused_and_what_flipping_does() -> None:
    async with opened() as keys:
        await keys.press("3", "slash", *"prof", "enter", "down", "down")
        assert "not profitable" in keys.text("details") and "x tries it" in keys.text("details")
        await keys.press("x", "1")
        output = keys.text("output")
        assert "equal: eager's values before and after" in output
        assert "us ->" in output and "kernels " in output and "to keep it" in output


async def test_the_first_wrong_value_of_a_planted_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = Path(__file__).parent.parent / "planted"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(planted), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PTDEBUG_PLANTED", "gelu_cube")
    async with opened() as keys:
        await keys.press("right_curly_bracket", "x", "1")
        output = keys.text("output")
        assert "values first differ in loop_ir" in output
        assert "program.py:9" in output


async def test_a_repro_to_hand_over(tmp_path: Path) -> None:
    async with opened() as keys:
        await keys.press("right_curly_bracket", "x", "5")
        assert isinstance(keys.pilot.app.screen, ActScreen)
        (script,) = tmp_path.glob("repro_*.py")
        assert str(script.name) in keys.text("output").replace("\n", "")
        assert "gelu" in script.read_text()


async def test_what_guards_cost_and_which_fail() -> None:
    async with opened() as keys:
        await keys.press("2")
        assert "a check of all took" in keys.text("details") and "ns a guard on average" in keys.text("details")
        assert "2 failures at x" in keys.text("details")
        await keys.press("slash", *"tensor", "enter", "down")
        assert "needed by: program.py:7  x = torch.tanh(x @ w)" in keys.text("details")
        assert "failed: 2 times" in keys.text("details")
        assert " ns, without reaching the object" in keys.text("details").replace("\n", " ")
