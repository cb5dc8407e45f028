"""The tree's rows, the session and the highlighter as plain functions."""
from __future__ import annotations

import collections
import sys
from pathlib import Path

import pytest
from ptdebug.artifacts.listing import Line
from ptdebug.artifacts.recording import Recording
from ptdebug.artifacts.search import find_rows
from ptdebug.artifacts.store import RecordingWriter
from ptdebug.tui.code_view import _underline
from ptdebug.tui.highlight import CHUNK, MAX_LENGTH, Highlighter
from ptdebug.tui.outline import VisibleRows, opened_at_first, roots
from ptdebug.tui.session import SOURCE, Session, Target, short_name


@pytest.fixture
def session(sample: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("PTDEBUG_HOME", str(sample.parent))
    return Session(Recording.open(sample))


def test_roots_count_frames_and_set_skipped_ones_apart(session: Session) -> None:
    assert [(row.label, row.detail) for row in roots(session)] == [
        ("model-1", "summary"), ("0 forward", "2 ok"),
        ("1 forward, from line 15", "1 ok"), ("skipped frames", "1"), ("graph breaks", "1"),
        ("questions", "keys 0 to 9"), ("other recordings", "")]


def test_opening_and_closing_edits_the_visible_rows(session: Session) -> None:
    visible = VisibleRows(session)
    closed = list(visible.rows)
    for key in opened_at_first(session):
        visible.toggle(visible.index(key))
    labels = [row.label for row in visible.rows]
    assert labels[2:6] == ["0/0", "program", "frame", "bytecode"]
    assert labels.index("decisions") < labels.index("0/1")
    visible.toggle(1)
    assert visible.rows == closed
    assert visible.open == set()


def test_reveal_opens_what_hides_a_target(session: Session) -> None:
    visible = VisibleRows(session)
    for target in (Target("0/1", "capture"), Target("2/0"), Target("0/0", "loop_ir", "buf1"), Target(),
                   Target("0/0", SOURCE, session.recording.sources()[0])):
        index = visible.reveal(target)
        assert index is not None
        assert visible.rows[index].target == target
    assert visible.parent(visible.reveal(Target("0/1", "capture"))) == visible.index("compile 0/1")


def test_a_hundred_thousand_rows_open_and_close_at_once(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "rec")
    writer.begin("0/0", "f", "f.py", 1)
    writer.close(0)
    session = Session(Recording.open(tmp_path / "rec"))
    info = session.compiles[0]
    session.compiles = [type(info)(f"0/{n}", "f", "f.py", 1, "compiled", "", 0.0, {}) for n in range(100_000)]
    visible, calls = VisibleRows(session), collections.Counter[str]()
    sys.setprofile(lambda frame, event, argument: calls.update([event]))
    try:
        visible.toggle(1)
        assert len(visible.rows) > 100_000
        visible.toggle(1)
    finally:
        sys.setprofile(None)
    assert calls["call"] < 8 * 100_000, calls  # a fixed number for each row


def test_commands_name_what_is_shown(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    assert session.command(Target()) == "ptdebug show model-1"
    assert session.command(Target("0/0", "loop_ir", "buf1"), 3) == "ptdebug show model-1:0/0:loop_ir:buf1 --line 3"
    monkeypatch.setenv("PTDEBUG_HOME", "/nowhere")
    assert session.command(Target("0/0")) == f"ptdebug show {session.recording.path}:0/0"


def test_a_listing_that_is_not_there_says_why(session: Session) -> None:
    listing = session.listing(Target("0/0", "backward"))
    assert "inference: nothing requires a gradient" in listing.text


def test_search_goes_through_everything(session: Session) -> None:
    found = {short_name(match.target) for _, matches in session.search("sigmoid") for match in matches}
    assert {"program model.py", "0/0 capture", "0/1 loop_ir:buf1", "0/0 kernels:unit_0"} <= found


@pytest.mark.parametrize("text, rows", [("foo", [0, 1]), ("Foo", [1]), ("", []), ("zzz", [])])
def test_find_ignores_case_where_the_text_has_none(text: str, rows: list[int]) -> None:
    assert find_rows((Line("a foo"), Line("Foo foo"), Line("bar")), text) == rows


def test_highlighting_keeps_every_line_and_character() -> None:
    texts = ["def f(x):", '    """one', "", '    two"""', "    return x  # ünï", "x" * (MAX_LENGTH + 50)] * CHUNK
    lines = tuple(Line(text) for text in texts)
    for language in ("python", "cpp", "text", "gas", "llvm", "no such language"):
        highlighter = Highlighter(lines, language, True)
        for row in (0, 1, 2, 4, CHUNK - 1, CHUNK, len(lines) - 2):
            assert "".join(segment.text for segment in highlighter.segments(row)) == texts[row]
        assert highlighter.text(5).endswith("…")
        assert len(highlighter.text(5)) == MAX_LENGTH + 1


def test_matches_are_underlined_across_segments() -> None:
    from rich.segment import Segment
    from rich.style import Style

    style = Style(underline=True)
    parts = _underline([Segment("foo_b"), Segment("ar = bar")], "foo_bar = bar", "bar", style)
    assert "".join(p.text for p in parts) == "foo_bar = bar"
    assert "".join(p.text for p in parts if p.style and p.style.underline) == "barbar"


def test_later_forms_of_a_kernel_stand_below_it(session: Session) -> None:
    visible = VisibleRows(session)
    index = visible.reveal(Target("0/0", "kernels", "unit_0"))
    assert visible.rows[index].label in ("kernels", "unit_0")
    visible.toggle(index)
    below = visible.rows[index + 1]
    if below.label == "unit_0":
        visible.toggle(index + 1)
        below = visible.rows[index + 2]
    assert below.target == Target("0/0", "kernels", "unit_0.asm")
    assert "ret" in session.listing(below.target).text
