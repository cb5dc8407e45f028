"""The workbench driven by keys, at 80x24 and 160x48, by the text on its screen."""
from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from ptdebug.artifacts.machine_lines import MACHINE
from ptdebug.artifacts.recording import RecordingError
from ptdebug.tui.app import Workbench, workbench
from ptdebug.tui.code_view import CodeView
from ptdebug.tui.palette import places
from ptdebug.tui.panes import PanesScreen
from ptdebug.tui.session import Target
from textual.pilot import Pilot

WIDE, NARROW = (160, 48), (80, 24)


@pytest.fixture(autouse=True)
def home(sample: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PTDEBUG_HOME", str(sample.parent))
    return sample.parent


class Driver:
    """Presses keys and reads the screen."""

    def __init__(self, pilot: Pilot[None]) -> None:
        self.pilot = pilot
        self.app = pilot.app

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.pilot.press(key)
        await self.settle()

    async def settle(self) -> None:
        await self.app.workers.wait_for_complete()
        await self.pilot.pause(0.1)

    @property
    def text(self) -> str:
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip) for strip in strips)

    def view(self, name: str) -> CodeView:
        return self.app.screen.query_one(f"#{name}", CodeView)


@asynccontextmanager
async def driving(selector: str, size: tuple[int, int]) -> AsyncIterator[Driver]:
    app = workbench(selector)
    async with app.run_test(size=size) as pilot:
        driver = Driver(pilot)
        await driver.settle()
        yield driver


async def test_it_opens_on_the_newest_recording() -> None:
    async with driving("@", WIDE) as driver:
        assert "ptdebug  model-1  3 compiled, 1 skipped, 1 graph break (b)" in driver.text
        assert "3 frames, 3 compiles, 2 graphs, 8 ops" in driver.text
        assert "- 0/0  ok 1.00 s" in driver.text
        assert "$ ptdebug show model-1" in driver.text


@pytest.mark.parametrize("size", [WIDE, NARROW, (120, 30), (40, 10)])
async def test_a_selector_opens_its_artifact(size: tuple[int, int]) -> None:
    async with driving("@:0/0:capture", size) as driver:
        assert "0/0 capture" in driver.text
        assert "def forward(" in driver.text
        assert driver.app.focused.id == "main"
        both = size[0] >= 100
        assert ("─ program model.py" in driver.text) == both  # the linked pane
        assert ("recording" in driver.text) == both
        lines = driver.text.split("\n")
        assert len(lines) == size[1]


async def test_a_line_shows_its_lines_in_the_other_stages() -> None:
    async with driving("@:0/0:kernels:unit_0", WIDE) as driver:
        await driver.press("home", *["down"] * 8)
        linked = driver.view("linked")
        assert linked.listing.title.endswith("model.py")
        assert [row + 1 for row in sorted(linked.marks)] == [5, 14]
        assert "= 5     return x * torch.sigmoid(1.702 * x)" in driver.text
        await driver.press("t")
        assert "0/0 capture" in driver.text
        assert "sigmoid = torch.sigmoid(mul)" in linked.row_text(linked.cursor)
        await driver.press("t", "t", "t")
        assert "loop_ir:buf1" in driver.text
        await driver.press("f")  # the panes change places
        assert driver.view("main").listing.title == "loops buf1"
        assert driver.view("main").line.ref == "loop_ir:buf1#t2"
        assert driver.view("linked").line.ref.startswith("kernels:unit_0#")
        await driver.press("backspace")
        assert driver.view("main").line.ref == "kernels:unit_0#9"


async def test_the_program_leads_to_the_machine_code() -> None:
    async with driving("@:0/0", WIDE) as driver:
        screen = driver.app.screen
        await driver.press("right_square_bracket")
        assert screen.target.stage == "source"
        assert driver.view("main").cursor == 12  # the compiled function
        await driver.press("tab", "home", *["down"] * 4)
        linked = driver.view("linked")
        assert linked.listing.title == "kernels unit_0"
        assert {4, 10} & {row + 1 for row in linked.marks}


