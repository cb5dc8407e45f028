"""The screens that answer questions: rows, folding, filters, details, and where they lead."""
from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

import pytest
from ptdebug.artifacts import records as r
from ptdebug.artifacts.decision_kinds import OPTIONS
from ptdebug.artifacts.decision_words import ABOUT
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.store import RecordingWriter
from ptdebug.tui.act_screen import ActScreen
from ptdebug.tui.acts import ACTS
from ptdebug.tui.answer_screen import AnswerScreen, AnswerView
from ptdebug.tui.answers.answer import Answer, filtered, fixed, unfolded
from ptdebug.tui.answers.engine import _held
from ptdebug.tui.answers.questions import BY_ID, QUESTIONS
from ptdebug.tui.app import workbench
from ptdebug.tui.code_view import CodeView
from ptdebug.tui.diff_screen import DiffScreen
from ptdebug.tui.editor import command_for
from ptdebug.tui.panes import PanesScreen
from ptdebug.tui.session import Session, Target
from textual.app import App
from textual.pilot import Pilot

WIDE, NARROW = (160, 48), (80, 24)
ROWS = [Answer("a", fixed()), Answer("b refused", fixed(), depth=1), Answer("c", fixed(), depth=2),
        Answer("d refused", fixed(), depth=2), Answer("e", fixed())]


@pytest.fixture(autouse=True)
def home(sample: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PTDEBUG_HOME", str(sample.parent))
    return sample.parent


@pytest.mark.parametrize("text, places", [
    ("", [0, 1, 2, 3, 4]), ("refused", [0, 1, 3]), ("d REFUSED", [0, 1, 3]), ("!refused", [0, 1, 2, 4]), ("x", []),
])
def test_a_filter_keeps_what_is_above_its_rows(text, places):
    assert filtered(ROWS, text) == places


def test_closed_rows_hide_what_is_below_them():
    assert unfolded(ROWS, range(5), {1}) == [0, 1, 4]
    assert unfolded(ROWS, range(5), {0}) == [0, 4]


def test_memory_is_held_until_it_is_taken_over_and_that_of_outputs_to_the_end():
    groups = tuple(r.ScheduledGroup(name, "loops", (name,), name) for name in ("k0", "k1", "k2", "k3"))
    plans = [r.BufferPlan("buf0", 8, "k0", "k0"), r.BufferPlan("buf1", 8, "k0", "k1"),
             r.BufferPlan("buf2", 8, "k2", "k3", reuses="buf0"), r.BufferPlan("buf3", 8, "k1", "k2", role="output")]
    held = _held(r.Schedule(groups, tuple(plans)), plans)
    assert {name: list(groups) for name, groups in held.items()} == {
        "buf0": [0, 1], "buf1": [0, 1], "buf2": [2, 3], "buf3": [1, 2, 3]}


def test_each_kind_of_decision_is_explained():
    assert ABOUT.keys() == OPTIONS.keys()


@asynccontextmanager
async def asking(key: str, size: tuple[int, int] = WIDE, selector: str = "@:0/0") -> AsyncIterator[Pilot[None]]:
    async with workbench(selector).run_test(size=size) as pilot:
        await settle(pilot)
        await pilot.press(key)
        await settle(pilot)
        yield pilot


async def settle(pilot: Pilot[None]) -> None:
    await pilot.app.workers.wait_for_complete()
    await pilot.pause(0.05)


def details(app: App[None]) -> str:
    return "\n".join(line.text for line in app.screen.query_one("#details", CodeView).listing.lines)


@pytest.mark.parametrize("size", [WIDE, NARROW])
async def test_every_question_has_rows_and_details_that_fit(size):
    async with workbench("@:0/0").run_test(size=size) as pilot:
        for question in QUESTIONS:
            await pilot.press(question.key)
            await pilot.pause(0.05)
            screen = pilot.app.screen
            assert isinstance(screen, AnswerScreen)
            view = screen.query_one("#rows", AnswerView)
            assert view.row_count > 0
            width = screen.query_one("#details", CodeView).size.width
            for _ in range(min(view.row_count, 3)):
                lines = screen.query_one("#details", CodeView).listing.lines
                assert lines and max(len(line.text) for line in lines) <= width
                await pilot.press("down")
                await pilot.pause()
            await pilot.press("escape")


async def test_a_recompilation_leads_to_its_guard_and_to_the_difference():
    async with asking("1", selector="@") as pilot:
        screen = pilot.app.screen
        assert screen.query_one("#rows", AnswerView).answer.title.startswith("0/1")
        assert "to avoid" in details(pilot.app)
        await pilot.press("d")
        await settle(pilot)
        assert isinstance(pilot.app.screen, DiffScreen)
        assert pilot.app.screen.command == "ptdebug diff model-1:0/0 model-1:0/1"
        main = pilot.app.screen.query_one("#main", CodeView)
        await pilot.press("n")
        assert main.listing.lines[main.cursor].text.startswith(("  ~", "  +", "  -"))
        await pilot.press("escape", "enter")
        await settle(pilot)
        assert isinstance(pilot.app.screen, PanesScreen)
        assert pilot.app.screen.target == Target("0/1", "guards")


async def test_filter_and_fold():
    async with asking("4") as pilot:
        view = pilot.app.screen.query_one("#rows", AnswerView)
        rows = view.row_count
        await pilot.press("home", "z")
        assert view.row_count < rows
        await pilot.press("slash", *"zzz", "enter")
        assert view.row_count == 0
        await pilot.press("escape")
        assert view.row_count == rows


async def test_two_things_marked_are_compared():
    async with workbench("@:0/0").run_test(size=WIDE) as pilot:
        await settle(pilot)
        await pilot.press("d", "right_curly_bracket", "d")
        await settle(pilot)
        assert isinstance(pilot.app.screen, DiffScreen)
        text = pilot.app.screen.query_one("#main", CodeView).listing.text
        assert "0/0 -> 0/1" in text


async def test_the_menu_runs_a_command_and_shows_its_output(monkeypatch):
    monkeypatch.setattr("ptdebug.tui.act_screen.ACTS", (*ACTS[:1],))
    async with asking("x") as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, ActScreen)
        assert screen.words(0) == ["replay", "model-1:0/0"]
        monkeypatch.setattr(screen, "words", lambda row: ["show", "model-1:0/0"])
        await pilot.press("enter")
        await settle(pilot)
        output = screen.query_one("#output", CodeView).listing.text
        assert "status    compiled" in output
        await pilot.press("escape")
        assert isinstance(pilot.app.screen, PanesScreen)


