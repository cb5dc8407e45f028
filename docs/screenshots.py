"""Make the pictures of the workbench: python docs/screenshots.py SELECTOR FILE.svg WIDTHxHEIGHT [KEYS ...]

KEYS are pressed one after the other before the picture is taken (names as in Textual: down, enter, tab, t, ...).
"""
from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from ptdebug.tui.app import workbench


async def take(selector: str, file: Path, width: int, height: int, keys: list[str]) -> None:
    """Open the workbench without a terminal, press keys, save what is on the screen."""
    app = workbench(selector)
    async with app.run_test(size=(width, height)) as pilot:
        for key in ["", *keys]:
            if key:
                await pilot.press(key)
            await app.workers.wait_for_complete()
            await pilot.pause(0.1)
        file.write_text(app.export_screenshot(title="ptdebug"))


if __name__ == "__main__":
    size = sys.argv[3].split("x")
    asyncio.run(take(sys.argv[1], Path(sys.argv[2]), int(size[0]), int(size[1]), sys.argv[4:]))
