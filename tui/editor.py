"""Opens a file in the person's editor, the workbench stepping aside meanwhile."""
from __future__ import annotations

import os
import shlex
import shutil
import subprocess

from textual.app import App, SuspendNotSupported

LINE_OPTIONS = {"code": ("-g", "{file}:{line}"), "codium": ("-g", "{file}:{line}"), "subl": ("{file}:{line}",),
                "hx": ("{file}:{line}",), "zed": ("{file}:{line}",)}
"""How editors take a line that do not take `+LINE FILE`."""


def command_for(editor: str, file: str, line: int) -> list[str]:
    """The command line that opens `file` at `line`."""
    words = shlex.split(editor)
    form = LINE_OPTIONS.get(os.path.basename(words[0]), ("+{line}", "{file}"))
    return [*words, *(part.format(file=file, line=line) for part in form)]


def edit(app: App[None], file: str, line: int) -> str:
    """Open the editor and wait; returns what went wrong, "" if nothing."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    command = command_for(editor, file, line)
    if shutil.which(command[0]) is None:
        return f"there is no editor {command[0]}: set EDITOR"
    if not os.path.exists(file):
        return f"{file} is not there any more"
    try:
        with app.suspend():
            subprocess.run(command, check=False)
    except SuspendNotSupported:
        return "this terminal cannot be left to an editor"
    return ""
