"""What is drawn, and how often: the first screen once, and after a key only what changed."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from ptdebug.tui.app import workbench
from ptdebug.tui.line_view import LineView
from ptdebug.tui.panes import PanesScreen
from ptdebug.tui.plain import TextLine
from rich.style import Style
from textual._compositor import Compositor
from textual.screen import Screen


@pytest.fixture(autouse=True)
def home(sample: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PTDEBUG_HOME", str(sample.parent))
    return sample.parent


async def test_no_empty_screen_is_drawn_before_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    whole = Compositor.render_full_update

    def counted(self: Compositor, **how: bool) -> object:
        drawn.append(" ".join("".join(s.text for s in strip) for strip in self.render_strips()))
        return whole(self, **how)

    monkeypatch.setattr(Compositor, "render_full_update", counted)
    app = workbench("@")
    async with app.run_test(size=(160, 48)) as pilot:
        await pilot.pause()
        assert len(app.screen_stack) == 1 and isinstance(app.screen, PanesScreen)
        assert drawn and "ptdebug" in drawn[0] and "questions" in drawn[0]


async def test_another_text_of_a_line_moves_no_widget(monkeypatch: pytest.MonkeyPatch) -> None:
    app = workbench("@")
    async with app.run_test(size=(160, 48)) as pilot:
        await pilot.pause(0.2)
        layouts: list[object] = []
        before = Screen._refresh_layout
        monkeypatch.setattr(Screen, "_refresh_layout", lambda self, *a, **k: layouts.append(a) or before(self, *a, **k))
        status = app.screen.query_one("#status", TextLine)
        status.say("[bold]another text")
        await pilot.pause(0.2)
        assert str(status.content) == "[bold]another text" and layouts == []  # and no markup
        app.screen.query_one("#outline").styles.width = 40
        await pilot.pause(0.2)
        assert layouts


async def test_a_line_has_base_text_and_cursor_styles_in_this_order() -> None:
    app = workbench("@:0/0:capture")
    async with app.run_test(size=(160, 48)) as pilot:
        await pilot.pause(0.2)
        main = app.screen.query_one("#main", LineView)
        assert main.has_focus and main.row_count > 1
        for row in (main.cursor, main.cursor + 1):
            strip, at = main.render_line(row), 0
            assert strip.cell_length == main.size.width
            over = main.overlay("cursor") if row == main.cursor else Style()
            for text, style, _ in strip:
                assert style is not None and style.bgcolor == (main.rich_style + over).bgcolor
                assert style.meta["offset"] == (at - len(main.row_gutter(row)), row)
                at += len(text)
            assert main.row_text(row)[:20] in strip.text


def test_the_first_screen_does_not_wait_for_pygments() -> None:
    code = "import sys, ptdebug.tui.app; sys.exit(any(name.startswith('pygments') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