async def test_a_breadcrumb_from_the_program_to_the_kernel():
    async with workbench("@:0/0:kernels").run_test(size=WIDE) as pilot:
        await settle(pilot)
        chain = str(pilot.app.screen.query_one("#chain").render())
        assert chain.startswith("source model.py:") and "[kernels" in chain and "capture" in chain


async def test_a_growing_recording_keeps_the_place(sample_module: ModuleType, tmp_path: Path, monkeypatch):
    folder = sample_module.write_sample(tmp_path / "home" / "model-1")
    monkeypatch.setenv("PTDEBUG_HOME", str(folder.parent))
    async with workbench("@:0/0:capture", follow=True).run_test(size=WIDE) as pilot:
        await settle(pilot)
        screen = pilot.app.screen
        await pilot.press("down", "down")
        before = screen.session
        import sqlite3

        with sqlite3.connect(folder / "recording.db") as connection:
            connection.execute("INSERT INTO compiles SELECT '7/0', function, file, line, started + 9, status, reason, "
                               "seconds FROM compiles WHERE id='0/0'")
        connection.close()
        screen._grown()
        await settle(pilot)
        assert screen.session is not before
        assert "7/0" in {info.id for info in screen.session.compiles}
        assert (screen.target.stage, screen.query_one("#main", CodeView).cursor) == ("capture", 2)


@pytest.mark.parametrize("editor, command", [
    ("vim", ["vim", "+7", "m.py"]), ("code -w", ["code", "-w", "-g", "m.py:7"]), ("hx", ["hx", "m.py:7"]),
])
def test_editors_open_at_the_line(editor, command):
    assert command_for(editor, "m.py", 7) == command


def test_the_line_of_the_program_behind_a_line(sample: Path):
    with Recording.open(sample) as recording:
        session = Session(recording)
        target = Target("0/0", "kernels", "unit_0")
        line = next(line for line in session.listing(target).lines if line.origins)
        file, number = session.program_line(target, line)
        assert file.endswith("model.py") and number > 0



def test_layers_that_are_alike_are_one_row():
    from ptdebug.artifacts.records import Graph, Node
    from ptdebug.tui.answers.model import layers, module_tree

    def node(i: int, target: str, module: str) -> Node:
        return Node(f"n{i}", "call_function", target, module=module)

    names = [f"blocks.{i}.{part}" for i in range(48) for part in ("norm", "up")]
    nodes = [node(i, "odd" if name == "blocks.7.up" else name[-2:], name) for i, name in enumerate(names)]
    tree = module_tree(Graph("capture", (*nodes, node(999, "softmax", ""))))
    runs = [(run[0].path, len(run)) for run in layers(tree.children["blocks"])]
    assert runs == [("blocks.0", 7), ("blocks.7", 1), ("blocks.8", 40)]
    assert tree.size == 97


