"""Pictures of every screen at three sizes, as text: `pictures/80x24.txt` and so on show what a person sees.

They are compared without what depends on the machine or on Textual: versions, scroll bars, the border of the focus.
After a change that is wanted: `PTDEBUG_PICTURES=new python -m pytest tests/tui/test_pictures.py`, and read the diff.
"""
from __future__ import annotations

import os
import re
from pathlib import Path
from types import ModuleType

import pytest
from ptdebug.artifacts.store import ENVIRONMENT
from ptdebug.tui.app import workbench
from textual.pilot import Pilot

PICTURES = Path(__file__).parent / "pictures"
SCREENS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("the recording", ()),
    ("a graph, and the program beside it", ("}", "]", "]", "]", "]", "tab", "down")),
    ("find", ("slash", "m", "u", "l", "enter")),
    ("recompilations", ("escape", "1")), ("guards", ("escape", "2")), ("fusion", ("escape", "3", "down", "down")),
    ("what can be done", ("x",)), ("graph breaks", ("escape", "escape", "b")),
    ("what differs", ("escape", "1", "c", "d")), ("keys", ("question_mark",)),
    ("decisions", ("escape", "escape", "escape", "4")), ("passes", ("escape", "5")),
    ("memory", ("escape", "6", "down", "down")), ("time", ("escape", "7")), ("model", ("escape", "9")),
)
_BARS = str.maketrans({**dict.fromkeys("▁▂▃▄▅▆▇█▉▊▋▌▍▎▏▔▕", " "), **dict(zip("┏┓┗┛━┃", "┌┐└┘─│"))})


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)], ids=lambda size: "x".join(map(str, size)))
async def test_pictures(
    size: tuple[int, int], sample_module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # so that the program's path in it is the same everywhere
    update = os.environ.get("PTDEBUG_PICTURES") == "new"
    for name in [name for name in os.environ if name.startswith(ENVIRONMENT)]:
        monkeypatch.delenv(name)  # what is recorded of the environment
    sample_module.write_sample(Path("home", "model-1"))
    monkeypatch.setenv("PTDEBUG_HOME", str(tmp_path / "home"))
    shown = []
    async with workbench("@").run_test(size=size) as pilot:
        for title, keys in SCREENS:
            for key in keys:
                await pilot.press(key)
                await pilot.app.workers.wait_for_complete()
            shown.append(f"== {title}\n{await settled(pilot)}")
    text = re.sub(rf".*{re.escape(str(tmp_path))}.*", "(a path of this machine)", "\n\n".join(shown)) + "\n"
    file = PICTURES / f"{'x'.join(map(str, size))}.txt"
    if update:
        PICTURES.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    before = file.read_text(encoding="utf-8").split("\n\n== ")
    for now, was in zip(text.split("\n\n== "), before, strict=True):
        assert now.rstrip() == was.rstrip()


async def settled(pilot: Pilot[None]) -> str:
    """The picture, once it stays as it is and the keys are there."""
    seen: list[str] = []
    while len(seen) < 30:
        await pilot.app.workers.wait_for_complete()
        await pilot.pause(0.1)
        seen.append(picture(pilot))
        if len(seen) > 1 and seen[-1] == seen[-2] and seen[-1].rpartition("\n")[2]:
            break
    return seen[-1]


def picture(pilot: Pilot[None]) -> str:
    """The text on the screen."""
    strips = pilot.app.screen._compositor.render_strips()
    lines = ["".join(segment.text for segment in strip).translate(_BARS).rstrip() for strip in strips]
    text = re.sub(r"versions  .*", "versions ...", "\n".join(lines))
    return re.sub(r"recording took \d\.\d+ s", "recording took 0.000 s", text)