async def test_beside_machine_code_stands_the_kernel_and_not_itself() -> None:
    async with driving("@", WIDE) as driver:
        session = driver.app.screen.session
        session.machine_code = lambda compile_id: ["unit_0.sass"]
        assert {"kernels", "source"} <= set(of_sass := session.linkable(Target("0/0", "kernels", "unit_0.sass")))
        assert MACHINE not in of_sass
        of_kernel = session.linkable(Target("0/0", "kernels", "unit_0"))
        assert MACHINE in of_kernel and "kernels" not in of_kernel


async def test_stages_and_compilations_by_key() -> None:
    async with driving("@:0/0:capture", NARROW) as driver:
        await driver.press("right_square_bracket")
        assert driver.app.screen.target.stage == "breaks"
        assert "[0/0 breaks]   program model.py    (tab)" in driver.text
        await driver.press("left_square_bracket", "right_curly_bracket")
        assert (driver.app.screen.target.compile, driver.app.screen.target.stage) == ("0/1", "capture")
        assert "float32[s0, 8]" in driver.text
        await driver.press("right_curly_bracket")  # a compilation without this stage: its overview
        assert (driver.app.screen.target.compile, driver.app.screen.target.stage) == ("1/0", "")
        assert "absent kernels: cache hit" in driver.text


async def test_one_pane_at_a_time_in_80_columns() -> None:
    async with driving("@", NARROW) as driver:
        assert "recording" in driver.text and "3 frames" not in driver.text
        await driver.press("down", "down", "down", "down", "enter")
        assert "called from:" in driver.text and "output_bytecode" not in driver.text
        await driver.press("tab")
        assert "t: other stage" in driver.text
        await driver.press("tab")
        assert "output_bytecode" in driver.text
        last = driver.text.split("\n")[-1]
        for key in ("enter open", "tab pane", "/ find", "s search", "0-9 ask", "x act", "q quit", "? help"):
            assert key in last


async def test_search_in_an_artifact() -> None:
    async with driving("@:0/0:joint", NARROW) as driver:
        await driver.press("slash", *"mul", "enter")
        main = driver.view("main")
        assert "mul = aten.mul.Tensor" in main.row_text(main.cursor)
        first = main.cursor
        await driver.press("n", "N")
        assert main.cursor == first
        await driver.press("slash", *"xyz", "enter")
        assert "no line contains" in driver.text
        await driver.press("escape")
        assert main.query_text == ""


async def test_search_in_everything() -> None:
    async with driving("@", NARROW) as driver:
        await driver.press("s", *"exp(", "enter")
        assert "2 lines; enter opens one" in driver.text
        await driver.press("enter")
        assert isinstance(driver.app.screen, PanesScreen)
        assert driver.app.screen.target.stage == "kernels"
        assert driver.view("main").cursor == 8


@pytest.mark.parametrize("size", [WIDE, NARROW])
async def test_graph_breaks_in_the_program(size: tuple[int, int]) -> None:
    async with driving("@", size) as driver:
        await driver.press("b")
        for text in (">B15         print(", "print() runs outside of the graph", "$ ptdebug breaks model-1",
                     "change: remove the print, or print after the compiled call"):
            assert text in driver.text
        await driver.press("escape")
        assert isinstance(driver.app.screen, PanesScreen)


async def test_help_lists_the_keys_of_the_screen() -> None:
    async with driving("@", WIDE) as driver:
        await driver.press("question_mark")
        for text in ("next stage of this compilation", "quit the workbench", "copy the command that shows this"):
            assert any(text in line.text for line in driver.view("help").listing.lines)
        await driver.press("escape")
        assert isinstance(driver.app.screen, PanesScreen)


async def test_copying_the_command() -> None:
    async with driving("@:0/0:capture", WIDE) as driver:
        await driver.press("down", "down", "y")
        assert driver.app.clipboard == "ptdebug show model-1:0/0:capture --line 3"
        assert "copied" in driver.text