async def test_more_operations_than_are_shown_are_counted_and_lead_to_the_graph(monkeypatch):
    monkeypatch.setattr("ptdebug.tui.answers.model.KEPT", 2)
    async with asking("9") as pilot:
        view = pilot.app.screen.query_one(AnswerView)
        (row,) = [place for place, answer in enumerate(view.answers) if answer.title.startswith("... ")]
        assert view.answers[0].title.endswith(": 4 operations")
        assert view.answers[row].title == "... 1 more operation: enter shows them in the graph"
        view.cursor = row
        await pilot.press("enter")
        await settle(pilot)
        main = pilot.app.screen.query_one("#main", CodeView)
        assert main.line is not None and main.line.ref == view.answers[row].opens[1]


async def test_failures_of_a_compilation_are_its_own_and_those_of_the_run_come_once(monkeypatch):
    from ptdebug.artifacts.failures import Failure

    found = [Failure("compilation", "it broke", "the compilation failed", one) for one in ("0/0", "0/1")]
    monkeypatch.setattr("ptdebug.tui.answers.failure.failures", lambda recording: found)
    monkeypatch.setattr("ptdebug.tui.session.LARGE", 0)
    for selector, count in (("@", 2), ("@:0/1", 1), ("@:1/0", 0)):
        async with asking("0", selector=selector) as pilot:
            titles = [answer.title for answer in pilot.app.screen.query_one(AnswerView).answers]
            assert titles.count("it broke") == count, titles
            assert count or titles == ["nothing failed in 1/0; c: all compilations"]


async def test_where_a_listing_is_read_in_the_background_the_cursor_goes_to_its_row(monkeypatch):
    monkeypatch.setattr("ptdebug.tui.session.MANY", 0)
    async with asking("3") as pilot:
        await pilot.press("down", "down", "enter")  # a group: its kernel, which is read in the background
        await settle(pilot)
        screen = pilot.app.screen
        main = screen.query_one("#main", CodeView)
        assert isinstance(screen, PanesScreen) and screen.target.stage in ("kernels", "schedule", "fusion")
        row = main.cursor
        screen.session._listings.clear()
        screen.show_target(screen.target, 3)
        await settle(pilot)
        assert main.cursor == 3 and row > 0


def test_what_stocks_trace_does_not_say_is_not_said(tmp_path: Path):
    writer = RecordingWriter(tmp_path / "stock", compiler="torch")
    writer.begin("0/0", "f", "f.py", 1)
    writer.record("0/0", "schedule", "", r.Schedule((r.ScheduledGroup("call1", "loops", (), "cpp_fused_mul_0"),)))
    writer.record("0/0", "passes", "00_post_grad", r.Pass("post_grad", r.Graph("post_grad", ()), ()))
    writer.end("0/0", "compiled", "", {})
    writer.close(0)
    with Recording.open(tmp_path / "stock") as recording:
        session = Session(recording)
        whole, group = BY_ID["fusion"].rows(session, "")
        assert whole.title == "0/0  1 group, which pairs could have been fused is not recorded"
        assert group.title == "call1  loops: cpp_fused_mul_0" and not group.details()
        assert [row.title for row in BY_ID["passes"].rows(session, "")] == [
            "0/0  00_post_grad  what it rewrote is not recorded"]
        assert session.listing(Target("0/0", "passes", "00_post_grad")).lines[0].text.endswith("is not recorded")
        assert BY_ID["memory"].rows(session, "") == [] and BY_ID["memory"].nothing == "no buffers were recorded"


async def test_breaks_of_a_large_recording_are_ranked_in_the_background(monkeypatch):
    monkeypatch.setattr("ptdebug.tui.session.LARGE", 0)
    async with workbench("@").run_test(size=WIDE) as pilot:
        await settle(pilot)
        await pilot.press("b")
        await settle(pilot)
        assert "model.py:15" in pilot.app.screen.query_one("#breaks", CodeView).row_text(0)
        assert "print() runs outside of the graph" in pilot.app.screen.query_one("#reason", CodeView).listing.text
        await pilot.press("o")
        await settle(pilot)
        assert isinstance(pilot.app.screen, PanesScreen) and pilot.app.screen.target.stage == "breaks"


def test_a_line_that_no_other_stage_has_is_no_chain(sample: Path):
    with Recording.open(sample) as recording:
        session, target = Session(recording), Target("0/0", "wrapper")
        lines = session.listing(target).lines
        assert session.breadcrumb(target, lines[0], True) == "no other stage has anything of this line"
        assert "[wrapper 5]" in session.breadcrumb(target, lines[4], True)
        assert session.breadcrumb(target, lines[4], False) == ""


async def test_all_in_an_answer_about_all_is_the_compilation_of_the_row():
    async with asking("2", selector="@") as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, AnswerScreen) and screen.compile_id == ""
        await pilot.press("down", "c")
        await settle(pilot)
        assert screen.compile_id == "0/0"
        await pilot.press("c")
        assert screen.compile_id == ""
