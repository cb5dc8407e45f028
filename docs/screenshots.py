"""Make the pictures of the workbench.

    python docs/screenshots.py all FOLDER
    python docs/screenshots.py SELECTOR FILE.svg WIDTHxHEIGHT [KEYS ...]

`all` makes those of docs/, from the recordings in FOLDER of the examples that PICTURES names (`ptdebug run -o FOLDER
--name EXAMPLE examples/EXAMPLE.py`). KEYS are pressed one after the other before the picture is taken (names as in
Textual: down, enter, tab, t, ...).
"""
from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from ptdebug.tui.app import workbench

DOCS = Path(__file__).parent
DOWN3 = "down down down"
PICTURES: dict[str, tuple[str, str, str]] = {
    "workbench": ("train_transformer:0/0:kernels", "160x44", "pagedown T"),
    "workbench-80x24": ("train_transformer:0/0", "80x24", ""),
    "workbench-recompiles": ("ten_recompiles", "120x32", "1 down"),
    "workbench-guards": ("ten_recompiles:0/0", "120x32", f"2 {DOWN3}"),
    "workbench-fusion": ("train_transformer:0/0", "120x36", f"3 {DOWN3}"),
    "workbench-decisions": ("train_transformer:0/0", "120x36", f"4 {DOWN3} right down"),
    "workbench-passes": ("train_transformer:0/0", "120x36", "5 right down"),
    "workbench-memory": ("train_transformer:0/0", "120x36", f"6 right {DOWN3} {DOWN3}"),
    "workbench-time": ("train_transformer:0/0", "120x28", f"7 {DOWN3}"),
    "workbench-run": ("train_transformer", "120x36", "8"),
    "workbench-model": ("train_transformer:0/0", "120x36", f"9 {DOWN3}"),
    "workbench-breaks": ("graph_breaks", "120x40", "b"),
    "workbench-diff": ("ten_recompiles", "120x36", "1 d"),
}
"""For each: the recording (or what is in it), the size, the keys."""


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
    if sys.argv[1] == "all":
        for name, (shown, wanted, pressed) in PICTURES.items():
            width, height = map(int, wanted.split("x"))
            asyncio.run(take(f"{sys.argv[2]}/{shown}", DOCS / f"{name}.svg", width, height, pressed.split()))
    else:
        width, height = map(int, sys.argv[3].split("x"))
        asyncio.run(take(sys.argv[1], Path(sys.argv[2]), width, height, sys.argv[4:]))