async def test_the_palette_knows_stages_and_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    async with driving("@", WIDE) as driver:
        screen = driver.app.screen
        assert isinstance(screen, PanesScreen)
        titles = [command.title for command in driver.app.get_system_commands(screen)]
        assert "go to 0/1 kernels" in [title for title, _, _ in places(screen, "")]
        monkeypatch.setattr("ptdebug.tui.palette.MOST", 1)  # of many, what the query names
        assert {title.split()[2] for title, _, _ in places(screen, "go 0/1 guards")} == {"0/1"}
        assert "Next stage of this compilation" in titles
        keys = [command.help for command in driver.app.get_system_commands(driver.app.screen)]
        assert "key ]" in keys and not any("bracket" in text for text in keys)
        await driver.press("colon", *"0/1 kern")
        await driver.pilot.pause(0.3)
        await driver.press("enter")
        assert (screen.target.compile, screen.target.stage, driver.app.focused.id) == ("0/1", "kernels", "main")


async def test_nothing_recorded_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTDEBUG_HOME", str(tmp_path / "none"))
    app = workbench()
    async with app.run_test(size=NARROW) as pilot:
        await pilot.pause()
        text = Driver(pilot).text
        assert "ptdebug run your_script.py" in text
        await pilot.press("q")
    assert app.return_code == 0


def test_a_selector_of_nothing_is_an_error_before_the_screen_is_taken() -> None:
    with pytest.raises(RecordingError, match="did you mean 0/1"):
        workbench("@:0/9")


async def test_a_damaged_recording_says_so(sample: Path, tmp_path: Path) -> None:
    import shutil
    import sqlite3

    folder = shutil.copytree(sample, tmp_path / "broken")
    with sqlite3.connect(folder / "recording.db") as connection:
        connection.execute("UPDATE blobs SET data=x'00'")
    async with driving(f"{folder}:0/0:capture", WIDE) as driver:
        assert "the content is damaged" in driver.text
        assert "DAMAGED" in driver.text


async def test_keys_pressed_at_random_do_no_harm() -> None:
    async with driving("@", NARROW) as driver:
        for key in ("t f T tab f f t enter backspace backspace { } [ ] n N r escape b escape right left left right "
                    "G g end home pagedown pageup h l tab tab enter j k").split():
            names = {"{": "left_curly_bracket", "}": "right_curly_bracket", "[": "left_square_bracket",
                     "]": "right_square_bracket"}
            await driver.press(names.get(key, key))
        assert driver.app.is_running
        assert isinstance(driver.app, Workbench)


def test_the_workbench_imports_no_torch() -> None:
    code = "import sys, ptdebug.tui.app; print([m for m in ('torch', 'sympy', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_lines_of_overviews_lead_to_what_they_are_about() -> None:
    async with driving("@", WIDE) as driver:
        main = driver.view("main")
        await driver.press("tab")
        row = next(i for i, line in enumerate(main.listing.lines) if line.text.startswith("  0/1"))
        await driver.press(*["down"] * row, "enter")
        assert driver.app.screen.target.compile == "0/1"
        row = next(i for i, line in enumerate(main.listing.lines) if line.text.startswith("wrapper"))
        await driver.press(*["down"] * row, "enter")
        assert main.listing.title == "wrapper call"
        await driver.press("backspace", "backspace")
        row = next(i for i, line in enumerate(main.listing.lines) if "model.py:15  print" in line.text)
        main.cursor = row
        await driver.press("enter")
        assert (driver.app.screen.target.stage, main.cursor) == ("source", 14)


async def test_a_recording_that_cannot_be_opened_is_said(home: Path, sample: Path, tmp_path: Path) -> None:
    """Chosen in the tree, or gone since: the workbench stays with what it has."""
    async with driving("@:0/0:capture", WIDE) as driver:
        screen = driver.app.screen
        assert isinstance(screen, PanesScreen)
        (tmp_path / "recording.db").write_bytes(b"[/] no database" * 99)
        for path in (tmp_path, tmp_path / "nowhere[/]"):
            screen._open(path)
            await driver.settle()
            assert "def forward(" in driver.text
        said = [notice.message for notice in driver.app._notifications]
        assert "no recording at" in said[-1] and "is not a recording" in said[0]


async def test_a_stage_that_is_not_there_is_said() -> None:
    async with driving("@:2/0:loop_ir", WIDE) as driver:
        assert "has no loop_ir" in driver.text
