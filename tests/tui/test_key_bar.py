"""The screen's last line: the keys that work here, in the theme's colors; a click presses one."""
from __future__ import annotations

from pathlib import Path

from ptdebug.tui.app import workbench
from ptdebug.tui.help_screen import HelpScreen
from ptdebug.tui.key_bar import KeyBar


async def test_keys_that_work_here_can_be_clicked(sample: Path) -> None:
    app = workbench(str(sample))
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.pause()
        bar = app.screen.query_one(KeyBar)
        text = bar.render_line(0).text
        assert "/ find" in text and "s search" in text and len(text) == 120
        await pilot.hover(KeyBar, offset=(text.index("search"), 0))
        assert bar.tooltip == "search in every artifact"
        await pilot.click(KeyBar, offset=(119, 0))
        assert not isinstance(app.screen, HelpScreen)
        await pilot.click(KeyBar, offset=(text.index("help"), 0))
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")
        dark = next(iter(bar.render_line(0))).style
        app.theme = "textual-light"
        await pilot.press("slash")
        await pilot.pause()
        assert "s search" not in bar.render_line(0).text  # it is a letter of the text now
        assert next(iter(bar.render_line(0))).style != dark
